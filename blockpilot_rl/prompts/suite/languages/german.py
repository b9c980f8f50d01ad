"""German texts of the suite. Pure data."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.languages.german_topics import TOPICS
from blockpilot_rl.prompts.suite.languages.language import Language
from blockpilot_rl.prompts.suite.lexicon import words
from blockpilot_rl.prompts.suite.writer import Grammar

# Heroes and objects are in the accusative, places say where something is.
_GRAMMAR = Grammar(
    lexicon={
        "first": words(
            "Anna, Ben, Clara, David, Elif, Felix, Greta, Hannes, Ida, Jonas, Leon, Lotte, Mila, "
            "Nils, Olivia, Paul, Rosa, Samir, Tilda, Yusuf"
        ),
        "last": words(
            "Becker, Hoffmann, Kaya, Lehmann, Neumann, Petrov, Richter, Sommer, Vogel, Winkler, "
            "Ziegler, Brandt"
        ),
        "town": words(
            "Neustadt, Bergheim, Lindenau, Seeburg, Waldkirch, Steinbach, Rosental, Altdorf, "
            "Marktheim, Grünau"
        ),
        "city": words("Wien, Hamburg, Zürich, Leipzig, Köln, Rom, Lissabon, Prag, Kopenhagen"),
        "weekday": words("Montag, Dienstag, Mittwoch, Donnerstag, Freitag, Samstag, Sonntag"),
        "month": words(
            "Januar, Februar, März, April, Mai, Juni, Juli, August, September, Oktober, November, "
            "Dezember"
        ),
        "things": words(
            "Murmeln, Äpfel, Bücher, Stifte, Kekse, Karten, Birnen, Knöpfe, Muscheln, Briefmarken, "
            "Eier, Kerzen, Münzen, Blumen, Aufkleber"
        ),
        "product": words(
            "ein Rucksack, eine Lampe, ein Wecker, eine Trinkflasche, ein Zelt, ein Fahrradhelm, "
            "eine Tastatur, ein Regal, eine Regenjacke, ein Wasserkocher"
        ),
        "hero": words(
            "einen schüchternen Drachen, eine kluge Füchsin, einen alten Leuchtturmwärter, ein "
            "neugieriges Mädchen, einen vergesslichen Zauberer, eine mutige Bäckerin, einen "
            "einsamen Roboter, zwei ungleiche Schwestern, einen Igel mit Fernweh, eine Katze ohne "
            "Namen, einen jungen Gärtner, eine Pilotin im Ruhestand, ein Kind mit einem Geheimnis, "
            "einen Koch ohne Geschmackssinn, eine stille Bibliothekarin, einen müden Postboten"
        ),
        "place": words(
            "in einem kleinen Dorf, auf einer einsamen Insel, in einer verschneiten Stadt, in "
            "einem alten Schloss, auf einem Bauernhof, in einem Nachtzug, am Meer, in einer "
            "großen Bibliothek, hoch in den Bergen, auf einem Schiff, in einem Baumhaus, auf einem "
            "vergessenen Bahnhof"
        ),
        "object": words(
            "einen goldenen Schlüssel, eine alte Landkarte, einen verlorenen Brief, eine kaputte "
            "Uhr, ein sprechendes Buch, einen roten Regenschirm, eine leere Flasche, einen "
            "seltsamen Samen, eine kleine Laterne, ein Foto ohne Datum, einen Koffer voller Knöpfe"
        ),
        "season": words("den Frühling, den Sommer, den Herbst, den Winter"),
        "theme": words(
            "Freundschaft, Mut, Geduld, Ehrlichkeit, Heimweh, Neugier, Vertrauen, Hoffnung, "
            "Hilfsbereitschaft, Abschied"
        ),
        "concept": words(
            "die Schwerkraft, ein Regenbogen, die Fotosynthese, ein Vulkan, der Wasserkreislauf, "
            "die Inflation, ein Magnet, eine Impfung, ein Algorithmus, die Demokratie, ein "
            "Erdbeben, ein Kompass, eine Sonnenfinsternis, ein Gletscher, eine Batterie"
        ),
        "goal": words(
            "besser schlafen, Geld sparen, mehr lesen, früher aufstehen, Spanisch lernen, weniger "
            "Zeit am Handy verbringen, Tomaten anbauen, gesünder essen, ruhiger bleiben, Namen "
            "besser behalten"
        ),
        "animal": words(
            "ein Fuchs, eine Eule, ein Igel, ein Delfin, ein Eichhörnchen, eine Schildkröte, ein "
            "Pinguin, ein Biber, eine Biene, ein Wolf, ein Frosch, ein Elefant"
        ),
        "job": words(
            "eine Ärztin, ein Bäcker, eine Architektin, ein Lokführer, eine Gärtnerin, ein "
            "Dolmetscher, eine Richterin, ein Tischler, eine Programmiererin, ein Krankenpfleger"
        ),
        "food": words(
            "Kartoffelsuppe, Pfannkuchen, Apfelkuchen, Linsensuppe, Gemüsecurry, Nudelsalat, "
            "Roggenbrot, Rührei, Milchreis, Tomatensoße"
        ),
        "hobby": words(
            "Schwimmen, Malen, Gärtnern, Wandern, Kochen, Stricken, Fotografieren, Radfahren, "
            "Tanzen, Töpfern"
        ),
    },
    requests=(
        *["{upper}."] * 4,
        "Bitte {lower}.",
        "{upper}, bitte.",
        "Hallo! Bitte {lower}.",
        "Deine Aufgabe: {upper}.",
    ),
    quoting_requests=(*["{upper}"] * 3, "Bitte {lower}"),
)

LANGUAGE = Language(
    code="de",
    grammar=_GRAMMAR,
    problems=(
        "{who} hat {20..90} {things} und [schenkt {friend} {2..11} davon|verliert {2..11} davon|"
        "verkauft {2..11} davon]. Wie viele {things} hat {who} noch?",
        "{who} kauft {2..12} {things} für je {2..15} Euro. [Was kostet das zusammen?|Wie viel "
        "bleibt von 200 Euro übrig?]",
        "In eine Kiste passen {3..24} {things}. Wie viele {things} passen in {2..15} Kisten?",
        "Ein [Zug|Bus|Auto] fährt {3..12}0 Kilometer in der Stunde. Welche Strecke legt das "
        "Fahrzeug in {2..9} Stunden zurück?",
        "{who} liest jeden Tag {5..40} Seiten. Wie lange braucht {who} für ein Buch mit "
        "{1..6}{0..9}0 Seiten?",
        "In einem Laden kostet {product} {2..9}0 Euro. Der Preis [steigt|sinkt] um {1..9}0 "
        "Prozent. Wie hoch ist der neue Preis?",
        "{who} ist {5..15} Jahre alt, {friend} ist {2..4}-mal so alt. Wie alt sind beide zusammen?",
        "Ein Garten ist {3..30} Meter lang und {2..20} Meter breit. Wie groß ist [seine Fläche|"
        "sein Umfang]?",
        "{who} spart jede Woche {3..30} Euro. Wie viel Geld ist das nach {4..30} Wochen?",
        "Ein Film beginnt um {17..20}:[00|15|30|45] Uhr und dauert {80..150} Minuten. Wann endet "
        "er?",
        "Für {2..4} Personen braucht man {2..9}00 Gramm Mehl. Wie viel Mehl braucht man für "
        "{5..12} Personen?",
        "{who} und {friend} sammeln {things}. {who} hat {30..80}, {friend} hat {3..20} [mehr|"
        "weniger]. Wie viele haben beide zusammen?",
        "In einer Klasse sind {15..32} Kinder, {3..9} davon [tragen eine Brille|spielen ein "
        "Instrument|haben ein Haustier]. Auf wie viele trifft das nicht zu?",
        "Am Morgen sind es {3..20} Grad, bis zum Mittag wird es um {2..14} Grad [wärmer|kälter]. "
        "Wie warm ist es dann?",
        "Ein Seil von {20..95} Metern wird in Stücke von {2..9} Metern geschnitten. Wie viele "
        "Stücke gibt es, und wie viel bleibt übrig?",
        "Eine Bäuerin pflanzt {3..20} Reihen mit je {4..25} Tulpen. Wie viele Tulpen sind das?",
    ),
    calculations=(
        "Was ist {sum}?",
        "Wie viel ist {sum}?",
        "Berechne {sum}.",
        "Rechne {sum} Schritt für Schritt aus.",
        "Wie rechnet man {sum}? Erkläre es einem Kind.",
        "Löse diese Aufgabe: {sum}",
        "Ist {sum} größer als {2..9}00?",
    ),
    tasks=(
        "schreibe das Einmaleins der {3..25} auf",
        "zähle rückwärts von {20..99} bis {2..15}",
        "nenne die ersten {5..15} Vielfachen von {3..30}",
        "schreibe die Zahlen von {1..40} bis {50..60} in Worten",
        "ordne diese Zahlen der Größe nach: {1..99}, {1..99}, {1..99}, {1..99}, {1..99}",
        "rechne {2..90} [Kilometer in Meter|Stunden in Minuten|Kilogramm in Gramm|Wochen in Tage] "
        "um",
        "verdopple {4..9}-mal die Zahl {2..15} und schreibe jedes Ergebnis auf",
        "finde den Mittelwert von {3..30}, {3..30}, {3..30} und {3..30}",
    ),
    calculation_styles=(
        "",
        "",
        " Zeige den Rechenweg.",
        " Rechne Schritt für Schritt.",
        " Nenne nur das Ergebnis.",
        " Antworte in einem ganzen Satz.",
        " Prüfe am Ende das Ergebnis.",
    ),
    questions=(
        "Was ist {concept}?",
        "[Kannst du mir erklären|Weißt du], was {concept} ist?",
        "Warum lernt man in der Schule, was {concept} ist?",
        "Wie kann ich {goal}?",
        "Was hilft Menschen, die {goal} wollen?",
        "Was frisst {animal}, und wo lebt so ein Tier?",
        "[Wie alt wird|Wie groß wird|Wie viel schläft] {animal}?",
        "Was macht {job} den ganzen Tag?",
        "Welche Ausbildung braucht {job}?",
        "Wie macht man {food}?",
        "Welche Zutaten brauche ich für {food}, und wie lange dauert es?",
        "Wie fange ich mit dem {hobby} an?",
        "Was brauche ich zum {hobby}, und was kostet das?",
        "Was kann man an einem Wochenende in {city} unternehmen?",
        "[Wann ist die beste Zeit für eine Reise nach {city}?|Wie kommt man in {city} am besten "
        "von Ort zu Ort?]",
    ),
    answer_styles=(
        "",
        "",
        " Antworte in einem Satz.",
        " Antworte kurz.",
        " Begründe deine Antwort.",
        " Verwende einfache Wörter.",
        " Antworte mit höchstens {3..8}0 Wörtern.",
    ),
    layouts=(
        "{text}\n\n{question}",
        "{text}\n\nFrage: {question}\nAntwort:",
        "Lies den Text und beantworte die Frage.\n\n{text}\n\n{question}",
        "{question}\n\n{text}",
        "Text: {text}\nFrage: {question}",
    ),
    stories=(
        "schreibe eine [kurze|lustige|spannende|ruhige|traurige] Geschichte über {hero}",
        "schreibe eine Geschichte über {hero}, die {place} spielt",
        "erzähle [mir|einem Kind] eine Gutenachtgeschichte über {hero}",
        "erzähle in [drei|vier|fünf|sechs] Sätzen eine Geschichte über {hero} und {object}",
        "schreibe ein [kurzes|vierzeiliges|gereimtes|heiteres] Gedicht über [{hero}|{theme}|"
        "{season}|{object}]",
        "schreibe den [ersten|letzten] Absatz einer [spannenden|lustigen|stillen] Geschichte über "
        "{hero}",
        "schreibe eine Fabel über {theme}, in der {animal} und {animal2} vorkommen",
        "schreibe einen Brief an [eine alte Freundin|die Großeltern|einen Nachbarn] über [einen "
        "Ausflug nach {city}|ein Wochenende {place}|{theme}]",
        "schreibe ein Gespräch, in dem {first} und {first2} über [{object}|{theme}|{season}] reden",
        "schreibe einen Tagebucheintrag über einen [stillen|seltsamen|glücklichen] Tag {place}",
        "beschreibe in [drei|vier|fünf] Sätzen einen [Morgen|Abend|Wintertag] {place}",
        "erfinde eine Figur, die {place} lebt, und beschreibe ihren Alltag",
        "setze diese Geschichte fort: {opening}",
        "schreibe eine Geschichte, die mit diesem Satz beginnt: {opening}",
    ),
    openings=(
        "An einem [Morgen|Abend|Nachmittag] im {month} fand {first} {object}.",
        "Es regnete schon seit {3..40} Tagen, als {first} {object} entdeckte.",
        "{first} hatte nur noch {2..9} Minuten Zeit.",
        "Der Brief war an {first} adressiert, aber {first2} öffnete ihn.",
        "Als das Licht ausging, hörte {first} Schritte auf der Treppe.",
        "Seit {2..30} Jahren wohnte {first} {place}, und nie war etwas geschehen.",
        "Am letzten Tag im {month} schloss {first2} den Laden für immer.",
    ),
    story_styles=(
        "",
        "",
        " Verwende einfache Wörter.",
        " Schreibe höchstens {5..15}0 Wörter.",
        " Füge einen Titel hinzu.",
        " Das Ende soll überraschen.",
        " Schreibe in kurzen Sätzen.",
    ),
    summaries=(
        "fasse den Text in [einem Satz|zwei Sätzen|drei Sätzen|höchstens {2..4}0 Wörtern|eigenen "
        "Worten] zusammen",
        "nenne die [zwei|drei] wichtigsten [Punkte|Angaben] in diesem Text[ als Liste| in "
        "Stichworten|]",
        "gib dem Text [eine Überschrift|einen Titel|drei mögliche Überschriften]",
        "schreibe eine [kurze|sehr kurze] Zusammenfassung [dieses Textes|für Kinder|für jemanden "
        "mit wenig Zeit]",
        "kürze den Text auf die Hälfte",
        "schreibe den Text in einfacher Sprache neu",
        "mache aus dem Text [eine Kurznachricht|eine kurze E-Mail|eine Schlagzeile|eine Durchsage|"
        "drei Stichpunkte]",
        "sage in [einem Satz|wenigen Worten], worum es in dem Text geht",
    ),
    label="Text",
    topics=TOPICS,
)
