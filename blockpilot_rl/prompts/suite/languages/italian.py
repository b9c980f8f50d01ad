"""Italian texts of the suite. Pure data."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.languages.italian_topics import TOPICS
from blockpilot_rl.prompts.suite.languages.language import Language
from blockpilot_rl.prompts.suite.lexicon import words
from blockpilot_rl.prompts.suite.writer import Grammar

# Things are masculine and names begin with a consonant. Numbers that begin with a vowel (8, 11)
# never follow an article.
_GRAMMAR = Grammar(
    lexicon={
        "first": words(
            "Bruno, Camilla, Carla, Dario, Davide, Federica, Giulia, Greta, Lorenzo, Luca, Marta, "
            "Matteo, Nadia, Paolo, Rita, Sara, Simone, Teresa, Tommaso, Valeria"
        ),
        "last": words(
            "Barbieri, Colombo, Costa, De Luca, Ferri, Galli, Leone, Marini, Moretti, Ricci, "
            "Serra, Valli"
        ),
        "town": words(
            "Montechiaro, Borgo San Marco, Pietralta, Vallebruna, Castelnuovo, Ponteverde, "
            "Roccaforte, Santa Lucia, Campofiorito, Molinella"
        ),
        "city": words(
            "Vienna, Amburgo, Zurigo, Bologna, Torino, Lisbona, Praga, Copenaghen, Siviglia"
        ),
        "weekday": words("lunedì, martedì, mercoledì, giovedì, venerdì, sabato"),
        "month": words(
            "gennaio, febbraio, marzo, aprile, maggio, giugno, luglio, agosto, settembre, ottobre, "
            "novembre, dicembre"
        ),
        "things": words(
            "libri, francobolli, limoni, bottoni, palloncini, biscotti, quaderni, pomodori, "
            "gettoni, fiori, bicchieri, cioccolatini, pennarelli, sassolini, tappi"
        ),
        "product": words(
            "uno zaino, una lampada, una sveglia, una borraccia, una tenda, un casco da "
            "bicicletta, una tastiera, uno scaffale, un impermeabile, un bollitore"
        ),
        "hero": words(
            "un drago timido, una volpe astuta, un vecchio guardiano del faro, una bambina "
            "curiosa, un mago smemorato, una fornaia coraggiosa, un robot solitario, due sorelle "
            "molto diverse, un riccio che vuole viaggiare, una gatta senza nome, un giovane "
            "giardiniere, una pilota in pensione, un bambino con un segreto, un cuoco senza "
            "olfatto, una bibliotecaria silenziosa, un postino stanco"
        ),
        "place": words(
            "in un piccolo villaggio, su un'isola deserta, in una città innevata, in un vecchio "
            "castello, in una fattoria, su un treno notturno, in riva al mare, in una grande "
            "biblioteca, in alta montagna, su una nave, in una casa sull'albero, in una stazione "
            "dimenticata"
        ),
        "object": words(
            "una chiave d'oro, una vecchia mappa, una lettera smarrita, un orologio rotto, un "
            "libro parlante, un ombrello rosso, una bottiglia vuota, un seme strano, una piccola "
            "lanterna, una foto senza data, una valigia piena di bottoni"
        ),
        "season": words("la primavera, l'estate, l'autunno, l'inverno"),
        "theme": words(
            "l'amicizia, il coraggio, la pazienza, l'onestà, la curiosità, la fiducia, la "
            "speranza, la generosità, la gentilezza, la prudenza"
        ),
        "concept": words(
            "la gravità, un arcobaleno, la fotosintesi, un vulcano, il ciclo dell'acqua, "
            "l'inflazione, una calamita, un vaccino, un algoritmo, la democrazia, un terremoto, "
            "una bussola, un'eclissi, un ghiacciaio, una pila"
        ),
        "goal": words(
            "dormire meglio, risparmiare denaro, leggere di più, imparare lo spagnolo, passare "
            "meno tempo al telefono, coltivare pomodori, mangiare più sano, mantenere la calma, "
            "ricordare i nomi, correre più a lungo"
        ),
        "animal": words(
            "una volpe, un gufo, un riccio, un delfino, uno scoiattolo, una tartaruga, un "
            "pinguino, un castoro, un'ape, un lupo, una rana, un elefante"
        ),
        "job": words(
            "una dottoressa, un fornaio, un'architetta, un macchinista, una giardiniera, un "
            "interprete, una giudice, un falegname, una programmatrice, un infermiere"
        ),
        "food": words(
            "la zuppa di patate, la torta di mele, la zuppa di lenticchie, il curry di verdure, "
            "l'insalata di pasta, il pane di segale, la frittata, il risotto, il tiramisù, la "
            "salsa di pomodoro"
        ),
        "hobby": words(
            "il nuoto, la pittura, il giardinaggio, l'escursionismo, la cucina, il lavoro a "
            "maglia, la fotografia, il ciclismo, la danza, la ceramica"
        ),
    },
    requests=(
        *["{upper}."] * 4,
        "Per favore, {lower}.",
        "{upper}, per favore.",
        "Ciao! {upper}.",
        "Il tuo compito: {lower}.",
    ),
    quoting_requests=(*["{upper}"] * 3, "Per favore, {lower}"),
)

LANGUAGE = Language(
    code="it",
    grammar=_GRAMMAR,
    problems=(
        "{who} ha {20..90} {things} e [ne regala {2..11} a {friend}|ne perde {2..11}|ne vende "
        "{2..11}]. Quanti {things} restano a {who}?",
        "{who} compra {2..12} {things} a {2..15} euro l'uno. [Quanto spende in tutto?|Quanto resta "
        "di 200 euro?]",
        "In una scatola entrano {3..24} {things}. Quanti {things} entrano in {2..15} scatole?",
        "[Un treno|Un autobus|Una macchina] viaggia a {3..12}0 chilometri all'ora. Quanta strada "
        "fa in {2..9} ore?",
        "{who} legge {5..40} pagine al giorno. Quanti giorni servono per un libro di "
        "{1..6}{0..9}0 pagine?",
        "In un negozio {product} costa {2..9}0 euro. Il prezzo [aumenta|diminuisce] del {1..7}0 "
        "per cento. Qual è il nuovo prezzo?",
        "{who} ha {5..15} anni e {friend} ne ha {2..4} volte tanti. Qual è la somma delle loro "
        "età?",
        "Un giardino è lungo {3..30} metri e largo {2..20} metri. Qual è [la sua area|il suo "
        "perimetro]?",
        "{who} risparmia {3..30} euro ogni settimana. Quanti euro sono dopo {4..30} settimane?",
        "Un film comincia alle {17..20}:[00|15|30|45] e dura {80..150} minuti. A che ora finisce?",
        "Per {2..4} persone servono {2..9}00 grammi di farina. Quanta farina serve per {5..12} "
        "persone?",
        "{who} e {friend} raccolgono {things}. {who} ne ha {30..80} e {friend} ne ha {3..20} in "
        "[più|meno]. Quanti sono in tutto?",
        "In una classe ci sono {15..32} bambini e {3..9} di loro [portano gli occhiali|suonano uno "
        "strumento|hanno un animale]. Quanti no?",
        "Al mattino ci sono {3..20} gradi e a mezzogiorno ce ne sono {2..14} in [più|meno]. Che "
        "temperatura c'è allora?",
        "Una corda di {20..95} metri viene tagliata in pezzi da {2..9} metri. Quanti pezzi si "
        "ottengono e quanto avanza?",
        "Una contadina pianta {3..20} file di {4..25} tulipani. Quanti tulipani sono?",
    ),
    calculations=(
        "Quanto fa {sum}?",
        "Qual è il risultato di {sum}?",
        "Calcola {sum}.",
        "Calcola {sum} passo dopo passo.",
        "Come si calcola {sum}? Spiegalo a un bambino.",
        "Risolvi questa operazione: {sum}",
        "Il risultato di {sum} è maggiore di {2..9}00?",
    ),
    tasks=(
        "scrivi la tabellina del [3|4|6|7|9|{12..25}]",
        "conta all'indietro da {20..99} a {2..15}",
        "scrivi i primi {5..15} multipli di {3..30}",
        "scrivi in lettere i numeri da {2..40} a {50..60}",
        "ordina questi numeri dal più piccolo al più grande: {1..99}, {1..99}, {1..99}, {1..99}, "
        "{1..99}",
        "converti {2..90} [chilometri in metri|ore in minuti|chilogrammi in grammi|settimane in "
        "giorni]",
        "raddoppia per {4..9} volte il numero {2..15} e scrivi ogni risultato",
        "calcola la media di {3..30}, {3..30}, {3..30} e {3..30}",
    ),
    calculation_styles=(
        "",
        "",
        " Mostra il calcolo.",
        " Ragiona passo dopo passo.",
        " Dai solo il risultato.",
        " Rispondi con una frase completa.",
        " Alla fine controlla il risultato.",
    ),
    questions=(
        "Che cos'è {concept}?",
        "[Puoi spiegarmi|Sai] che cos'è {concept}?",
        "Come si spiega a un bambino che cos'è {concept}?",
        "Perché a scuola si studia che cos'è {concept}?",
        "Come posso {goal}?",
        "Che consigli daresti a chi vuole {goal}?",
        "Che cosa mangia {animal} e dove vive?",
        "[Quanti anni vive|Quante ore al giorno dorme] {animal}?",
        "Che cosa fa {job} tutto il giorno?",
        "Che studi deve fare {job}?",
        "Come si prepara {food}?",
        "Che ingredienti servono per {food} e quanto tempo ci vuole?",
        "Perché a tante persone piace {hobby}?",
        "Che cosa serve per cominciare con {hobby} e quanto costa?",
        "Che cosa si può fare in un fine settimana a {city}?",
        "Qual è la stagione migliore per visitare {city}?",
    ),
    answer_styles=(
        "",
        "",
        " Rispondi con una frase.",
        " Rispondi brevemente.",
        " Spiega perché.",
        " Usa parole semplici.",
        " Rispondi con al massimo {3..8}0 parole.",
    ),
    layouts=(
        "{text}\n\n{question}",
        "{text}\n\nDomanda: {question}\nRisposta:",
        "Leggi il testo e rispondi alla domanda.\n\n{text}\n\n{question}",
        "{question}\n\n{text}",
        "Testo: {text}\nDomanda: {question}",
    ),
    stories=(
        "scrivi un racconto [breve|divertente|triste|tranquillo|pieno di suspense] su {hero}",
        "scrivi un racconto su {hero} che si svolga {place}",
        "[raccontami|racconta a un bambino] una storia della buonanotte su {hero}",
        "racconta in [tre|quattro|cinque|sei] frasi la storia di {hero} e di {object}",
        "scrivi una poesia [breve|di quattro versi|in rima|allegra] su [{hero}|{object}]",
        "scrivi una poesia [breve|di quattro versi|in rima|allegra] che descriva {season}",
        "scrivi [il primo|l'ultimo] paragrafo di un racconto [divertente|malinconico] su {hero}",
        "scrivi una favola che insegni {theme}, con {animal} e {animal2}",
        "scrivi una lettera [a una vecchia amica|ai nonni|a un vicino] su [un viaggio a {city}|un "
        "fine settimana {place}]",
        "scrivi un dialogo in cui {first} e {first2} parlano di {object}",
        "scrivi una pagina di diario su una giornata [tranquilla|strana|felice] {place}",
        "descrivi in [tre|quattro|cinque] frasi [una mattina|una sera|un giorno d'inverno] {place}",
        "inventa un personaggio che vive {place} e descrivi una sua giornata",
        "continua questa storia: {opening}",
        "scrivi un racconto che cominci con questa frase: {opening}",
    ),
    openings=(
        "Una [mattina|sera|notte] di {month}, {first} trovò {object}.",
        "Pioveva da {3..40} giorni quando {first} scoprì {object}.",
        "A {first} restavano solo {2..9} minuti.",
        "La lettera era indirizzata a {first}, ma fu {first2} ad aprirla.",
        "Quando si spense la luce, {first} sentì dei passi sulle scale.",
        "{first} viveva {place} da {2..30} anni, e non era mai successo niente.",
        "L'ultimo giorno di {month}, {first2} chiuse il negozio per sempre.",
    ),
    story_styles=(
        "",
        "",
        " Usa parole semplici.",
        " Non superare le {5..15}0 parole.",
        " Aggiungi un titolo.",
        " Il finale deve sorprendere.",
        " Scrivi frasi brevi.",
    ),
    summaries=(
        "riassumi il testo in [una frase|due frasi|tre frasi|al massimo {2..4}0 parole|poche "
        "parole]",
        "elenca i [due|tre] punti più importanti di questo testo",
        "dai [un titolo|tre titoli possibili] a questo testo",
        "scrivi un riassunto [breve|brevissimo] di questo testo[ per bambini| per chi ha fretta|]",
        "dimezza la lunghezza del testo",
        "riscrivi il testo con parole semplici",
        "trasforma questo testo in [un messaggio|una breve e-mail|un titolo di giornale|un "
        "annuncio|tre punti]",
        "spiega in [una frase|poche parole] di che cosa parla questo testo",
    ),
    label="Testo",
    topics=TOPICS,
)
