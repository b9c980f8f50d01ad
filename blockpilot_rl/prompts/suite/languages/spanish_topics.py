"""What Spanish passages are about. Pure data."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.topic import Topic

TOPICS = (
    Topic(
        "cartel",
        {
            "event": "fiesta [de verano|de las luces|del puerto|de la cosecha|de la música|del "
            "barrio]",
            "place": "[en la plaza del mercado|en el parque municipal|delante del ayuntamiento|en "
            "el patio de la escuela|junto a la antigua estación]",
            "date": "{2..28} de {month}",
            "time": "{10..12} de la mañana",
            "price": "{2..9} euros",
            "host": "{first} {last}",
        },
        (
            (
                "[El {date} se celebra {place} la {event} de {town}|{town} invita a todos a la "
                "{event}, que será el {date} {place}].",
                "¿Qué día es la {event}?",
                "¿Dónde se celebra la fiesta?",
            ),
            (
                "[Empieza a las {time}|Abre sus puertas a las {time}|Un cohete dará la señal a las "
                "{time}], [y se bailará hasta la noche|con un discurso de la alcaldesa|haga el "
                "tiempo que haga].",
                "¿A qué hora empieza la fiesta?",
            ),
            (
                "La entrada cuesta {price}, [pero los niños no pagan|y la mitad para los socios].",
                "¿Cuánto cuesta la entrada?",
            ),
            (
                "[Una banda de la comarca tocará para bailar|El coro de la escuela cantará tres "
                "canciones|Para los más pequeños habrá un teatro de títeres].",
                "¿Qué se ofrece a los visitantes?",
            ),
            (
                "Si llueve, [todo se hará en el gimnasio|se celebrará en el salón municipal|se "
                "suspenderá el concierto].",
                "¿Qué pasará si llueve?",
            ),
            (
                "Quien quiera ayudar a montar los puestos puede hablar con {host} hasta el "
                "{weekday}.",
                "¿Con quién hay que hablar para ayudar?",
            ),
        ),
    ),
    Topic(
        "aviso",
        {
            "pet": "[Misifú|Canelo|Bigotes|Tizón|Pelusa|Tigre|Copito]",
            "look": "[gris atigrado|todo negro|blanco y negro|rojizo con las patas blancas]",
            "street": "[en la calle de los Jardines|en el camino del Molino|cerca de la escuela|en "
            "la plaza de la Iglesia]",
            "weekday": "{weekday}",
            "reward": "{2..9}0 euros",
            "owner": "{first} {last}",
        },
        (
            (
                "Nuestro gato {pet} [falta de casa|no ha vuelto a casa] desde el {weekday}.",
                "¿Desde cuándo falta {pet}?",
                "¿Cómo se llama el gato?",
            ),
            (
                "Es {look} y [lleva un collar rojo|tiene una pequeña cicatriz en la oreja|cojea un "
                "poco].",
                "¿Qué aspecto tiene el gato?",
            ),
            (
                "Se le vio por última vez {street}, [donde le gusta sentarse en los muros|cuando "
                "seguía a un ratón|poco antes de la tormenta].",
                "¿Dónde se vio a {pet} por última vez?",
            ),
            (
                "[Por favor, miren en sus sótanos y garajes|No corran detrás de él, porque es "
                "miedoso|Abran, por favor, las casetas de los jardines].",
                "¿Qué se pide a los vecinos?",
            ),
            (
                "Quien lo encuentre recibirá {reward} de recompensa[ y una tarta|].",
                "¿De cuánto es la recompensa?",
            ),
            (
                "[Pueden llamar|Basta con llamar] a {owner} [a cualquier hora|a partir de las "
                "ocho|incluso de noche].",
                "¿A quién hay que llamar?",
            ),
        ),
    ),
    Topic(
        "relato de viaje",
        {
            "teacher": "[La señora|El señor] {last}",
            "count": "{15..30} alumnos",
            "goal": "[un castillo|una cueva|un museo al aire libre|una quesería|un observatorio]",
            "hours": "{2..4} horas",
            "kilometres": "{4..14} kilómetros",
            "month": "{month}",
        },
        (
            (
                "En {month}, {count} de {town} viajaron en tren para visitar {goal}.",
                "¿Qué visitaron los alumnos?",
                "¿Cuántos alumnos viajaron?",
            ),
            (
                "El viaje duró {hours}, [porque el tren se paró en medio del campo|con un solo "
                "transbordo|y todos cantaban].",
                "¿Cuánto duró el viaje?",
            ),
            (
                "Después caminaron {kilometres} [por un bosque de hayas|a lo largo de un arroyo|"
                "por las colinas].",
                "¿Cuánto caminó el grupo?",
            ),
            (
                "[Un chico perdió la mochila, pero la encontró|Dos niños contaron todos los "
                "pájaros|Al mediodía comieron pan y manzanas en un prado].",
                "¿Qué pasó por el camino?",
            ),
            (
                "{teacher} [lo explicó todo con paciencia|hizo más de cien fotos|había preparado "
                "una búsqueda del tesoro].",
                "¿Qué hizo quien los acompañaba?",
            ),
            (
                "[Por la noche todos volvieron cansados pero contentos|En el viaje de vuelta casi "
                "todos dormían|El año que viene quieren volver].",
                "¿Cómo terminó el día?",
            ),
        ),
    ),
    Topic(
        "ficha de producto",
        {
            "name": "[Alpina|Cierzo|Tara|Luma|Brújula] {100..900}",
            "litres": "0,{4..9} litros",
            "hours": "{6..24} horas",
            "price": "{12..49} euros",
            "color": "[azul|verde oscuro|plateado|rojo|negro]",
            "years": "{2..5} años",
        },
        (
            (
                "La botella térmica {name} contiene {litres} y [cabe en cualquier bolsa de "
                "bicicleta|pesa menos que un libro|se mantiene en pie en cualquier suelo].",
                "¿Cuánto cabe en la botella?",
            ),
            (
                "Las bebidas se mantienen calientes durante {hours} y [frías el doble de tiempo|"
                "frescas incluso en verano].",
                "¿Cuánto tiempo se mantienen calientes las bebidas?",
            ),
            (
                "El tapón [se abre con una sola mano|sirve también de taza|se puede lavar en el "
                "lavavajillas].",
                "¿Qué tiene de especial el tapón?",
            ),
            (
                "Se vende en {color} [y en otros tres colores|y en blanco], y cuesta {price}.",
                "¿Cuánto cuesta la botella?",
                "¿En qué colores se vende?",
            ),
            (
                "El fabricante da una garantía de {years}[, incluido el tapón|, si se guarda el "
                "recibo|].",
                "¿Cuánto dura la garantía?",
            ),
            (
                "[No sirve para bebidas con gas|No se puede meter en el microondas|Hay que "
                "enjuagarla antes de usarla por primera vez].",
                "¿Qué hay que tener en cuenta?",
            ),
        ),
    ),
    Topic(
        "crónica",
        {
            "home": "{town}",
            "guest": "{city}",
            "score": "{3..5} a {0..2}",
            "striker": "{first} {last}",
            "minute": "minuto {5..40}",
            "crowd": "{2..9}00 espectadores",
        },
        (
            (
                "El {weekday} pasado, el equipo de {home} ganó por {score} al de {guest}.",
                "¿Cómo terminó el partido?",
                "¿Quién jugó contra quién?",
            ),
            (
                "El primer gol lo marcó {striker} en el {minute}[, cuando el balón parecía "
                "perdido|, de cabeza|].",
                "¿Quién marcó el primer gol?",
                "¿En qué minuto llegó el primer gol?",
            ),
            (
                "Los {crowd} [cantaban a pesar de la lluvia|se apretaban en las gradas|primero "
                "silbaron y luego aplaudieron].",
                "¿Cuántos espectadores había?",
            ),
            (
                "Después del descanso, [el juego se volvió más duro|el portero paró un penalti|la "
                "entrenadora hizo tres cambios].",
                "¿Qué pasó después del descanso?",
            ),
            (
                "[La entrenadora felicitó sobre todo a la defensa|Los visitantes se quejaron del "
                "árbitro|Al final, los dos equipos se dieron la mano].",
                "¿Qué pasó al terminar el partido?",
            ),
            (
                "El próximo partido será dentro de {2..4} semanas, [esta vez fuera|otra vez en "
                "casa].",
                "¿Cuándo es el próximo partido?",
            ),
        ),
    ),
    Topic(
        "cuento",
        {
            "heroine": "[molinera|costurera|pescadora|cocinera|pastora] llamada [Clara|Julia|Nuria|"
            "Marta|Rocío]",
            "beast": "[un cuervo sabio|un lobo manso|un lucio muy viejo|un escarabajo dorado]",
            "gift": "[un anillo|un cántaro|un manto|una flauta|un espejo]",
            "years": "{3..12} años",
        },
        (
            (
                "Había una vez una {heroine} que vivía sola desde hacía {years} al borde del "
                "bosque.",
                "¿Dónde vivía la protagonista?",
                "¿Desde cuándo vivía sola?",
            ),
            (
                "[Una noche|Una mañana|Una tarde de invierno] encontró a {beast} que [había caído "
                "en una trampa|temblaba de hambre|había olvidado el camino a casa].",
                "¿A quién encontró?",
            ),
            (
                "Como ella lo ayudó, él le regaló {gift}.",
                "¿Qué recibió ella?",
            ),
            (
                "Con aquel regalo [entendía lo que decían los árboles|cualquier trabajo se volvía "
                "fácil|encontraba todos los caminos perdidos].",
                "¿Para qué servía el regalo?",
            ),
            (
                "El rey [quiso comprárselo|envió a tres caballeros|le ofreció un castillo a "
                "cambio], pero ella [se echó a reír|dijo que no|lo escondió en el pozo].",
                "¿Qué hizo el rey?",
            ),
            (
                "[Así siguió siendo libre toda su vida|En primavera se marchó, y nadie volvió a "
                "verla|Desde entonces nadie se ha perdido en aquel bosque].",
                "¿Cómo termina el cuento?",
            ),
        ),
    ),
)
