"""What Italian passages are about. Pure data."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.topic import Topic

TOPICS = (
    Topic(
        "manifesto",
        {
            "event": "festa [d'estate|delle luci|del porto|del raccolto|della musica|del "
            "quartiere]",
            "place": "[in piazza del Mercato|nel parco comunale|davanti al municipio|nel cortile "
            "della scuola|accanto alla vecchia stazione]",
            "date": "{12..28} {month}",
            "time": "{14..19}",
            "price": "{2..9} euro",
            "host": "{first} {last}",
        },
        (
            (
                "[Il {date} si tiene {place} la {event} di {town}|{town} invita tutti alla "
                "{event}, il {date} {place}].",
                "In che giorno si tiene la {event}?",
                "Dove si tiene la festa?",
            ),
            (
                "[Si comincia alle {time}|L'apertura è prevista per le {time}|La banda dà il "
                "segnale alle {time}], [e si ballerà fino a tardi|con un discorso della sindaca|"
                "con qualunque tempo].",
                "A che ora comincia la festa?",
            ),
            (
                "L'ingresso costa {price}, [ma i bambini non pagano|e la metà per i soci].",
                "Quanto costa l'ingresso?",
            ),
            (
                "[Un gruppo della zona suonerà musica da ballo|Il coro della scuola canterà tre "
                "canzoni|Per i più piccoli ci sarà un teatro di burattini].",
                "Che cosa si offre ai visitatori?",
            ),
            (
                "Se piove, [tutto si farà in palestra|si festeggerà nella sala comunale|il "
                "concerto sarà annullato].",
                "Che cosa succede se piove?",
            ),
            (
                "Chi vuole aiutare a montare le bancarelle può rivolgersi a {host} entro "
                "{weekday}.",
                "A chi ci si può rivolgere per aiutare?",
            ),
        ),
    ),
    Topic(
        "avviso",
        {
            "pet": "[Micio|Romeo|Baffo|Tigro|Fuffi|Pallino|Carbone]",
            "look": "[grigio tigrato|tutto nero|bianco e nero|rosso con le zampe bianche]",
            "street": "[in via dei Giardini|in via del Mulino|vicino alla scuola|in piazza della "
            "Chiesa]",
            "weekday": "{weekday}",
            "reward": "{2..9}0 euro",
            "owner": "{first} {last}",
        },
        (
            (
                "Il nostro gatto {pet} [è scomparso|non torna a casa] da {weekday}.",
                "Da quando manca {pet}?",
                "Come si chiama il gatto?",
            ),
            (
                "È {look} e [porta un collare rosso|ha una piccola cicatrice all'orecchio|zoppica "
                "un po'].",
                "Che aspetto ha il gatto?",
            ),
            (
                "È stato visto l'ultima volta {street}, [dove ama sedersi sui muretti|mentre "
                "seguiva un topo|poco prima del temporale].",
                "Dove è stato visto {pet} l'ultima volta?",
            ),
            (
                "[Per favore, guardate nelle cantine e nei garage|Non rincorretelo, perché ha "
                "paura|Aprite, per favore, i capanni dei giardini].",
                "Che cosa si chiede ai vicini?",
            ),
            (
                "Chi lo trova riceverà {reward} di ricompensa[ e una torta|].",
                "A quanto ammonta la ricompensa?",
            ),
            (
                "[Potete chiamare|Basta chiamare] {owner} [a qualsiasi ora|dopo le otto|anche di "
                "notte].",
                "Chi bisogna chiamare?",
            ),
        ),
    ),
    Topic(
        "racconto di viaggio",
        {
            "teacher": "[la maestra|il maestro] {last}",
            "count": "{15..30} alunni",
            "goal": "[un castello|una grotta|un museo all'aperto|un caseificio|un osservatorio]",
            "hours": "{2..4} ore",
            "kilometres": "{4..14} chilometri",
            "month": "{month}",
        },
        (
            (
                "Nel mese di {month}, {count} di {town} sono partiti in treno per visitare {goal}.",
                "Che cosa hanno visitato gli alunni?",
                "Quanti alunni sono partiti?",
            ),
            (
                "Il viaggio è durato {hours}, [perché il treno si è fermato in aperta campagna|con "
                "un solo cambio|e tutti cantavano].",
                "Quanto è durato il viaggio?",
            ),
            (
                "Poi il gruppo ha camminato per {kilometres} [in un bosco di faggi|lungo un "
                "ruscello|sulle colline].",
                "Quanta strada ha fatto il gruppo a piedi?",
            ),
            (
                "[Un ragazzo ha perso lo zaino, ma lo ha ritrovato|Due bambini hanno contato tutti "
                "gli uccelli|A mezzogiorno hanno mangiato pane e mele in un prato].",
                "Che cosa è successo lungo la strada?",
            ),
            (
                "{teacher} [ha spiegato tutto con pazienza|ha fatto più di cento foto|aveva "
                "preparato una caccia al tesoro].",
                "Che cosa ha fatto chi accompagnava gli alunni?",
            ),
            (
                "[La sera tutti sono tornati stanchi ma contenti|Al ritorno quasi tutti dormivano|"
                "L'anno prossimo vogliono tornarci].",
                "Come è finita la giornata?",
            ),
        ),
    ),
    Topic(
        "scheda del prodotto",
        {
            "name": "[Alpina|Maestrale|Tara|Luma|Bussola] {100..900}",
            "litres": "0,{4..9} litri",
            "hours": "{6..24} ore",
            "price": "{12..49} euro",
            "color": "[blu|verde scuro|argento|rosso|nero]",
            "years": "{2..5} anni",
        },
        (
            (
                "La borraccia termica {name} contiene {litres} e [entra in ogni borsa da "
                "bicicletta|pesa meno di un libro|sta in piedi anche su un terreno irregolare].",
                "Quanto contiene la borraccia?",
            ),
            (
                "Le bevande restano calde per {hours} e [fredde per il doppio del tempo|fresche "
                "anche d'estate].",
                "Per quanto tempo restano calde le bevande?",
            ),
            (
                "Il tappo [si apre con una mano sola|serve anche da tazza|si può lavare in "
                "lavastoviglie].",
                "Che cosa ha di speciale il tappo?",
            ),
            (
                "Si vende in {color} [e in altri tre colori|e in bianco], e costa {price}.",
                "Quanto costa la borraccia?",
                "In quali colori si vende?",
            ),
            (
                "Il produttore dà una garanzia di {years}[, tappo compreso|, se si conserva lo "
                "scontrino|].",
                "Quanto dura la garanzia?",
            ),
            (
                "[Non è adatta alle bevande gassate|Non si può mettere nel microonde|Va "
                "sciacquata prima del primo uso].",
                "A che cosa bisogna fare attenzione?",
            ),
        ),
    ),
    Topic(
        "cronaca",
        {
            "home": "{town}",
            "guest": "{city}",
            "score": "{3..5} a {0..2}",
            "striker": "{first} {last}",
            "minute": "minuto {5..40}",
            "crowd": "{2..9}00 spettatori",
        },
        (
            (
                "{weekday} scorso la squadra di {home} ha battuto quella di {guest} per {score}.",
                "Come è finita la partita?",
                "Chi ha giocato contro chi?",
            ),
            (
                "Il primo gol lo ha segnato {striker} al {minute}[, quando la palla sembrava "
                "persa|, di testa|].",
                "Chi ha segnato il primo gol?",
                "In che minuto è arrivato il primo gol?",
            ),
            (
                "I {crowd} [cantavano nonostante la pioggia|si stringevano sugli spalti|prima "
                "hanno fischiato e poi applaudito].",
                "Quanti spettatori c'erano?",
            ),
            (
                "Dopo l'intervallo [il gioco è diventato più duro|il portiere ha parato un rigore|"
                "l'allenatrice ha fatto tre cambi].",
                "Che cosa è successo dopo l'intervallo?",
            ),
            (
                "[L'allenatrice ha lodato soprattutto la difesa|Gli ospiti si sono lamentati "
                "dell'arbitro|Alla fine le due squadre si sono strette la mano].",
                "Che cosa è successo dopo la partita?",
            ),
            (
                "La prossima partita sarà fra {2..4} settimane, [questa volta fuori casa|di nuovo "
                "in casa].",
                "Quando sarà la prossima partita?",
            ),
        ),
    ),
    Topic(
        "fiaba",
        {
            "heroine": "[mugnaia|sarta|pescatrice|cuoca|pastora] di nome [Camilla|Giulia|Marta|"
            "Nadia|Teresa]",
            "beast": "[un corvo sapiente|un lupo mansueto|un vecchissimo luccio|un maggiolino "
            "dorato]",
            "gift": "[un anello|una brocca|un mantello|un flauto|uno specchio]",
            "years": "{3..12} anni",
        },
        (
            (
                "C'era una volta una {heroine} che viveva sola da {years} ai margini del bosco.",
                "Dove viveva la protagonista?",
                "Da quanto tempo viveva sola?",
            ),
            (
                "[Una notte|Una mattina|Una sera d'inverno] incontrò {beast} che [era caduto in "
                "una trappola|tremava di fame|aveva dimenticato la strada di casa].",
                "Chi incontrò?",
            ),
            (
                "Poiché lei lo aiutò, lui le regalò {gift}.",
                "Che cosa ricevette?",
            ),
            (
                "Con quel dono [capiva che cosa dicevano gli alberi|ogni lavoro diventava facile|"
                "ritrovava ogni sentiero perduto].",
                "A che cosa serviva il dono?",
            ),
            (
                "Il re [voleva comprarlo|mandò tre cavalieri|le offrì un castello in cambio], ma "
                "lei [si mise a ridere|disse di no|lo nascose nel pozzo].",
                "Che cosa fece il re?",
            ),
            (
                "[Così restò libera per tutta la vita|In primavera partì, e nessuno la rivide|Da "
                "allora nessuno si è più perso in quel bosco].",
                "Come finisce la fiaba?",
            ),
        ),
    ),
)
