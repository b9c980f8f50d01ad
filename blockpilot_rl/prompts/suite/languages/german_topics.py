"""What German passages are about. Pure data."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.topic import Topic

TOPICS = (
    Topic(
        "Aushang",
        {
            "fest": "[Sommerfest|Straßenfest|Weinfest|Hafenfest|Lichterfest|Erntefest]",
            "place": "[auf dem Marktplatz|im Stadtpark|vor dem Rathaus|auf dem Schulhof|am alten "
            "Bahnhof]",
            "date": "{2..28}. {month}",
            "time": "{10..18} Uhr",
            "price": "{2..9} Euro",
            "host": "{first} {last}",
        },
        (
            (
                "Am {date} [findet {place} das {fest} von {town} statt|lädt {town} zum {fest} ein, "
                "und zwar {place}].",
                "An welchem Tag ist das {fest}?",
                "Wo wird gefeiert?",
            ),
            (
                "[Los geht es um {time}|Beginn ist um {time}|Um {time} wird es eröffnet], [das "
                "Ende ist offen|gefeiert wird bis in den späten Abend].",
                "Um wie viel Uhr beginnt das {fest}?",
            ),
            (
                "Der Eintritt kostet {price}, [für Kinder ist er frei|Mitglieder des Vereins "
                "zahlen die Hälfte].",
                "Wie viel kostet der Eintritt?",
            ),
            (
                "[Eine Band aus dem Nachbarort spielt zum Tanz|Der Chor der Schule singt drei "
                "Lieder|Für die Kleinen gibt es ein Puppentheater].",
                "Was wird den Gästen geboten?",
            ),
            (
                "Bei Regen [ziehen alle in die Turnhalle um|wird im Gemeindehaus gefeiert|wird das "
                "Fest um eine Woche verschoben].",
                "Was geschieht, wenn es regnet?",
            ),
            (
                "Wer beim Aufbau helfen möchte, meldet sich bis {weekday} bei {host}.",
                "Bei wem melden sich Leute, die helfen wollen?",
            ),
        ),
    ),
    Topic(
        "Suchanzeige",
        {
            "pet": "[Momo|Fritzi|Krümel|Tiger|Moritz|Mogli|Schnurri]",
            "look": "[grau getigert|ganz schwarz|schwarz-weiß gefleckt|rot mit weißen Pfoten]",
            "street": "[in der Gartenstraße|am Mühlenweg|in der Schulgasse|am Kirchplatz]",
            "weekday": "{weekday}",
            "reward": "{2..9}0 Euro",
            "owner": "{first} {last}",
        },
        (
            (
                "Unser Kater {pet} ist seit {weekday} [verschwunden|nicht mehr nach Hause "
                "gekommen].",
                "Seit wann ist {pet} weg?",
                "Wie heißt der Kater?",
            ),
            (
                "Er ist {look} und [trägt ein rotes Halsband|hat eine kleine Narbe am Ohr|hinkt "
                "ein wenig].",
                "Wie sieht der Kater aus?",
            ),
            (
                "Zuletzt wurde er {street} gesehen, [wo er gern auf Mauern sitzt|als er einer Maus "
                "nachlief|bevor das Gewitter kam].",
                "Wo wurde {pet} zuletzt gesehen?",
            ),
            (
                "[Bitte seht in Kellern und Schuppen nach|Bitte schaut auch in euren Garagen "
                "nach|Bitte lauft ihm nicht hinterher, er ist scheu].",
                "Worum werden die Nachbarn gebeten?",
            ),
            (
                "Wer ihn findet, bekommt {reward} [Belohnung|Finderlohn][ und einen Kuchen|].",
                "Wie hoch ist die Belohnung?",
            ),
            ("Hinweise nimmt {owner} [jederzeit|ab acht Uhr|auch nachts] entgegen.", "Wer sucht?"),
        ),
    ),
    Topic(
        "Reisebericht",
        {
            "teacher": "[Frau|Herr] {last}",
            "count": "{15..30} Kinder",
            "goal": "[einer Burg|einer Tropfsteinhöhle|einem Freilichtmuseum|einer Käserei|einer "
            "Sternwarte]",
            "hours": "{2..4} Stunden",
            "kilometres": "{4..14} Kilometer",
            "month": "{month}",
        },
        (
            (
                "Im {month} fuhren {count} aus {town} mit dem Zug zu {goal}.",
                "Wohin ging die Fahrt?",
                "Wie viele Kinder fuhren mit?",
            ),
            (
                "Die Fahrt dauerte {hours}, [weil der Zug auf freier Strecke hielt|obwohl sie "
                "umsteigen mussten|und alle sangen].",
                "Wie lange dauerte die Fahrt?",
            ),
            (
                "Danach wanderten sie {kilometres} [durch einen Buchenwald|an einem Bach entlang|"
                "über einen Hügel].",
                "Wie weit wanderte die Gruppe?",
            ),
            (
                "[Ein Junge verlor seinen Rucksack, fand ihn aber wieder|Zwei Kinder zählten "
                "unterwegs alle Vögel|Mittags gab es Brot und Äpfel auf einer Wiese].",
                "Was geschah unterwegs?",
            ),
            (
                "{teacher} [erklärte alles sehr geduldig|machte über hundert Fotos|hatte eine "
                "Schatzsuche vorbereitet].",
                "Was tat {teacher}?",
            ),
            (
                "[Am Abend kamen alle müde, aber zufrieden nach Hause|Auf der Rückfahrt schliefen "
                "die meisten|Nächstes Jahr wollen sie wieder dorthin].",
                "Wie endete der Tag?",
            ),
        ),
    ),
    Topic(
        "Produkttext",
        {
            "name": "[Alpina|Nordwind|Tara|Luma|Kompass] {100..900}",
            "litres": "0,{4..9} Liter",
            "hours": "{6..24} Stunden",
            "price": "{12..49} Euro",
            "color": "[Blau|Dunkelgrün|Silber|Rot|Schwarz]",
            "years": "{2..5} Jahre",
        },
        (
            (
                "Die Thermosflasche {name} fasst {litres} und [passt in jede Fahrradtasche|ist "
                "leichter als ein Buch|steht auch auf unebenem Boden fest].",
                "Wie viel passt in die Flasche?",
            ),
            (
                "Getränke bleiben {hours} lang [heiß|warm] und [doppelt so lange kalt|auch im "
                "Sommer kühl].",
                "Wie lange bleiben Getränke warm?",
            ),
            (
                "Der [Deckel|Verschluss] lässt sich [mit einer Hand öffnen|als Becher benutzen|in "
                "der Spülmaschine reinigen].",
                "Was ist das Besondere am Verschluss?",
            ),
            (
                "Es gibt sie in {color} [und in drei weiteren Farben|und in Weiß]; sie kostet "
                "{price}.",
                "Was kostet die Flasche?",
                "In welchen Farben gibt es sie?",
            ),
            (
                "Der Hersteller gibt {years} Garantie[, auch auf den Deckel|, wenn man den "
                "Kassenzettel aufhebt|].",
                "Wie lange gilt die Garantie?",
            ),
            (
                "[Nicht geeignet ist sie für kohlensäurehaltige Getränke|In die Mikrowelle darf "
                "sie nicht|Vor dem ersten Gebrauch sollte man sie ausspülen].",
                "Was muss man beachten?",
            ),
        ),
    ),
    Topic(
        "Spielbericht",
        {
            "home": "[SV|TSV|FC] {town}",
            "guest": "[SV|TSV|FC] {city}",
            "score": "{3..5} zu {0..2}",
            "striker": "{first} {last}",
            "minute": "{5..40}. Minute",
            "crowd": "{2..9}00 Zuschauer",
        },
        (
            (
                "Am {weekday} gewann der {home} mit {score} gegen den {guest}.",
                "Wie ging das Spiel aus?",
                "Wer waren die Gegner?",
            ),
            (
                "Das erste Tor schoss {striker} in der {minute}[, obwohl der Ball schon verloren "
                "schien|, und zwar mit dem Kopf|].",
                "Wer schoss das erste Tor?",
                "In welcher Minute fiel das erste Tor?",
            ),
            (
                "{crowd} [sangen trotz des Regens|standen dicht an dicht|pfiffen erst und jubelten "
                "dann].",
                "Wie viele Zuschauer waren da?",
            ),
            (
                "Nach der Pause [wurde das Spiel ruppiger|hielt der Torwart einen Elfmeter|"
                "wechselte der Trainer dreimal].",
                "Was geschah nach der Pause?",
            ),
            (
                "[Der Trainer lobte vor allem die Abwehr|Die Gäste beschwerten sich über den "
                "Schiedsrichter|Beide Mannschaften gaben sich am Ende die Hand].",
                "Was war nach dem Spiel?",
            ),
            (
                "Das nächste Spiel ist in {2..4} Wochen, [diesmal auswärts|wieder zu Hause].",
                "Wann ist das nächste Spiel?",
            ),
        ),
    ),
    Topic(
        "Märchen",
        {
            "hero": "[Müllerin|Schneiderin|Fischerin|Köchin|Hirtin] namens [Clara|Mila|Rosa|Tilda|"
            "Lotte]",
            "beast": "[einen sprechenden Raben|einen zahmen Wolf|einen uralten Hecht|einen "
            "goldenen Käfer]",
            "gift": "[einen Ring|einen Krug|einen Mantel|eine Flöte|einen Spiegel]",
            "years": "{3..12} Jahre",
        },
        (
            (
                "Es war einmal eine {hero}, die lebte {years} lang allein am Rand des Waldes.",
                "Wo lebte die Heldin?",
                "Wie lange lebte sie allein?",
            ),
            (
                "Eines [Nachts|Morgens|Winters] traf sie {beast}, der [in eine Falle geraten war|"
                "vor Hunger zitterte|den Heimweg vergessen hatte].",
                "Wen traf sie?",
            ),
            (
                "Weil sie ihm half, schenkte er ihr {gift}.",
                "Was bekam sie geschenkt?",
            ),
            (
                "[Damit konnte sie hören, was die Bäume sagten|Damit wurde jede Arbeit leicht|"
                "Damit fand sie jeden verlorenen Weg].",
                "Was konnte das Geschenk?",
            ),
            (
                "Der König [wollte ihr das Geschenk abkaufen|schickte drei Ritter|bot ihr ein "
                "ganzes Schloss dafür], aber sie [lachte nur|sagte nein|versteckte das Geschenk im "
                "Brunnen].",
                "Was wollte der König?",
            ),
            (
                "[Und so blieb sie frei bis an ihr Lebensende|Im Frühling zog sie weiter, und "
                "niemand sah sie wieder|Seitdem ist in jenem Wald niemand mehr verloren gegangen].",
                "Wie endet das Märchen?",
            ),
        ),
    ),
)
