"""What Portuguese passages are about. Pure data."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.topic import Topic

TOPICS = (
    Topic(
        "cartaz",
        {
            "event": "festa [de verão|das luzes|do porto|da colheita|da música|do bairro]",
            "place": "[na praça do mercado|no parque municipal|em frente à prefeitura|no pátio da "
            "escola|ao lado da antiga estação]",
            "date": "{2..28} de {month}",
            "time": "{10..19} horas",
            "price": "{2..9} reais",
            "host": "{first} {last}",
        },
        (
            (
                "[No dia {date} acontece {place} a {event} de {town}|{town} convida todos para a "
                "{event}, no dia {date}, {place}].",
                "Em que dia acontece a {event}?",
                "Onde acontece a festa?",
            ),
            (
                "[Começa às {time}|A abertura é às {time}|A banda dá o sinal às {time}], [e vai "
                "ter dança até tarde|com um discurso da prefeita|com sol ou com chuva].",
                "A que horas começa a festa?",
            ),
            (
                "A entrada custa {price}, [mas as crianças não pagam|e a metade para os sócios].",
                "Quanto custa a entrada?",
            ),
            (
                "[Um grupo da região vai tocar para dançar|O coral da escola vai cantar três "
                "canções|Para os pequenos haverá um teatro de bonecos].",
                "O que se oferece aos visitantes?",
            ),
            (
                "Se chover forte, [tudo será feito no ginásio|a festa passa para o salão "
                "comunitário|o concerto será cancelado].",
                "O que acontece se chover forte?",
            ),
            (
                "Quem quiser ajudar a montar as barracas pode falar com {host} até {weekday}.",
                "Com quem se deve falar para ajudar?",
            ),
        ),
    ),
    Topic(
        "aviso",
        {
            "pet": "[Mingau|Tigrão|Bigode|Pretinho|Farofa|Pingo|Caramelo]",
            "look": "[cinza rajado|todo preto|preto e branco|ruivo com as patas brancas]",
            "street": "[na rua dos Jardins|na rua do Moinho|perto da escola|na praça da Igreja]",
            "weekday": "{weekday}",
            "reward": "{2..9}0 reais",
            "owner": "{first} {last}",
        },
        (
            (
                "Nosso gato {pet} [está desaparecido|não volta para casa] desde {weekday}.",
                "Desde quando {pet} sumiu?",
                "Como se chama o gato?",
            ),
            (
                "Ele é {look} e [usa uma coleira vermelha|tem uma pequena cicatriz na orelha|manca "
                "um pouco].",
                "Como é o gato?",
            ),
            (
                "Foi visto pela última vez {street}, [onde gosta de sentar nos muros|quando "
                "seguia um rato|pouco antes da tempestade].",
                "Onde {pet} foi visto pela última vez?",
            ),
            (
                "[Por favor, olhem nos porões e nas garagens|Não corram atrás dele, porque é "
                "medroso|Por favor, abram os galpões dos jardins].",
                "O que se pede aos vizinhos?",
            ),
            (
                "Quem o encontrar vai receber {reward} de recompensa[ e um bolo|].",
                "De quanto é a recompensa?",
            ),
            (
                "[Podem ligar|Basta ligar] para {owner} [a qualquer hora|depois das oito|mesmo de "
                "noite].",
                "Para quem se deve ligar?",
            ),
        ),
    ),
    Topic(
        "relato de viagem",
        {
            "teacher": "[a professora [Carla|Helena|Marina|Sofia]|o professor [Bruno|Miguel|Paulo|"
            "Tiago]]",
            "count": "{15..30} alunos",
            "goal": "[um castelo|uma gruta|um museu ao ar livre|uma queijaria|um observatório]",
            "hours": "{2..4} horas",
            "kilometres": "{4..14} quilômetros",
            "month": "{month}",
        },
        (
            (
                "Em {month}, {count} de {town} viajaram de trem para visitar {goal}.",
                "O que os alunos visitaram?",
                "Quantos alunos viajaram?",
            ),
            (
                "A viagem durou {hours}, [porque o trem parou no meio do campo|com uma só "
                "baldeação|e todos cantavam].",
                "Quanto tempo durou a viagem?",
            ),
            (
                "Depois o grupo caminhou {kilometres} [por um bosque|ao longo de um riacho|pelas "
                "colinas].",
                "Quanto o grupo caminhou?",
            ),
            (
                "[Um menino perdeu a mochila, mas a encontrou|Duas crianças contaram todos os "
                "pássaros|Ao meio-dia comeram pão e maçãs em um gramado].",
                "O que aconteceu no caminho?",
            ),
            (
                "{teacher} [explicou tudo com paciência|tirou mais de cem fotos|tinha preparado "
                "uma caça ao tesouro].",
                "O que fez quem acompanhava os alunos?",
            ),
            (
                "[À noite, todos voltaram cansados, mas contentes|Na volta, quase todos dormiam|No "
                "ano que vem, eles querem voltar].",
                "Como terminou o dia?",
            ),
        ),
    ),
    Topic(
        "ficha de produto",
        {
            "name": "[Alpina|Minuano|Tara|Luma|Bússola] {100..900}",
            "litres": "0,{4..9} litro",
            "hours": "{6..24} horas",
            "price": "{32..149} reais",
            "color": "[azul|verde-escuro|prata|vermelho|preto]",
            "years": "{2..5} anos",
        },
        (
            (
                "A garrafa térmica {name} tem capacidade de {litres} e [cabe em qualquer bolsa de "
                "bicicleta|pesa menos que um livro|fica em pé até em piso irregular].",
                "Quanto cabe na garrafa?",
            ),
            (
                "As bebidas ficam quentes por {hours} e [frias pelo dobro do tempo|frescas mesmo "
                "no verão].",
                "Por quanto tempo as bebidas ficam quentes?",
            ),
            (
                "A tampa [abre com uma só mão|serve também de copo|pode ir à lava-louças].",
                "O que a tampa tem de especial?",
            ),
            (
                "Ela é vendida em {color} [e em outras três cores|e em branco], e custa {price}.",
                "Quanto custa a garrafa?",
                "Em que cores ela é vendida?",
            ),
            (
                "O fabricante dá garantia de {years}[, inclusive para a tampa|, desde que se "
                "guarde a nota|].",
                "De quanto tempo é a garantia?",
            ),
            (
                "[Não serve para bebidas com gás|Não pode ir ao micro-ondas|É preciso enxaguá-la "
                "antes do primeiro uso].",
                "A que se deve prestar atenção?",
            ),
        ),
    ),
    Topic(
        "crônica esportiva",
        {
            "home": "{town}",
            "guest": "{city}",
            "score": "{3..5} a {0..2}",
            "striker": "{first} {last}",
            "minute": "minuto {5..40}",
            "crowd": "{2..9}00 torcedores",
        },
        (
            (
                "Na última {weekday}, o time de {home} venceu o de {guest} por {score}.",
                "Como terminou o jogo?",
                "Quem jogou contra quem?",
            ),
            (
                "O primeiro gol foi de {striker}, no {minute}[, quando a bola parecia perdida|, de "
                "cabeça|].",
                "Quem marcou o primeiro gol?",
                "Em que minuto saiu o primeiro gol?",
            ),
            (
                "Os {crowd} [cantavam apesar da chuva|se apertavam na arquibancada|primeiro "
                "vaiaram e depois aplaudiram].",
                "Quantos torcedores havia?",
            ),
            (
                "Depois do intervalo, [o jogo ficou mais duro|o goleiro defendeu um pênalti|a "
                "treinadora fez três trocas].",
                "O que aconteceu depois do intervalo?",
            ),
            (
                "[A treinadora elogiou sobretudo a defesa|Os visitantes reclamaram do árbitro|No "
                "fim, os dois times se cumprimentaram].",
                "O que aconteceu depois do jogo?",
            ),
            (
                "O próximo jogo será daqui a {2..4} semanas, [desta vez fora|de novo em casa].",
                "Quando será o próximo jogo?",
            ),
        ),
    ),
    Topic(
        "conto",
        {
            "heroine": "[moleira|costureira|pescadora|cozinheira|pastora] chamada [Carla|Helena|"
            "Júlia|Marina|Sofia]",
            "beast": "[um corvo sábio|um lobo manso|um peixe muito velho|um besouro dourado]",
            "gift": "[um anel|um jarro|um manto|uma flauta|um espelho]",
            "years": "{3..12} anos",
        },
        (
            (
                "Era uma vez uma {heroine} que vivia sozinha havia {years} na beira da floresta.",
                "Onde vivia a heroína?",
                "Há quanto tempo ela vivia sozinha?",
            ),
            (
                "[Uma noite|Uma manhã|Em uma tarde de inverno], ela encontrou {beast} que [tinha "
                "caído em uma armadilha|tremia de fome|tinha esquecido o caminho de casa].",
                "Quem ela encontrou?",
            ),
            (
                "Como ela o ajudou, ele lhe deu {gift}.",
                "O que ela ganhou?",
            ),
            (
                "Com aquele presente, [ela entendia o que diziam as árvores|todo trabalho ficava "
                "fácil|ela encontrava todos os caminhos perdidos].",
                "Para que servia o presente?",
            ),
            (
                "O rei [quis comprá-lo|mandou três cavaleiros|ofereceu um castelo em troca], mas "
                "ela [começou a rir|disse que não|o escondeu no poço].",
                "O que fez o rei?",
            ),
            (
                "[Assim ela ficou livre por toda a vida|Na primavera ela partiu, e ninguém mais a "
                "viu|Desde então, ninguém mais se perdeu naquela floresta].",
                "Como termina o conto?",
            ),
        ),
    ),
)
