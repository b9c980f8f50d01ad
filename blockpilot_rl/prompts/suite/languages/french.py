"""French texts of the suite. Pure data."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.languages.french_topics import TOPICS
from blockpilot_rl.prompts.suite.languages.language import Language
from blockpilot_rl.prompts.suite.lexicon import words
from blockpilot_rl.prompts.suite.writer import Grammar

# What may follow "de" or "que" begins with a consonant; what follows "d'" begins with "un" or
# "une".
_GRAMMAR = Grammar(
    lexicon={
        "first": words(
            "Bruno, Camille, Chloé, David, Fanny, Gaspard, Jeanne, Julie, Karim, Léa, Lucas, "
            "Manon, Marius, Nadia, Paul, Rachid, Sophie, Théo, Victor, Zoé"
        ),
        "last": words(
            "Bernard, Carpentier, Dubois, Fontaine, Garnier, Lambert, Marchand, Perrin, Roussel, "
            "Tessier, Vasseur, Noël"
        ),
        "town": words(
            "Valmont, Bellerive, Montclair, Rochebrune, Pontvieux, Fontenay, Grandpré, Clairval, "
            "Beaulieu, Saint-Martin"
        ),
        "city": words("Vienne, Hambourg, Zurich, Genève, Lyon, Rome, Lisbonne, Prague, Copenhague"),
        "weekday": words("lundi, mardi, mercredi, jeudi, vendredi, samedi, dimanche"),
        "month": words(
            "janvier, février, mars, avril, mai, juin, juillet, août, septembre, octobre, "
            "novembre, décembre"
        ),
        "things": words(
            "billes, crayons, pommes, poires, livres, cartes, bonbons, boutons, coquillages, "
            "timbres, bougies, pièces, fleurs, biscuits, noix"
        ),
        "product": words(
            "un sac à dos, une lampe, un réveil, une gourde, une tente, un casque de vélo, un "
            "clavier, une étagère, un imperméable, une bouilloire"
        ),
        "hero": words(
            "un dragon timide, une renarde rusée, un vieux gardien de phare, une fillette "
            "curieuse, un magicien distrait, une boulangère courageuse, un robot solitaire, une "
            "famille de hérissons, une chatte sans nom, un jeune jardinier, une pilote à la "
            "retraite, un enfant qui garde un secret, un cuisinier sans odorat, une "
            "bibliothécaire silencieuse, un facteur fatigué"
        ),
        "place": words(
            "dans un petit village, sur une île déserte, dans une ville enneigée, dans un vieux "
            "château, dans une ferme, dans un train de nuit, au bord de la mer, dans une grande "
            "bibliothèque, en haute montagne, sur un bateau, dans une cabane perchée, dans une "
            "gare oubliée"
        ),
        "object": words(
            "une clé en or, une vieille carte, une lettre perdue, une montre cassée, un livre qui "
            "parle, un parapluie rouge, une bouteille vide, une graine étrange, une petite "
            "lanterne, une photo sans date, une valise pleine de boutons"
        ),
        "season": words("le printemps, l'été, l'automne, l'hiver"),
        "theme": words(
            "l'amitié, le courage, la patience, l'honnêteté, la nostalgie, la curiosité, la "
            "confiance, l'espoir, l'entraide, le départ"
        ),
        "concept": words(
            "la gravité, un arc-en-ciel, la photosynthèse, un volcan, le cycle de l'eau, "
            "l'inflation, un aimant, un vaccin, un algorithme, la démocratie, un tremblement de "
            "terre, une boussole, une éclipse, un glacier, une pile"
        ),
        "goal": words(
            "mieux dormir, économiser de l'argent, lire davantage, apprendre l'espagnol, passer "
            "moins de temps devant un écran, cultiver des tomates, manger plus sainement, rester "
            "calme, retenir les prénoms, courir plus longtemps"
        ),
        "animal": words(
            "un renard, une chouette, un hérisson, un dauphin, un écureuil, une tortue, un "
            "manchot, un castor, une abeille, un loup, une grenouille, un éléphant"
        ),
        "job": words(
            "une médecin, un boulanger, une architecte, un conducteur de train, une jardinière, un "
            "interprète, une juge, un menuisier, une programmeuse, un infirmier"
        ),
        "food": words(
            "une soupe de pommes de terre, des crêpes, une tarte aux pommes, une soupe de "
            "lentilles, un curry de légumes, une salade de pâtes, du pain de seigle, une omelette, "
            "du riz au lait, une sauce tomate"
        ),
        "hobby": words(
            "la natation, la peinture, le jardinage, la randonnée, la cuisine, le tricot, la "
            "photographie, le vélo, la danse, la poterie"
        ),
    },
    requests=(
        *["{upper}."] * 4,
        "S'il te plaît, {lower}.",
        "{upper}, s'il te plaît.",
        "Bonjour ! {upper}.",
        "Voici ta tâche : {lower}.",
    ),
    quoting_requests=(*["{upper}"] * 3, "S'il te plaît, {lower}"),
)

LANGUAGE = Language(
    code="fr",
    grammar=_GRAMMAR,
    problems=(
        "{who} a {20..90} {things} et [en donne {2..11} à {friend}|en perd {2..11}|en vend "
        "{2..11}]. Combien de {things} reste-t-il à {who} ?",
        "{who} achète {2..12} {things} à {2..15} euros pièce. [Combien cela coûte-t-il en tout ?|"
        "Combien reste-t-il sur 200 euros ?]",
        "Une caisse contient {3..24} {things}. Combien de {things} y a-t-il dans {2..15} caisses ?",
        "[Un train|Un car|Une voiture] roule à {3..12}0 kilomètres à l'heure. Quelle distance ce "
        "véhicule parcourt-il en {2..9} heures ?",
        "{who} lit {5..40} pages par jour. Combien de jours faut-il pour lire un livre de "
        "{1..6}{0..9}0 pages ?",
        "Dans un magasin, {product} coûte {2..9}0 euros. Le prix [augmente|baisse] de {1..9}0 pour "
        "cent. Quel est le nouveau prix ?",
        "{who} a {5..15} ans et {friend} a {2..4} fois cet âge. Quelle est la somme de leurs "
        "âges ?",
        "Un jardin mesure {3..30} mètres de long et {2..20} mètres de large. [Quelle est sa "
        "surface ?|Quel est son périmètre ?]",
        "{who} met de côté {3..30} euros par semaine. Combien cela fait-il au bout de {4..30} "
        "semaines ?",
        "Un film commence à {17..20} h [00|15|30|45] et dure {80..150} minutes. À quelle heure "
        "finit-il ?",
        "Pour {2..4} personnes, il faut {2..9}00 grammes de farine. Combien en faut-il pour "
        "{5..12} personnes ?",
        "{who} et {friend} collectionnent les {things}. {who} en a {30..80} et {friend} en a "
        "{3..20} de [plus|moins]. Combien y en a-t-il en tout ?",
        "Dans une classe de {15..32} élèves, {3..9} [portent des lunettes|jouent d'un instrument|"
        "ont un animal]. Pour combien d'élèves n'est-ce pas le cas ?",
        "Le matin, il fait {3..20} degrés ; à midi, il fait {2..14} degrés de [plus|moins]. Quelle "
        "est alors la température ?",
        "On coupe une corde de {20..95} mètres en morceaux de {2..9} mètres. Combien de morceaux "
        "obtient-on, et que reste-t-il ?",
        "Une fermière plante {3..20} rangées de {4..25} tulipes. Combien de tulipes cela fait-il ?",
    ),
    calculations=(
        "Combien font {sum} ?",
        "Quel est le résultat de {sum} ?",
        "Calcule {sum}.",
        "Calcule {sum} étape par étape.",
        "Comment calcule-t-on {sum} ? Explique-le à un enfant.",
        "Trouve la valeur de {sum}.",
        "Est-ce que {sum} dépasse {2..9}00 ?",
    ),
    tasks=(
        "écris la table de multiplication de {3..25}",
        "compte à rebours de {20..99} à {2..15}",
        "donne les {5..15} premiers multiples de {3..30}",
        "écris en lettres les nombres de {2..40} à {50..60}",
        "range ces nombres du plus petit au plus grand : {1..99}, {1..99}, {1..99}, {1..99}, "
        "{1..99}",
        "convertis {2..90} [kilomètres en mètres|heures en minutes|kilogrammes en grammes|"
        "semaines en jours]",
        "double {4..9} fois de suite le nombre {2..15} et écris chaque résultat",
        "calcule la moyenne de {3..30}, {3..30}, {3..30} et {3..30}",
    ),
    calculation_styles=(
        "",
        "",
        " Montre le calcul.",
        " Raisonne étape par étape.",
        " Donne seulement le résultat.",
        " Réponds par une phrase complète.",
        " Vérifie le résultat à la fin.",
    ),
    questions=(
        "C'est quoi, {concept} ?",
        "[Peux-tu m'expliquer|Sais-tu] ce qu'est {concept} ?",
        "Comment expliquer {concept} à un enfant ?",
        "Pourquoi apprend-on à l'école ce qu'est {concept} ?",
        "Comment puis-je {goal} ?",
        "Quels conseils donner à quelqu'un qui veut {goal} ?",
        "Que mange {animal}, et où vit cet animal ?",
        "[Jusqu'à quel âge vit|Combien d'heures par jour dort] {animal} ?",
        "Que fait {job} toute la journée ?",
        "Quelle formation suit {job} ?",
        "Comment fait-on {food} ?",
        "Que faut-il acheter pour faire {food}, et combien de temps cela prend-il ?",
        "Pourquoi tant de gens aiment-ils {hobby} ?",
        "Que faut-il pour commencer {hobby}, et combien cela coûte-t-il ?",
        "Que peut-on faire à {city} en un week-end ?",
        "Quelle est la meilleure saison pour visiter {city} ?",
    ),
    answer_styles=(
        "",
        "",
        " Réponds en une phrase.",
        " Réponds brièvement.",
        " Justifie ta réponse.",
        " Utilise des mots simples.",
        " Réponds en {3..8}0 mots au plus.",
    ),
    layouts=(
        "{text}\n\n{question}",
        "{text}\n\nQuestion : {question}\nRéponse :",
        "Lis le texte et réponds à la question.\n\n{text}\n\n{question}",
        "{question}\n\n{text}",
        "Texte : {text}\nQuestion : {question}",
    ),
    stories=(
        "écris une [courte histoire|histoire drôle|histoire triste|histoire à suspense] avec "
        "{hero}",
        "raconte l'histoire d'{hero} qui vit {place}",
        "[raconte-moi|raconte à un enfant] une histoire du soir avec {hero}",
        "raconte en [trois|quatre|cinq|six] phrases l'histoire d'{hero} et d'{object}",
        "écris un poème [court|de quatre vers|avec des rimes|joyeux] sur [{hero}|{theme}|{season}|"
        "{object}]",
        "écris le [premier|dernier] paragraphe d'une histoire [à suspense|drôle|mélancolique] avec "
        "{hero}",
        "écris une fable sur {theme} avec {animal} et {animal2}",
        "écris une lettre à [une vieille amie|tes grands-parents|un voisin] qui parle [d'un voyage "
        "à {city}|d'un week-end {place}]",
        "écris un dialogue où {first} et {first2} parlent [d'{object}|d'{hero}]",
        "écris une page de journal intime sur une journée [calme|étrange|heureuse] {place}",
        "décris en [trois|quatre|cinq] phrases [un matin|un soir|un jour d'hiver] {place}",
        "invente un personnage qui vit {place} et décris une journée de sa vie",
        "continue cette histoire : {opening}",
        "écris une histoire qui commence par cette phrase : {opening}",
    ),
    openings=(
        "Un [matin|soir|après-midi], en {month}, {first} trouva {object}.",
        "Il pleuvait depuis {3..40} jours quand {first} découvrit {object}.",
        "Il ne restait que {2..9} minutes à {first}.",
        "La lettre était adressée à {first}, mais c'est {first2} qui l'ouvrit.",
        "Quand la lumière s'éteignit, {first} entendit des pas dans l'escalier.",
        "Depuis {2..30} ans, {first} vivait {place}, et il ne s'était jamais rien passé.",
        "Le dernier jour de l'année, {first2} ferma la boutique pour toujours.",
    ),
    story_styles=(
        "",
        "",
        " Utilise des mots simples.",
        " Ne dépasse pas {5..15}0 mots.",
        " Ajoute un titre.",
        " La fin doit surprendre.",
        " Fais des phrases courtes.",
    ),
    summaries=(
        "résume le texte en [une phrase|deux phrases|trois phrases|{2..4}0 mots au plus|quelques "
        "mots]",
        "donne les [deux|trois] points les plus importants de ce texte[ sous forme de liste|]",
        "donne [un titre|trois titres possibles] à ce texte",
        "écris un [court résumé|très court résumé] de ce texte[ pour des enfants| pour quelqu'un "
        "de pressé|]",
        "raccourcis le texte de moitié",
        "réécris le texte avec des mots simples",
        "fais de ce texte [un SMS|un courriel bref|un titre de journal|une annonce|une liste de "
        "trois points]",
        "dis en [une phrase|quelques mots] de quoi parle ce texte",
    ),
    label="Texte ",
    topics=TOPICS,
)
