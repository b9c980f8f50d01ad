"""Portuguese (Brazilian) texts of the suite. Pure data."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.languages.language import Language
from blockpilot_rl.prompts.suite.languages.portuguese_topics import TOPICS
from blockpilot_rl.prompts.suite.lexicon import words
from blockpilot_rl.prompts.suite.writer import Grammar

# Things are masculine. What has an article never follows "de", "em", "a" or "por".
_GRAMMAR = Grammar(
    lexicon={
        "first": words(
            "Beatriz, Bruno, Camila, Carla, Davi, Diego, Fernanda, Gabriel, Helena, João, Júlia, "
            "Lucas, Marina, Miguel, Natália, Paulo, Rafael, Sofia, Tiago, Vitória"
        ),
        "last": words(
            "Almeida, Barbosa, Cardoso, Duarte, Ferreira, Lopes, Moreira, Nogueira, Pereira, "
            "Ribeiro, Teixeira, Viana"
        ),
        "town": words(
            "Monte Claro, Vila Nova, Pedra Alta, Vale Verde, Ponte Velha, Campo Florido, Porto "
            "Branco, Santa Luzia, Ribeirão das Flores, Serra Azul"
        ),
        "city": words(
            "Viena, Hamburgo, Zurique, Salvador, Curitiba, Roma, Lisboa, Praga, Copenhague"
        ),
        "weekday": words("segunda-feira, terça-feira, quarta-feira, quinta-feira, sexta-feira"),
        "month": words(
            "janeiro, fevereiro, março, abril, maio, junho, julho, agosto, setembro, outubro, "
            "novembro, dezembro"
        ),
        "things": words(
            "livros, lápis, selos, botões, balões, biscoitos, cadernos, tomates, limões, copos, "
            "bombons, parafusos, adesivos, cartões, ovos"
        ),
        "product": words(
            "uma mochila, uma luminária, um despertador, uma garrafa térmica, uma barraca, um "
            "capacete de bicicleta, um teclado, uma estante, uma capa de chuva, uma chaleira"
        ),
        "hero": words(
            "um dragão tímido, uma raposa esperta, um velho faroleiro, uma menina curiosa, um mago "
            "esquecido, uma padeira corajosa, um robô solitário, duas irmãs muito diferentes, um "
            "ouriço com vontade de viajar, uma gata sem nome, um jovem jardineiro, uma piloto "
            "aposentada, um menino com um segredo, um cozinheiro sem olfato, uma bibliotecária "
            "silenciosa, um carteiro cansado"
        ),
        "place": words(
            "em uma pequena vila, em uma ilha deserta, em uma cidade coberta de neve, em um "
            "castelo antigo, em uma fazenda, em um trem noturno, à beira-mar, em uma grande "
            "biblioteca, no alto das montanhas, em um navio, em uma casa na árvore, em uma estação "
            "esquecida"
        ),
        "object": words(
            "uma chave de ouro, um mapa antigo, uma carta perdida, um relógio quebrado, um livro "
            "falante, um guarda-chuva vermelho, uma garrafa vazia, uma semente estranha, uma "
            "pequena lanterna, uma foto sem data, uma mala cheia de botões"
        ),
        "season": words("a primavera, o verão, o outono, o inverno"),
        "theme": words(
            "a amizade, a coragem, a paciência, a honestidade, a saudade, a curiosidade, a "
            "confiança, a esperança, a solidariedade, a despedida"
        ),
        "concept": words(
            "a gravidade, um arco-íris, a fotossíntese, um vulcão, o ciclo da água, a inflação, um "
            "ímã, uma vacina, um algoritmo, a democracia, um terremoto, uma bússola, um eclipse, "
            "uma geleira, uma pilha"
        ),
        "goal": words(
            "dormir melhor, economizar dinheiro, ler mais, aprender espanhol, passar menos tempo "
            "no celular, plantar tomates, comer melhor, manter a calma, lembrar os nomes das "
            "pessoas, correr por mais tempo"
        ),
        "animal": words(
            "uma raposa, uma coruja, um ouriço, um golfinho, um esquilo, uma tartaruga, um "
            "pinguim, um castor, uma abelha, um lobo, um sapo, um elefante"
        ),
        "job": words(
            "uma médica, um padeiro, uma arquiteta, um maquinista, uma jardineira, um intérprete, "
            "uma juíza, um carpinteiro, uma programadora, um enfermeiro"
        ),
        "food": words(
            "sopa de batata, bolo de cenoura, torta de maçã, sopa de lentilha, curry de legumes, "
            "salada de macarrão, pão de centeio, omelete, arroz-doce, molho de tomate"
        ),
        "hobby": words(
            "a natação, a pintura, a jardinagem, a caminhada, a culinária, o tricô, a fotografia, "
            "o ciclismo, a dança, a cerâmica"
        ),
    },
    requests=(
        *["{upper}."] * 4,
        "Por favor, {lower}.",
        "{upper}, por favor.",
        "Olá! {upper}.",
        "Sua tarefa: {lower}.",
    ),
    quoting_requests=(*["{upper}"] * 3, "Por favor, {lower}"),
)

LANGUAGE = Language(
    code="pt",
    grammar=_GRAMMAR,
    problems=(
        "{who} tem {20..90} {things} e [dá {2..11} a {friend}|perde {2..11}|vende {2..11}]. Com "
        "quantos {things} {who} fica?",
        "{who} compra {2..12} {things} por {2..15} reais cada. [Quanto custa tudo?|Quanto sobra de "
        "200 reais?]",
        "Cabem {3..24} {things} em uma caixa. Quantos {things} cabem em {2..15} caixas?",
        "[Um trem|Um ônibus|Um carro] anda a {3..12}0 quilômetros por hora. Que distância percorre "
        "em {2..9} horas?",
        "{who} lê {5..40} páginas por dia. Quantos dias são necessários para um livro de "
        "{1..6}{0..9}0 páginas?",
        "Em uma loja, {product} custa {2..9}0 reais. O preço [sobe|cai] {1..9}0 por cento. Qual é "
        "o novo preço?",
        "{who} tem {5..15} anos, e {friend} tem {2..4} vezes essa idade. Qual é a soma das idades?",
        "Um jardim tem {3..30} metros de comprimento e {2..20} metros de largura. Qual é [a sua "
        "área|o seu perímetro]?",
        "{who} guarda {3..30} reais por semana. Quanto dinheiro isso dá depois de {4..30} semanas?",
        "Um filme começa às {17..20}h[00|15|30|45] e dura {80..150} minutos. A que horas termina?",
        "Para {2..4} pessoas são necessários {2..9}00 gramas de farinha. Quantos gramas são "
        "necessários para {5..12} pessoas?",
        "{who} e {friend} colecionam {things}. {who} tem {30..80} e {friend} tem {3..20} a [mais|"
        "menos]. Quantos são ao todo?",
        "Em uma turma há {15..32} crianças, e {3..9} delas [usam óculos|tocam um instrumento|têm "
        "um animal de estimação]. Para quantas isso não vale?",
        "De manhã faz {3..20} graus, e ao meio-dia faz {2..14} graus a [mais|menos]. Qual é a "
        "temperatura ao meio-dia?",
        "Uma corda de {20..95} metros é cortada em pedaços de {2..9} metros. Quantos pedaços saem "
        "e quanto sobra?",
        "Uma agricultora planta {3..20} fileiras de {4..25} tulipas. Quantas tulipas são?",
    ),
    calculations=(
        "Quanto é {sum}?",
        "Qual é o resultado de {sum}?",
        "Calcule o valor de {sum}.",
        "Calcule {sum} passo a passo.",
        "Como se calcula {sum}? Explique a uma criança.",
        "Resolva esta conta: {sum}",
        "O resultado de {sum} é maior que {2..9}00?",
    ),
    tasks=(
        "escreva a tabuada do {3..25}",
        "conte de trás para a frente, de {20..99} até {2..15}",
        "escreva os primeiros {5..15} múltiplos de {3..30}",
        "escreva por extenso os números de {2..40} a {50..60}",
        "coloque estes números em ordem crescente: {1..99}, {1..99}, {1..99}, {1..99}, {1..99}",
        "converta {2..90} [quilômetros em metros|horas em minutos|quilogramas em gramas|semanas em "
        "dias]",
        "dobre {4..9} vezes o número {2..15} e escreva cada resultado",
        "calcule a média de {3..30}, {3..30}, {3..30} e {3..30}",
    ),
    calculation_styles=(
        "",
        "",
        " Mostre o cálculo.",
        " Pense passo a passo.",
        " Dê só o resultado.",
        " Responda com uma frase completa.",
        " Confira o resultado no final.",
    ),
    questions=(
        "O que é {concept}?",
        "[Você pode me explicar|Você sabe] o que é {concept}?",
        "Como se explica a uma criança o que é {concept}?",
        "Por que se estuda na escola o que é {concept}?",
        "Como posso {goal}?",
        "Que conselhos você daria a quem quer {goal}?",
        "O que come {animal} e onde vive?",
        "[Quantos anos vive|Quantas horas por dia dorme] {animal}?",
        "O que faz {job} durante o dia?",
        "Que formação precisa ter {job}?",
        "Como se faz {food}?",
        "De que ingredientes preciso para fazer {food} e quanto tempo leva?",
        "Por que {hobby} agrada a tanta gente?",
        "O que é preciso para começar com {hobby} e quanto custa?",
        "O que se pode fazer em {city} em um fim de semana?",
        "Qual é a melhor época para visitar {city}?",
    ),
    answer_styles=(
        "",
        "",
        " Responda em uma frase.",
        " Responda brevemente.",
        " Justifique a resposta.",
        " Use palavras simples.",
        " Responda com no máximo {3..8}0 palavras.",
    ),
    layouts=(
        "{text}\n\n{question}",
        "{text}\n\nPergunta: {question}\nResposta:",
        "Leia o texto e responda à pergunta.\n\n{text}\n\n{question}",
        "{question}\n\n{text}",
        "Texto: {text}\nPergunta: {question}",
    ),
    stories=(
        "escreva um conto [curto|engraçado|triste|tranquilo|de mistério] sobre {hero}",
        "escreva um conto sobre {hero} que se passe {place}",
        "[conte-me|conte a uma criança] uma história de ninar sobre {hero}",
        "conte em [três|quatro|cinco|seis] frases a história de {hero} e {object}",
        "escreva um poema [curto|de quatro versos|com rimas|alegre] sobre [{hero}|{theme}|{season}|"
        "{object}]",
        "escreva o [primeiro|último] parágrafo de um conto [de mistério|engraçado|melancólico] "
        "sobre {hero}",
        "escreva uma fábula sobre {theme} com {animal} e {animal2}",
        "escreva uma carta [a uma velha amiga|aos avós|a um vizinho] sobre [uma viagem a {city}|um "
        "fim de semana {place}|{theme}]",
        "escreva um diálogo em que {first} e {first2} conversam sobre [{object}|{theme}|{season}]",
        "escreva uma página de diário sobre um dia [tranquilo|estranho|feliz] {place}",
        "descreva em [três|quatro|cinco] frases [uma manhã|uma tarde|um dia de inverno] {place}",
        "invente um personagem que mora {place} e descreva o seu dia a dia",
        "continue esta história: {opening}",
        "escreva um conto que comece com esta frase: {opening}",
    ),
    openings=(
        "Em uma [manhã|tarde|noite] de {month}, {first} encontrou {object}.",
        "Fazia {3..40} dias que chovia quando {first} descobriu {object}.",
        "{first} tinha só mais {2..9} minutos.",
        "A carta era para {first}, mas foi {first2} quem a abriu.",
        "Quando a luz se apagou, {first} ouviu passos na escada.",
        "{first} morava {place} havia {2..30} anos, e nunca tinha acontecido nada.",
        "No último dia de {month}, {first2} fechou a loja para sempre.",
    ),
    story_styles=(
        "",
        "",
        " Use palavras simples.",
        " Não passe de {5..15}0 palavras.",
        " Coloque um título.",
        " O final deve surpreender.",
        " Use frases curtas.",
    ),
    summaries=(
        "resuma o texto em [uma frase|duas frases|três frases|no máximo {2..4}0 palavras|poucas "
        "palavras]",
        "diga quais são os [dois|três] pontos mais importantes deste texto[ em uma lista|]",
        "dê [um título|três títulos possíveis] a este texto",
        "escreva um resumo [curto|muito curto] deste texto[ para crianças| para quem está com "
        "pressa|]",
        "reduza o texto pela metade",
        "reescreva o texto com palavras simples",
        "transforme este texto em [uma mensagem de celular|um e-mail curto|uma manchete|um aviso|"
        "três tópicos]",
        "diga em [uma frase|poucas palavras] do que trata este texto",
    ),
    label="Texto",
    topics=TOPICS,
)
