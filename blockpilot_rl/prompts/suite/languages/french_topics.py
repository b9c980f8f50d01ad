"""What French passages are about. Pure data."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.topic import Topic

TOPICS = (
    Topic(
        "affiche",
        {
            "event": "fête [de l'été|des lumières|du port|des vendanges|de la musique|de quartier]",
            "place": "[sur la place du marché|dans le parc municipal|devant la mairie|dans la cour "
            "de l'école|près de l'ancienne gare]",
            "date": "{2..28} {month}",
            "time": "{10..18} heures",
            "price": "{2..9} euros",
            "host": "{first} {last}",
        },
        (
            (
                "[Le {date}, la {event} de {town} aura lieu {place}|{town} vous invite à la "
                "{event}, le {date}, {place}].",
                "Quel jour a lieu la {event} ?",
                "Où se tient la fête ?",
            ),
            (
                "[Elle commence à {time}|Le coup d'envoi sera donné à {time}|L'ouverture est "
                "prévue à {time}], [et on dansera jusque tard dans la nuit|avec un discours de la "
                "maire|quel que soit le temps].",
                "À quelle heure commence la fête ?",
            ),
            (
                "L'entrée coûte {price}, [mais elle est gratuite pour les enfants|et la moitié "
                "pour les membres de l'association].",
                "Combien coûte l'entrée ?",
            ),
            (
                "[Un groupe de la région fera danser le public|La chorale de l'école chantera "
                "trois chansons|Un théâtre de marionnettes attend les plus petits].",
                "Que propose-t-on aux visiteurs ?",
            ),
            (
                "S'il pleut, [tout se passera dans le gymnase|on fêtera dans la salle communale|"
                "le concert sera annulé].",
                "Que se passera-t-il s'il pleut ?",
            ),
            (
                "Pour aider à l'installation, il faut s'inscrire avant {weekday} auprès de {host}.",
                "Auprès de qui peut-on s'inscrire ?",
            ),
        ),
    ),
    Topic(
        "avis de recherche",
        {
            "pet": "[Mistigri|Caramel|Réglisse|Minou|Gribouille|Pacha|Moustache]",
            "look": "[gris tigré|tout noir|noir et blanc|roux avec des pattes blanches]",
            "street": "[rue des Jardins|chemin du Moulin|rue de l'École|place de l'Église]",
            "weekday": "{weekday}",
            "reward": "{2..9}0 euros",
            "owner": "{first} {last}",
        },
        (
            (
                "Notre chat {pet} [a disparu|n'est pas rentré à la maison] depuis {weekday}.",
                "Depuis quand {pet} a-t-il disparu ?",
                "Comment s'appelle le chat ?",
            ),
            (
                "Il est {look} et [porte un collier rouge|a une petite cicatrice à l'oreille|boite "
                "un peu].",
                "À quoi ressemble le chat ?",
            ),
            (
                "On l'a vu pour la dernière fois {street}, [où il aime s'asseoir sur les murs|"
                "alors qu'il suivait une souris|juste avant l'orage].",
                "Où a-t-on vu {pet} pour la dernière fois ?",
            ),
            (
                "[Regardez, s'il vous plaît, dans vos caves et vos garages|Ne courez pas après "
                "lui, car il est craintif|Pensez à ouvrir vos cabanes de jardin].",
                "Que demande-t-on aux voisins ?",
            ),
            (
                "La personne qui le retrouvera recevra {reward}[ et un gâteau|].",
                "Quelle est la récompense ?",
            ),
            (
                "[Vous pouvez appeler|Merci d'appeler] {owner} [à toute heure|après huit heures|"
                "même la nuit].",
                "Qui faut-il appeler ?",
            ),
        ),
    ),
    Topic(
        "récit de voyage",
        {
            "teacher": "[Madame|Monsieur] {last}",
            "count": "{15..30} élèves",
            "goal": "[un château fort|une grotte|un musée en plein air|une fromagerie|un "
            "observatoire]",
            "hours": "{2..4} heures",
            "kilometres": "{4..14} kilomètres",
            "month": "{month}",
        },
        (
            (
                "En {month}, {count} de {town} sont partis en train pour visiter {goal}.",
                "Qu'ont visité les élèves ?",
                "Combien d'élèves sont partis ?",
            ),
            (
                "Le trajet a duré {hours}, [car le train s'est arrêté en pleine campagne|avec un "
                "seul changement|et tout le monde chantait].",
                "Combien de temps a duré le trajet ?",
            ),
            (
                "Ensuite, le groupe a marché {kilometres} [dans une forêt de hêtres|le long d'un "
                "ruisseau|à travers les collines].",
                "Quelle distance le groupe a-t-il parcourue à pied ?",
            ),
            (
                "[Un garçon a perdu son sac, puis l'a retrouvé|Deux enfants ont compté tous les "
                "oiseaux|À midi, on a mangé du pain et des pommes dans un pré].",
                "Que s'est-il passé en chemin ?",
            ),
            (
                "{teacher} [a tout expliqué avec patience|a pris plus de cent photos|avait préparé "
                "une chasse au trésor].",
                "Qu'a fait {teacher} ?",
            ),
            (
                "[Le soir, tout le monde est rentré fatigué mais content|Au retour, presque tous "
                "dormaient|L'an prochain, ils veulent y retourner].",
                "Comment la journée s'est-elle terminée ?",
            ),
        ),
    ),
    Topic(
        "fiche produit",
        {
            "name": "[Alpina|Mistral|Tara|Luma|Boréale] {100..900}",
            "litres": "0,{4..9} litre",
            "hours": "{6..24} heures",
            "price": "{12..49} euros",
            "color": "[bleu|vert foncé|argent|rouge|noir]",
            "years": "{2..5} ans",
        },
        (
            (
                "La gourde isotherme {name} contient {litres} et [se glisse dans toutes les "
                "sacoches de vélo|pèse moins qu'un livre|tient debout même sur un sol inégal].",
                "Quelle est la contenance de la gourde ?",
            ),
            (
                "Les boissons y restent chaudes pendant {hours} et [fraîches deux fois plus "
                "longtemps|fraîches même en été].",
                "Combien de temps les boissons restent-elles chaudes ?",
            ),
            (
                "Le bouchon [s'ouvre d'une seule main|sert aussi de tasse|passe au "
                "lave-vaisselle].",
                "Qu'a le bouchon de particulier ?",
            ),
            (
                "Elle existe en {color} [et en trois autres couleurs|et en blanc], et elle coûte "
                "{price}.",
                "Combien coûte la gourde ?",
                "En quelles couleurs existe-t-elle ?",
            ),
            (
                "Le fabricant offre une garantie de {years}[, bouchon compris|, à condition de "
                "garder le ticket de caisse|].",
                "Combien de temps dure la garantie ?",
            ),
            (
                "[Elle ne convient pas aux boissons gazeuses|Elle ne va pas au micro-ondes|Il faut "
                "la rincer avant la première utilisation].",
                "À quoi faut-il faire attention ?",
            ),
        ),
    ),
    Topic(
        "compte rendu de match",
        {
            "home": "{town}",
            "guest": "{city}",
            "score": "{3..5} à {0..2}",
            "striker": "{first} {last}",
            "minute": "{5..40}e minute",
            "crowd": "{2..9}00 spectateurs",
        },
        (
            (
                "{weekday} dernier, l'équipe de {home} a battu celle de {guest} {score}.",
                "Quel est le score du match ?",
                "Qui a joué contre qui ?",
            ),
            (
                "Le premier but a été marqué par {striker} à la {minute}[, alors que le ballon "
                "semblait perdu|, d'un coup de tête|].",
                "Qui a marqué le premier but ?",
                "À quelle minute le premier but a-t-il été marqué ?",
            ),
            (
                "{crowd} [chantaient malgré la pluie|se serraient dans les tribunes|ont d'abord "
                "sifflé, puis applaudi].",
                "Combien y avait-il de spectateurs ?",
            ),
            (
                "Après la pause, [le jeu est devenu plus dur|le gardien a arrêté un penalty|"
                "l'entraîneur a fait trois changements].",
                "Que s'est-il passé après la pause ?",
            ),
            (
                "[L'entraîneur a surtout félicité la défense|Les visiteurs se sont plaints de "
                "l'arbitre|À la fin, les deux équipes se sont serré la main].",
                "Que s'est-il passé après le match ?",
            ),
            (
                "Le prochain match aura lieu dans {2..4} semaines, [cette fois à l'extérieur|de "
                "nouveau à domicile].",
                "Quand aura lieu le prochain match ?",
            ),
        ),
    ),
    Topic(
        "conte",
        {
            "heroine": "[meunière|couturière|pêcheuse|cuisinière|bergère] nommée [Jeanne|Léa|Zoé|"
            "Manon|Sophie]",
            "beast": "[un corbeau savant|un loup apprivoisé|un très vieux brochet|un scarabée "
            "doré]",
            "gift": "[un anneau|une cruche|un manteau|une flûte|un miroir]",
            "years": "{3..12} ans",
        },
        (
            (
                "Il était une fois une {heroine} qui vivait seule depuis {years} à l'orée de la "
                "forêt.",
                "Où vivait l'héroïne ?",
                "Depuis combien de temps vivait-elle seule ?",
            ),
            (
                "[Une nuit|Un matin|Un soir d'hiver], elle rencontra {beast} qui [était pris dans "
                "un piège|tremblait de faim|avait oublié le chemin du retour].",
                "Qui rencontra-t-elle ?",
            ),
            (
                "Comme elle l'avait aidé, il lui offrit {gift}.",
                "Que reçut-elle ?",
            ),
            (
                "Grâce à ce cadeau, [elle comprenait ce que disaient les arbres|tout travail "
                "devenait facile|elle retrouvait tous les chemins perdus].",
                "À quoi servait le cadeau ?",
            ),
            (
                "Le roi [voulut le lui acheter|envoya trois chevaliers|lui proposa un château en "
                "échange], mais elle [se contenta de rire|refusa|cacha le cadeau dans le puits].",
                "Que fit le roi ?",
            ),
            (
                "[C'est ainsi qu'elle resta libre toute sa vie|Au printemps, elle partit, et "
                "personne ne la revit|Depuis, personne ne s'est plus jamais perdu dans cette "
                "forêt].",
                "Comment finit le conte ?",
            ),
        ),
    ),
)
