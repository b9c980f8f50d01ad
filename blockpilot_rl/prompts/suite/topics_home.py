"""Topics from private life, travel, games and tales. Pure data."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.topic import Topic

TOPICS = (
    Topic(
        "travel diary",
        {
            "writer": "{first}",
            "friend": "{first}",
            "town": "{town}",
            "country_side": "[mountain village|fishing port|desert town|island|valley]",
            "days": "{2..20} days",
            "cost": "{price}",
            "food": "{food}",
            "vehicle": "[night train|old bus|ferry|rented car|bicycle]",
        },
        (
            (
                "[{writer} and {friend} went to {town} by {vehicle} and stayed for {days}|after a "
                "long ride by {vehicle}, {writer} and {friend} reached {town}, where they spent "
                "{days}|day one: {friend} and I, {writer}, arrived in {town} by {vehicle}, and we "
                "have {days}].",
                "Where did they travel?",
                "How did they travel?",
                "How long did they stay?",
            ),
            (
                "[The room cost {cost}|They paid {cost} for a room|A room above a bakery was "
                "{cost}][ a night|, breakfast included|] and [had a view of the roofs|smelled of "
                "bread|was full of clocks].",
                "How much was the room?",
            ),
            (
                "[On the first evening|Later|At the market] they ate {food}, [which was too salty|"
                "the best in years, says {friend}|served by a {job} with a loud laugh].",
                "What did they eat?",
            ),
            (
                "[On {weekday}|The next day] [it rained, so they visited a museum|they walked "
                "{5..25} kilometres|they lost the map|the power failed], and {friend} [did not "
                "complain|made new friends|took {20..300} photos].",
                "What did they do the next day?",
            ),
            (
                "[The people of the {country_side} were kind|A child in the {country_side} showed "
                "them the way|In the next {country_side}, nobody spoke their language].",
                "How were the people?",
            ),
            (
                "{writer} [forgot a coat on the {vehicle}|bought {thing} for the family|learned "
                "{3..12} words of the local language].",
                "What did {writer} forget, buy or learn?",
            ),
            (
                "[They want to return in {season}|Home felt strange after that|The way back was "
                "shorter].",
                "How does the diary end?",
            ),
        ),
    ),
    Topic(
        "recipe note",
        {
            "dish": (
                "[carrot soup|corn bread|rice with beans|apple crumble|potato cakes|lemon biscuits|"
                "spinach pie|pumpkin stew|oat bars]"
            ),
            "people": "{2..10} people",
            "minutes": "{15..90} minutes",
            "main": "{2..9}00 grams of [carrots|flour|rice|potatoes|spinach|oats|pumpkin]",
            "spice": (
                "[a pinch of salt|some cinnamon|two spoons of honey|fresh mint|a little pepper|"
                "grated ginger]"
            ),
            "cook": "{first}",
            "heat": "{150..220} degrees",
        },
        (
            (
                "[This {dish} is enough for {people} and takes {minutes}|{cook} makes {dish} for "
                "{people} in {minutes}|for {people} you can have {dish} on the table in "
                "{minutes}].",
                "What dish is it?",
                "How many people is it for?",
                "How long does it take?",
            ),
            (
                "[You need|Take|Start with] {main}, [two eggs|a cup of milk|one onion|a little "
                "oil] and {spice}.",
                "What ingredients are needed?",
            ),
            (
                "[Wash and cut everything into small pieces|Mix everything in a large bowl|Stir "
                "until nothing sticks], [then wait {5..20} minutes|then add water slowly|but do "
                "not stop too early].",
                "What do you do with the ingredients?",
            ),
            (
                "[Heat the oven to {heat}|Bake it at {heat}|The oven should have {heat}][, no "
                "more|, with the rack in the middle|].",
                "How hot should the oven be?",
            ),
            (
                "[If it is too dry|If it tastes flat|If children eat with you], [add a spoon of "
                "yoghurt|use more {spice}|leave out the pepper].",
                "What can you change, and when?",
            ),
            (
                "{cook} [learned it from an aunt in {town}|serves it with {food}|always makes "
                "twice as much].",
                "What do we learn about {cook}?",
            ),
            (
                "[It keeps for {2..6} days|The rest can be frozen|It is best on the second day], "
                "[covered, in a cool place|if anything is left].",
                "How long does it keep?",
            ),
        ),
    ),
    Topic(
        "flat advert",
        {
            "rooms": "[two|three|four|five] rooms",
            "street": (
                "{5..140} [Mill Street|Garden Lane|Station Road|Chapel Hill|Lime Avenue|Canal Walk]"
            ),
            "town": "{town}",
            "rent": "{4..19}{10..99} dollars",
            "size": "{35..140} square metres",
            "free_from": "{month} 1",
            "owner": "{person}",
        },
        (
            (
                "[For rent: {rooms} at {street} in {town}, {size}, {rent} a month|a flat with "
                "{rooms} and {size} at {street} in {town} is free for {rent} a month|{owner} "
                "rents out a flat at {street} in {town}: {rooms}, {size}, {rent} a month].",
                "How many rooms does the flat have?",
                "How much is the rent?",
                "Where is the flat?",
                "How large is the flat?",
            ),
            (
                "It is free from {free_from}[, maybe earlier|, for at least a year|].",
                "From when is it free?",
            ),
            (
                "[The kitchen is new|The bathroom has a window|The floor is made of {material}], "
                "and [the balcony looks to the south|the cellar is dry|there is space for {2..5} "
                "bicycles].",
                "What does the flat offer?",
            ),
            (
                "[The tram stops nearby|A bakery is next door|The school is {3..15} minutes "
                "away], [but the street is quiet|so cars are not needed].",
                "What is nearby?",
            ),
            (
                "[Pets are welcome|No pets, please|A cat is no problem], and [smoking is allowed "
                "on the balcony|musicians should ask first|the stairs are cleaned in turn].",
                "What are the rules?",
            ),
            (
                "[Heating costs about {40..150} dollars more|Water is included|The deposit is two "
                "months' rent].",
                "What is said about other costs?",
            ),
            (
                "[To see it|For a visit], call {owner} [after work|on {weekday}|before noon].",
                "How can you see the flat?",
            ),
        ),
    ),
    Topic(
        "family letter",
        {
            "writer": "{first}",
            "reader": (
                "[Grandma|Grandpa|Aunt [Clara|Rosa|Iris|Wanda]|Uncle [Paul|Felix|Ivan|Theo]|Cousin "
                "{first}]"
            ),
            "town": "{town}",
            "news": (
                "[a new job|a broken arm|a prize at school|a new puppy|a part in a play|a driving "
                "licence]"
            ),
            "sibling": "{first}",
            "visit": "{date}",
            "school": "[a {job}|a student of {subject}|in year {3..11}]",
        },
        (
            (
                "[Dear {reader}, greetings from {town}! I have {news}|Dear {reader}, it is "
                "{writer}, and I have news from {town}: I now have {news}|Dear {reader}, you will "
                "not believe it, but your {writer} from {town} has {news}].",
                "Who is the letter for?",
                "What is the news?",
                "Where does the writer live?",
            ),
            (
                "{sibling} is [{school} now|taller than the door|learning {subject}|always busy "
                "with {hobby}] and [says hello|sends you a drawing|asks about your {animal}].",
                "What does the letter say about {sibling}?",
            ),
            (
                "[The house is cold|Our street is noisy|The garden is full of {fruit}], [but we "
                "like it|so we wear two jumpers|and Mum sells them on {weekday}s].",
                "What is said about the house or garden?",
            ),
            (
                "[Thank you for|We still talk about|I often think of] [the parcel with {food}|"
                "your last visit|the story of the {animal}|the old photo].",
                "What does the writer thank for or remember?",
            ),
            (
                "[May we visit you on {visit}|Could we come on {visit}|Can you come to us on "
                "{visit}]? [I can bring {food}|The train takes {2..9} hours|There is a bed for "
                "everyone].",
                "When would the visit be?",
            ),
            (
                "[Dad|Mum] [has grown a beard|repairs clocks now|has started {hobby}], [and "
                "nobody complains|which keeps us all awake|for the first time since {year}].",
                "What is new with the parents?",
            ),
            ("[Love|Hugs|See you soon], {writer}.", "Who wrote the letter?"),
        ),
    ),
    Topic(
        "health leaflet",
        {
            "topic": "[sleep|back pain|dry skin|tired eyes|colds|stress|walking|healthy lunch]",
            "clinic": "the {town} [clinic|health centre|family practice]",
            "doctor": "Doctor {last}",
            "hours": "[six|seven|eight|nine] hours",
            "minutes": "{10..45} minutes",
            "percent": "{10..80} percent",
            "phone": "555-{1000..9999}",
        },
        (
            (
                "[This leaflet from {clinic} is about {topic}|{clinic} has written down what "
                "helps when it comes to {topic}|{doctor} from {clinic} answers common questions "
                "about {topic}].",
                "What is the leaflet about?",
                "Who wrote the leaflet?",
            ),
            (
                "[About {percent} of adults ask about it|{percent} of our visitors know the "
                "problem|In a survey, {percent} named it as a worry].",
                "How many people have this problem?",
            ),
            (
                "[Move for {minutes} a day|{minutes} of fresh air help|A break of {minutes} works "
                "wonders], [even in winter|and it costs nothing|best before lunch].",
                "What should you do each day?",
            ),
            (
                "[Sleep {hours} a night|Most people need {hours} of sleep|Plan {hours} of rest], "
                "and [keep the room dark|put the phone away|do not drink coffee after {2..5} pm].",
                "How many hours should you sleep?",
            ),
            (
                "[Avoid|Try to do without|Cut down on] [sugar in the evening|heavy bags|loud "
                "music|long hours at the screen], [as it makes things worse|for at least {2..6} "
                "weeks].",
                "What should you avoid?",
            ),
            (
                "[If it lasts longer than {5..20} days|If you have a fever|If the pain is "
                "strong], [see a doctor|call {phone}|do not wait].",
                "When should you get help?",
            ),
            (
                "{doctor} [sees patients on {weekday}s|gives a talk in {month}|also answers "
                "letters].",
                "When or how can you reach the doctor?",
            ),
        ),
    ),
    Topic(
        "hotel review",
        {
            "hotel": (
                "the [Golden|Blue|Old|Little|Grand|Green] [Anchor|Lantern|Swan|Garden|Gate|Harbour]"
            ),
            "town": "{town}",
            "guest": "{first}",
            "nights": "[two|three|four|five|seven] nights",
            "room": "room {11..499}",
            "price": "{price}",
            "stars": "[two|three|four|five] stars",
        },
        (
            (
                "[{guest} stayed at {hotel} in {town} for {nights} and gives it {stars}|{nights} "
                "at {hotel} in {town}: {stars} from {guest}|{stars} for {hotel} in {town}, where "
                "I, {guest}, spent {nights}].",
                "Which hotel is reviewed?",
                "How many stars does it get?",
                "How long did the guest stay?",
            ),
            (
                "[We had {room}|{room} was on the top floor|They gave us {room}], [with a view of "
                "the car park|quiet and clean|where the heating hummed][ all night|, and the bed "
                "was soft|].",
                "Which room did the guest have?",
            ),
            (
                "Breakfast [was simple|was rich|ended at nine], [with fresh bread and {fruit}|and "
                "the coffee was cold|but the staff smiled].",
                "How was breakfast?",
            ),
            (
                "[At {price} a night it is fair|{price} a night is too much|We paid {price} a "
                "night], [given the location|since towels cost extra|because we booked early].",
                "How much was a night?",
            ),
            (
                "[The owner|A young man at the desk|The cook] [lent us umbrellas|told stories "
                "about the town|forgot our key|carried our bags].",
                "What did the staff do?",
            ),
            (
                "[The beach|The station|The old town] is [{3..25} minutes away on foot|just "
                "around the corner|too far to walk].",
                "How far is it to other places?",
            ),
            (
                "[I would come back in {season}|Once is enough|Bring slippers and a good book].",
                "Would the guest come back?",
            ),
        ),
    ),
    Topic(
        "game rules",
        {
            "game": (
                "[Fox and Stones|Seven Towers|Lost Sheep|Quick Harvest|Night Ferry|Paper Kings|"
                "Three Bridges]"
            ),
            "players": "{2..4} to {5..8} players",
            "age": "{5..12} years",
            "cards": "{20..90} cards",
            "minutes": "{10..60} minutes",
            "points": "{10..100} points",
            "maker": "{person}",
        },
        (
            (
                "[{game} is a game for {players} from the age of {age}|in {game}, {players} from "
                "{age} on try to collect {points}|{maker} invented {game}, a game for {players} "
                "aged {age} and up].",
                "What is the game called?",
                "How many people can play?",
                "From what age can you play?",
            ),
            (
                "[The box holds {cards}|There are {cards} in the box|You need {cards}], [a die "
                "and a bag|a board with {9..64} fields|and one wooden {animal}].",
                "What is in the box?",
            ),
            (
                "[The youngest player begins|Whoever last saw a {animal} begins|A coin decides "
                "who begins] and [takes two cards|rolls the die|moves one field].",
                "Who begins?",
            ),
            (
                "[If you land on {color}|If two cards match|If the bag is empty], [you miss a "
                "turn|you may swap places|everyone gives one card to the left].",
                "Which special rule is explained?",
            ),
            (
                "[Talking is not allowed|You may trade at any time|Looking into the bag is not "
                "allowed], [except before the last round|which makes it funny].",
                "What is allowed or not allowed?",
            ),
            (
                "The first with {points} wins[; in a tie, the older player wins|, and a round "
                "takes about {minutes}|].",
                "How do you win?",
            ),
            (
                "[Critics like|Families enjoy|Players praise] [the pictures|the short rules|the "
                "surprise at the end], but [the bag tears easily|it is too long for small "
                "children|luck matters a lot].",
                "What do people say about the game?",
            ),
        ),
    ),
    Topic(
        "folk tale",
        {
            "hero": "[a poor {job}|an old {job}|the youngest child of a {job}|a lazy {job}]",
            "creature": "[talking {animal}|tiny {animal}|golden {animal}|giant {animal}]",
            "village": "{town}",
            "wish": (
                "[three wishes|a bag that never gets empty|a pair of fast shoes|a song that opens "
                "doors|a coat that hides its owner]"
            ),
            "ruler": "[the king|the queen|a rich neighbour|the mayor]",
            "number": "[three|seven|nine|twelve]",
        },
        (
            (
                "[Long ago, near {village}, {hero} met a {creature}|Once there lived {hero} near "
                "{village} who saved a {creature}|People in {village} still speak of {hero} and a "
                "{creature}].",
                "Who met the {creature}?",
                "Where does the tale take place?",
            ),
            (
                "[As thanks, the animal gave|In return, it offered|The creature promised] {wish}, "
                "[but warned against greed|on one condition|and ran off].",
                "What did the creature give?",
            ),
            (
                "[For {number} days|For {number} years|The next {number} nights] [all went well|"
                "nothing happened|the village had bread for all].",
                "What happened at first?",
            ),
            (
                "Then {ruler} heard of it and [wanted to have it|sent {number} soldiers|asked for "
                "proof|fell ill with envy].",
                "What did {ruler} do?",
            ),
            (
                "[A clever child|An old woman|The wind] [gave good advice|hid the gift|asked a "
                "question that nobody could answer].",
                "Who helped, and how?",
            ),
            (
                "[In the end|At last|When {season} came], [the gift turned into sand|the two "
                "became friends|everyone shared the gift|the creature came back to take it].",
                "How does the tale end?",
            ),
            (
                "[So be careful what you ask for|That is why people there leave bread on the wall|"
                "And if nobody has moved it, the stone is still there].",
                "What is the lesson or the last remark?",
            ),
        ),
    ),
    Topic(
        "school essay",
        {
            "writer": "{first}",
            "topic": (
                "[why phones should stay at home|my neighbour the {job}|the best day of {season}|"
                "what I learned from {hobby}|a school without marks|why I like {subject}]"
            ),
            "age": "{8..16} years",
            "place": "{town}",
            "hours": "{2..9} hours",
            "friend": "{first}",
        },
        (
            (
                "[My essay is about {topic}; my name is {writer}, and I am {age} old|{writer}, "
                '{age} old, has written an essay on the topic: {topic}|"{topic}" is the title of '
                "an essay by {writer}, who is {age} old].",
                "What is the essay about?",
                "Who wrote it, and how old is the writer?",
            ),
            (
                "[First of all|To begin with|In my view], [people forget how to listen|everyone "
                "needs a place to be alone|time is the real gift|it is fun].",
                "What is the first point?",
            ),
            (
                "My friend {friend} [does not agree|thinks the same|laughed at first], [because "
                "it takes {hours}|but could not say why|and then tried it for {hours}].",
                "What does {friend} think?",
            ),
            (
                "[For example|Last {weekday}], [our class in {place} tried it|I saw it in {place}|"
                "we lost a game and still laughed], [and it worked|and nobody was late|though it "
                "rained].",
                "Which example is given?",
            ),
            (
                "[On the other hand|Of course|Some say that] [not everybody has the money|it can "
                "be lonely|rules are needed|it takes time].",
                "What speaks against it?",
            ),
            (
                "[My mother|Our teacher|My sister] [wants to try it too|calls it a phase|gave me "
                "a book about it].",
                "What do others say?",
            ),
            (
                "[That is why I will go on|So my answer is yes|I hope that more people think "
                "about it].",
                "How does the essay end?",
            ),
        ),
    ),
    Topic(
        "biography",
        {
            "name": "{person}",
            "town": "{town}",
            "job": "{job}",
            "born": "19{40..95}",
            "hobby": "{hobby}",
            "award": "the [Golden Leaf|Silver Pen|Bright Mind|River|Open Door|North Star] Prize",
            "children": "[two|three|four]",
        },
        (
            (
                "[{name} was born in {town} in {born} and became a {job}|{name}, a {job} from "
                "{town}, was born in {born}|born in {born}, {name} grew up in {town} and works as "
                "a {job}].",
                "Where was {name} born?",
                "What is the job of {name}?",
                "When was {name} born?",
            ),
            (
                "[As a child|At school|When young], {name} [loved {hobby}|spent every free hour "
                "on {hobby}|was known for {hobby}].",
                "What did {name} like to do when young?",
            ),
            (
                "[A teacher|An uncle|A neighbour|A grandmother] [gave good advice and a first "
                "book about the work|paid for the first course|showed how the work is done].",
                "Who helped {name}?",
            ),
            (
                "After [ten|twelve|twenty] years of work, {name} [won {award}|received {award}].",
                "Which prize did {name} win?",
            ),
            (
                "[Today|These days|Now] {name} lives [near the sea|in a small flat|on a farm|in "
                "the mountains] with {children} children and [a dog|two cats|an old parrot].",
                "Who lives with {name}?",
                "Where does {name} live now?",
            ),
            (
                "[On weekends|Every {weekday}], {name} teaches [young people|beginners|children] "
                "[for free|at a local school|in the garden].",
                "Whom does {name} teach?",
            ),
            (
                "The next plan is to [write a book|open a small school|travel by train for a year|"
                "build a workshop].",
                "What does {name} plan to do next?",
            ),
        ),
    ),
    Topic(
        "how-to note",
        {
            "task": (
                "[plant a young tree|repair a flat bicycle tyre|clean a wooden table|store winter "
                "clothes|bake a simple loaf|paint a small room|wash a woollen jumper|set up a tent|"
                "make a paper lantern|grow herbs indoors]"
            ),
            "minutes": "{2..9}0 minutes",
            "cost": "{price}",
            "helper": "{first}",
            "tool": (
                "[a clean cloth|a soft brush|a bucket of water|a pair of gloves|a sharp knife|a "
                "long spoon|an old towel]"
            ),
        },
        (
            (
                "[To {task}, you need about {minutes} and {tool}|it takes about {minutes} to "
                "{task}, and all you need is {tool}|anyone can {task} with {tool} and {minutes} "
                "of time].",
                "What does the text explain?",
                "What do you need?",
                "How long does it take?",
            ),
            (
                "First, [clear the space|read all the steps|lay out everything you need|open a "
                "window] and [check that nothing is broken|put on old clothes|wash your hands].",
                "What should you do first?",
            ),
            (
                "[Then work slowly|After that, go step by step|Next, work from one side to the "
                "other] and [press gently|do not hurry|stop when something feels wrong].",
                "How should you work?",
            ),
            (
                "[Many people forget to|A common mistake is not to] [wait long enough|test a "
                "small part first|remove the dust|check the weather].",
                "What is a common mistake?",
            ),
            (
                "[{helper} from the workshop says|{helper}, who does this every week, adds] that "
                "[cold water works best|two people are faster than one|patience matters more than "
                "strength].",
                "What does {helper} say?",
            ),
            ("The whole job costs [less than|about] {cost}.", "How much does it cost?"),
            (
                "[At the end|When you are done|Finally], [put everything away|let it rest "
                "overnight|check your work in daylight].",
                "What should you do at the end?",
            ),
        ),
    ),
)
