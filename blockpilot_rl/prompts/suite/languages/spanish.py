"""Spanish texts of the suite. Pure data."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.languages.language import Language
from blockpilot_rl.prompts.suite.languages.spanish_topics import TOPICS
from blockpilot_rl.prompts.suite.lexicon import words
from blockpilot_rl.prompts.suite.writer import Grammar

# Things are masculine; no name begins with the sound of "y" or "o".
_GRAMMAR = Grammar(
    lexicon={
        "first": words(
            "Bruno, Carlos, Clara, Daniela, Diego, Felipe, Gloria, Jaime, Julia, Lucía, Luis, "
            "Marta, Mateo, Nuria, Pablo, Raquel, Rocío, Sara, Tomás, Valeria"
        ),
        "last": words(
            "Blanco, Campos, Delgado, Fuentes, Medina, Molina, Navarro, Paredes, Rojas, Serrano, "
            "Torres, Vega"
        ),
        "town": words(
            "Villanueva, Montealto, Fuenteclara, Puertoblanco, Valdeflores, Riofrío, Peñarroja, "
            "Santa Marta, Campoverde, Molinar"
        ),
        "city": words(
            "Viena, Hamburgo, Zúrich, Sevilla, Valencia, Roma, Lisboa, Praga, Copenhague"
        ),
        "weekday": words("lunes, martes, miércoles, jueves, viernes, sábado, domingo"),
        "month": words(
            "enero, febrero, marzo, abril, mayo, junio, julio, agosto, septiembre, octubre, "
            "noviembre, diciembre"
        ),
        "things": words(
            "libros, lápices, sellos, caramelos, huevos, globos, botones, cromos, tomates, "
            "limones, cuadernos, vasos, bombones, tornillos, melones"
        ),
        "product": words(
            "una mochila, una lámpara, un despertador, una botella térmica, una tienda de campaña, "
            "un casco de bicicleta, un teclado, una estantería, un impermeable, un hervidor"
        ),
        "hero": words(
            "un dragón tímido, una zorra astuta, un viejo farero, una niña curiosa, un mago "
            "olvidadizo, una panadera valiente, un robot solitario, dos hermanas muy distintas, "
            "un erizo con ganas de viajar, una gata sin nombre, un joven jardinero, una piloto "
            "jubilada, un niño con un secreto, un cocinero sin olfato, una bibliotecaria "
            "silenciosa, un cartero cansado"
        ),
        "place": words(
            "en un pueblo pequeño, en una isla desierta, en una ciudad nevada, en un castillo "
            "antiguo, en una granja, en un tren nocturno, junto al mar, en una gran biblioteca, en "
            "lo alto de las montañas, en un barco, en una casa en un árbol, en una estación "
            "olvidada"
        ),
        "object": words(
            "una llave de oro, un mapa antiguo, una carta perdida, un reloj roto, un libro que "
            "habla, un paraguas rojo, una botella vacía, una semilla extraña, una linterna "
            "pequeña, una foto sin fecha, una maleta llena de botones"
        ),
        "season": words("la primavera, el verano, el otoño, el invierno"),
        "theme": words(
            "la amistad, el valor, la paciencia, la honestidad, la nostalgia, la curiosidad, la "
            "confianza, la esperanza, la solidaridad, la despedida"
        ),
        "concept": words(
            "la gravedad, un arcoíris, la fotosíntesis, un volcán, el ciclo del agua, la "
            "inflación, un imán, una vacuna, un algoritmo, la democracia, un terremoto, una "
            "brújula, un eclipse, un glaciar, una pila"
        ),
        "goal": words(
            "dormir mejor, ahorrar dinero, leer más, aprender alemán, pasar menos tiempo con el "
            "móvil, cultivar tomates, comer más sano, mantener la calma, recordar los nombres, "
            "correr más tiempo"
        ),
        "animal": words(
            "un zorro, una lechuza, un erizo, un delfín, una ardilla, una tortuga, un pingüino, un "
            "castor, una abeja, un lobo, una rana, un elefante"
        ),
        "job": words(
            "una médica, un panadero, una arquitecta, un maquinista, una jardinera, un intérprete, "
            "una jueza, un carpintero, una programadora, un enfermero"
        ),
        "food": words(
            "la sopa de patata, el gazpacho, la tarta de manzana, la sopa de lentejas, el curry de "
            "verduras, la ensalada de pasta, el pan de centeno, la tortilla, el arroz con leche, "
            "la salsa de tomate"
        ),
        "hobby": words(
            "la natación, la pintura, la jardinería, el senderismo, la cocina, el punto, la "
            "fotografía, el ciclismo, el baile, la cerámica"
        ),
    },
    requests=(
        *["{upper}."] * 4,
        "Por favor, {lower}.",
        "{upper}, por favor.",
        "¡Hola! {upper}.",
        "Tu tarea: {lower}.",
    ),
    quoting_requests=(*["{upper}"] * 3, "Por favor, {lower}"),
)

LANGUAGE = Language(
    code="es",
    grammar=_GRAMMAR,
    problems=(
        "{who} tiene {20..90} {things} y [le regala {2..11} a {friend}|pierde {2..11}|vende "
        "{2..11}]. ¿Cuántos {things} le quedan?",
        "{who} compra {2..12} {things} a {2..15} euros cada uno. [¿Cuánto cuesta todo?|¿Cuánto "
        "sobra de 200 euros?]",
        "En una caja caben {3..24} {things}. ¿Cuántos {things} caben en {2..15} cajas?",
        "[Un tren|Un autobús|Un coche] va a {3..12}0 kilómetros por hora. ¿Qué distancia recorre "
        "en {2..9} horas?",
        "{who} lee {5..40} páginas al día. ¿Cuántos días necesita para un libro de "
        "{1..6}{0..9}0 páginas?",
        "En una tienda, {product} cuesta {2..9}0 euros. El precio [sube|baja] un {1..9}0 por "
        "ciento. ¿Cuál es el nuevo precio?",
        "{who} tiene {5..15} años y {friend} tiene {2..4} veces esa edad. ¿Cuánto suman sus "
        "edades?",
        "Un jardín mide {3..30} metros de largo y {2..20} metros de ancho. ¿Cuál es su [área|"
        "perímetro]?",
        "{who} ahorra {3..30} euros cada semana. ¿Cuánto dinero tiene después de {4..30} semanas?",
        "Una película empieza a las {17..20}:[00|15|30|45] y dura {80..150} minutos. ¿A qué hora "
        "termina?",
        "Para {2..4} personas se necesitan {2..9}00 gramos de harina. ¿Cuánta harina hace falta "
        "para {5..12} personas?",
        "{who} y {friend} coleccionan {things}. {who} tiene {30..80} y {friend} tiene {3..20} [más|"
        "menos]. ¿Cuántos tienen en total?",
        "En una clase hay {15..32} niños, y {3..9} de ellos [llevan gafas|tocan un instrumento|"
        "tienen una mascota]. ¿Cuántos no?",
        "Por la mañana hay {3..20} grados, y al mediodía hay {2..14} grados [más|menos]. ¿Qué "
        "temperatura hay entonces?",
        "Una cuerda de {20..95} metros se corta en trozos de {2..9} metros. ¿Cuántos trozos salen "
        "y cuánto sobra?",
        "Una agricultora planta {3..20} filas de {4..25} tulipanes. ¿Cuántos tulipanes son?",
    ),
    calculations=(
        "¿Cuánto es {sum}?",
        "¿Cuál es el resultado de {sum}?",
        "Calcula {sum}.",
        "Calcula {sum} paso a paso.",
        "¿Cómo se calcula {sum}? Explícaselo a un niño.",
        "Resuelve esta operación: {sum}",
        "¿Es {sum} mayor que {2..9}00?",
    ),
    tasks=(
        "escribe la tabla de multiplicar del {3..25}",
        "cuenta hacia atrás desde {20..99} hasta {2..15}",
        "di los primeros {5..15} múltiplos de {3..30}",
        "escribe con letras los números del {2..40} al {50..60}",
        "ordena estos números de menor a mayor: {1..99}, {1..99}, {1..99}, {1..99}, {1..99}",
        "convierte {2..90} [kilómetros en metros|horas en minutos|kilogramos en gramos|semanas en "
        "días]",
        "duplica {4..9} veces el número {2..15} y escribe cada resultado",
        "calcula la media de {3..30}, {3..30}, {3..30} y {3..30}",
    ),
    calculation_styles=(
        "",
        "",
        " Muestra el cálculo.",
        " Razona paso a paso.",
        " Da solo el resultado.",
        " Responde con una frase completa.",
        " Comprueba el resultado al final.",
    ),
    questions=(
        "¿Qué es {concept}?",
        "[¿Puedes explicarme|¿Sabes] qué es {concept}?",
        "¿Cómo se le explica a un niño qué es {concept}?",
        "¿Por qué se estudia en la escuela qué es {concept}?",
        "¿Cómo puedo {goal}?",
        "¿Qué consejos le darías a alguien que quiere {goal}?",
        "¿Qué come {animal} y dónde vive?",
        "[¿Cuántos años vive|¿Cuántas horas al día duerme] {animal}?",
        "¿Qué hace {job} durante el día?",
        "¿Qué estudios necesita {job}?",
        "¿Cómo se hace {food}?",
        "¿Qué ingredientes necesito para {food} y cuánto se tarda?",
        "¿Por qué a tanta gente le gusta {hobby}?",
        "¿Qué necesito para empezar con {hobby} y cuánto cuesta?",
        "¿Qué se puede hacer en {city} en un fin de semana?",
        "¿Cuál es la mejor época para visitar {city}?",
    ),
    answer_styles=(
        "",
        "",
        " Responde en una frase.",
        " Responde brevemente.",
        " Justifica tu respuesta.",
        " Usa palabras sencillas.",
        " Responde con {3..8}0 palabras como máximo.",
    ),
    layouts=(
        "{text}\n\n{question}",
        "{text}\n\nPregunta: {question}\nRespuesta:",
        "Lee el texto y responde a la pregunta.\n\n{text}\n\n{question}",
        "{question}\n\n{text}",
        "Texto: {text}\nPregunta: {question}",
    ),
    stories=(
        "escribe un cuento [corto|divertido|triste|tranquilo|de misterio] sobre {hero}",
        "escribe un cuento sobre {hero} que transcurra {place}",
        "[cuéntame|cuéntale a un niño] un cuento para dormir sobre {hero}",
        "cuenta en [tres|cuatro|cinco|seis] frases la historia de {hero} y {object}",
        "escribe un poema [breve|de cuatro versos|con rima|alegre] sobre [{hero}|{theme}|{season}|"
        "{object}]",
        "escribe el [primer|último] párrafo de un cuento [de misterio|divertido|melancólico] sobre "
        "{hero}",
        "escribe una fábula sobre {theme} con {animal} y {animal2}",
        "escribe una carta a [una vieja amiga|los abuelos|un vecino] sobre [un viaje a {city}|un "
        "fin de semana {place}|{theme}]",
        "escribe un diálogo en el que {first} y {first2} hablan sobre [{object}|{theme}|{season}]",
        "escribe una página de diario sobre un día [tranquilo|extraño|feliz] {place}",
        "describe en [tres|cuatro|cinco] frases [una mañana|una tarde|un día de invierno] {place}",
        "inventa un personaje que vive {place} y describe su día a día",
        "continúa esta historia: {opening}",
        "escribe un cuento que empiece con esta frase: {opening}",
    ),
    openings=(
        "Una [mañana|tarde|noche] de {month}, {first} encontró {object}.",
        "Llevaba {3..40} días lloviendo cuando {first} descubrió {object}.",
        "A {first} solo le quedaban {2..9} minutos.",
        "La carta iba dirigida a {first}, pero la abrió {first2}.",
        "Cuando se apagó la luz, {first} oyó pasos en la escalera.",
        "{first} vivía {place} desde hacía {2..30} años, y nunca había pasado nada.",
        "El último día de {month}, {first2} cerró la tienda para siempre.",
    ),
    story_styles=(
        "",
        "",
        " Usa palabras sencillas.",
        " No pases de {5..15}0 palabras.",
        " Ponle un título.",
        " El final debe sorprender.",
        " Usa frases cortas.",
    ),
    summaries=(
        "resume el texto en [una frase|dos frases|tres frases|{2..4}0 palabras como máximo|pocas "
        "palabras]",
        "di cuáles son los [dos|tres] puntos más importantes de este texto[ en una lista|]",
        "pon [un título|tres títulos posibles] a este texto",
        "escribe un resumen [breve|muy breve] de este texto[ para niños| para alguien con prisa|]",
        "reduce el texto a la mitad",
        "reescribe el texto con palabras sencillas",
        "convierte este texto en [un mensaje de móvil|un correo breve|un titular|un anuncio|tres "
        "puntos]",
        "di en [una frase|pocas palabras] de qué trata este texto",
    ),
    label="Texto",
    topics=TOPICS,
)
