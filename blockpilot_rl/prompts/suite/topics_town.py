"""Topics from towns, clubs and public life. Pure data."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.topic import Topic

TOPICS = (
    Topic(
        "library notice",
        {
            "town": "{town}",
            "library": "[the {town} library|the reading room of {town}]",
            "date": "{date}",
            "hours": "{8..10} am to {5..9} pm",
            "books": "{2..40} books",
            "fee": "{10..90} cents",
            "librarian": "{person}",
        },
        (
            (
                "[From {date}, {library} has new opening hours: {hours}|{library} changes its "
                "hours on {date} and will be open from {hours}|starting on {date}, readers can "
                "visit {library} from {hours}].",
                "What are the new opening hours?",
                "When do the new hours start?",
            ),
            (
                "Each reader may borrow up to {books} for [two|three|four] weeks[, and children "
                "may keep them longer|, films count as books|].",
                "How many books may a reader borrow?",
            ),
            (
                "[Late books cost|The fee for late books is|If a book is late, you pay] {fee} a "
                "day.",
                "What does a late book cost?",
            ),
            (
                "[The second floor is closed|The lift is out of order|The cafe has moved], "
                "because [the roof is being repaired|new shelves are coming|the pipes are old].",
                "What is closed or changed, and why?",
            ),
            (
                "[On {weekday}s|Once a month], {librarian} reads [stories to children|poems aloud|"
                "from old newspapers] [in the garden|by the window|in the small hall].",
                "What does {librarian} do?",
            ),
            (
                "[Food is not allowed|Please do not eat near the books|Drinks must have a lid], "
                "[but there is a table outside|and dogs must wait at the door].",
                "What are the rules about food or drinks?",
            ),
            (
                "[Members get a new card|Your old card stays valid|A card is free for students], "
                "[so bring a photo|as long as you live in {town}].",
                "What is said about cards?",
            ),
        ),
    ),
    Topic(
        "lost and found note",
        {
            "item": (
                "[a {color} {product}|a {color} umbrella|a {color} bag with {thing}|a key ring "
                "with a {animal} on it|a silver watch|a {color} scarf]"
            ),
            "place": (
                "[near the fountain|on bus {2..60}|at the swimming pool|behind the school|in the "
                "cinema|in the waiting room]"
            ),
            "date": "{date}",
            "finder": "{person}",
            "phone": "555-{1000..9999}",
            "reward": "{price}",
        },
        (
            (
                "[On {date}, {finder} found {item} {place}|{finder} lost {item} {place} on {date}|"
                "{item} was found {place} on {date} and is now with {finder}].",
                "What was lost or found?",
                "Where was it lost or found?",
                "Who is {finder}?",
            ),
            (
                "[It has a small scratch on one side|There is a name inside, but it is hard to "
                "read|A note with the letter [B|K|M|T] is fixed to it].",
                "How can it be recognised?",
            ),
            (
                "[It was a gift from a grandmother|It is not worth much, but it is dear to its "
                "owner|It looks almost new].",
                "Why does it matter, or what condition is it in?",
            ),
            (
                "[Please call|You can reach {finder} at|The number to call is] {phone} [after "
                "{4..8} pm|on weekdays|in the morning].",
                "Which number should people call?",
            ),
            (
                "[There is a reward of {reward}|A reward of {reward} is promised|{finder} offers "
                "{reward} as a thank-you].",
                "How large is the reward?",
            ),
            (
                "[Be ready to describe it|You will be asked what is inside|Bring proof that it is "
                "yours].",
                "What must the owner do?",
            ),
            (
                "[After {2..8} weeks|If nobody calls], it will go to [the police|the lost "
                "property office|a charity shop].",
                "What happens to it if nobody calls?",
            ),
        ),
    ),
    Topic(
        "match report",
        {
            "home": "the {town} [Tigers|Comets|Rovers|Giants|Swans|Sparks]",
            "guest": "the {town} [Bears|Falcons|Sailors|Stars|Foxes|Bulls]",
            "score": "{2..5} to {0..1}",
            "day": "{weekday}",
            "player": "{person}",
            "fans": "{2..30},{100..999} fans",
            "coach": "{last}",
        },
        (
            (
                "[{home} beat {guest} {score} on {day}|on {day}, {guest} lost {score} against "
                "{home}|a {score} win on {day} gave {home} three points against {guest}].",
                "Who won the match?",
                "What was the score?",
                "When was the match?",
            ),
            (
                "[{player} scored the first goal|The first goal came from {player}|{player} "
                "opened the scoring] after {2..44} minutes[ with a long shot| from a corner|].",
                "Who scored the first goal?",
            ),
            (
                "[It rained the whole time|The sun was low|The pitch was frozen], [and many "
                "players slipped|which made passing hard|but {fans} came].",
                "What were the conditions like?",
            ),
            (
                "[In the second half|After the break], [the guests attacked without luck|a red "
                "card changed the game|both teams looked tired|the keeper saved a penalty].",
                "What happened in the second half?",
            ),
            (
                '[Coach {coach} praised the defence|"We were lucky," said coach {coach}|Coach '
                "{coach} was proud of the young players].",
                "What did the coach say?",
            ),
            ("{fans} [watched|filled the stands|sang until the end].", "How many fans were there?"),
            (
                "Next week the team plays [in {town}|at home|without its captain|for the cup].",
                "What is next for the team?",
            ),
        ),
    ),
    Topic(
        "transport notice",
        {
            "line": "[bus|tram|train|ferry] line {2..70}",
            "town": "{town}",
            "stop": (
                "[Mill Street|Station Square|North Gate|Harbour Road|Park Lane|Hill Top|Old Bridge]"
            ),
            "month": "{month}",
            "from": "{month} {1..12}",
            "until": "{month} {13..28}",
            "reason": (
                "[road works|a new bridge|a street festival|the repair of a pipe|a film production]"
            ),
            "minutes": "{5..40} minutes",
        },
        (
            (
                "[From {from} to {until}, {line} in {town} will not stop at {stop}|because of "
                "{reason}, {line} in {town} skips {stop} from {from} to {until}|passengers of "
                "{line} in {town} cannot get off at {stop} between {from} and {until}].",
                "Which line is affected?",
                "Which stop is not served?",
                "How long does the change last?",
            ),
            (
                "[The reason is {reason}|This is due to {reason}|The change is necessary because "
                "of {reason}].",
                "What is the reason?",
            ),
            (
                "[Trips take about {minutes} longer|Please allow {minutes} more|Delays of up to "
                "{minutes} are possible].",
                "How much longer does a trip take?",
            ),
            (
                "[A free shuttle|A small bus|A taxi service] runs [every {10..30} minutes|in the "
                "morning and evening|on request] [from the town hall|from the hospital|between "
                "the schools].",
                "What replaces the stop?",
            ),
            (
                "Tickets [stay valid|can be used on all other lines|bought before {from} can be "
                "returned].",
                "What is said about tickets?",
            ),
            (
                "[Wheelchair users|Older passengers|Groups of more than {8..20} people] should "
                "call [one day before|the office|the driver's desk] at 555-{1000..9999}.",
                "Who should call, and when?",
            ),
            (
                "[We are sorry for the trouble|Thank you for your patience|Signs at the stop show "
                "the way].",
            ),
        ),
    ),
    Topic(
        "exhibition review",
        {
            "museum": (
                "the [Museum of Everyday Things|House of Light|Harbour Museum|Gallery of Maps|"
                "Clock Museum|Toy Museum]"
            ),
            "town": "{town}",
            "artist": "{person}",
            "works": "{12..240} [pictures|objects|photographs|models]",
            "until": "{month} {1..28}",
            "price": "{price}",
            "topic": (
                "[life at sea|the colour {color}|children's games|forgotten jobs|winter|doors and "
                "windows|sleep|bread]"
            ),
        },
        (
            (
                "[{museum} in {town} shows {works} about {topic} by {artist}|a new show by "
                "{artist} at {museum} in {town} is about {topic} and has {works}|{topic} is the "
                "subject of {artist}, whose {works} can be seen at {museum} in {town}].",
                "What is the exhibition about?",
                "Who is the artist?",
                "How many works are shown?",
            ),
            (
                "[The best room is the last one|The first room is dark and quiet|One wall is "
                "empty on purpose], [where visitors may touch everything|and that is the point|"
                "which surprised many people].",
                "What does the reviewer say about the rooms?",
            ),
            (
                "[Children enjoy|Families like|Young visitors stay longest at] [the puzzle table|"
                "the talking guide|the box of costumes|the sand floor].",
                "What do children like?",
            ),
            (
                "[Less good are|I did not like|The weak points are] [the small labels|the long "
                "texts|the cold hall|the loud music].",
                "What does the reviewer criticise?",
            ),
            (
                "The show is open until {until}, and a ticket costs {price}.",
                "How much is a ticket?",
                "Until when is the show open?",
            ),
            (
                "{artist} [began to paint|took the first picture|started collecting] at the age "
                "of {6..60}[, after a long illness|, while working as a {job}|].",
                "When did {artist} begin?",
            ),
            (
                "[I will go again|It is worth the trip|Take your time and sit down once in a "
                "while].",
                "What does the reviewer recommend?",
            ),
        ),
    ),
    Topic(
        "club letter",
        {
            "club": "the {town} {hobby} club",
            "chair": "{person}",
            "members": "{12..240} members",
            "fee": "{price}",
            "date": "{date}",
            "project": (
                "[a new club house|a trip to {town}|a summer camp|lessons for {group}|a small "
                "magazine]"
            ),
        },
        (
            (
                "[{club} has elected {chair} as its new chair on {date}|on {date}, the {members} "
                "of {club} met and chose {chair} as chair|{chair} is the new chair of {club}, "
                "which met on {date}].",
                "Who is the new chair?",
                "Which club is it?",
                "When did the club meet?",
            ),
            (
                "[The club now has {members}|With {members}, the club is larger than ever|"
                "{members} came to the meeting].",
                "How many members are there?",
            ),
            (
                "[The yearly fee rises to {fee}|The fee stays at {fee}|New members pay {fee} a "
                "year], [because rent has gone up|although costs have risen|and students pay "
                "half].",
                "How much is the fee?",
            ),
            (
                "[The main plan is|The club wants to pay for|Members voted for] {project}.",
                "What is planned?",
            ),
            (
                "[Some members left the room|There was a long debate|Nobody spoke against it], "
                "[as money is short|since time is short|and the vote took two minutes].",
                "How was the mood at the meeting?",
            ),
            (
                "[The former chair, {person}, received|A gift was given to {person}, who got] "
                "[flowers|a book|a cake in the shape of a {animal}].",
                "Who received a gift?",
            ),
            (
                "[New faces are welcome|Guests can come and try|Beginners can borrow what they "
                "need] every {weekday} at {time}.",
                "When can new people come?",
            ),
        ),
    ),
    Topic(
        "history note",
        {
            "town": "{town}",
            "year": "1{5..8}{10..99}",
            "hero": "{person}",
            "thing": "[bell tower|bridge|canal|lighthouse|mill|school|market hall|water tower]",
            "years": "[four|seven|nine|eleven|thirty] years",
            "cost": "{2..90},000 [silver coins|pieces of gold]",
            "fire": "1{8..8}{50..99}",
        },
        (
            (
                "[In {year}, the people of {town} began to build a {thing}|The {thing} of {town} "
                "goes back to {year}|Old papers show that {hero} had a {thing} built in {town} in "
                "{year}].",
                "What was built in {town}?",
                "When was it begun?",
            ),
            (
                "[The work took {years}|It was finished after {years}|{years} passed before it "
                "was ready] and cost {cost}.",
                "How long did the work take?",
                "How much did it cost?",
            ),
            (
                "[{hero}, a rich merchant, paid for half of it|The plans were drawn by {hero}|"
                "{hero} led the workers], [though nobody asked|and never saw the end of it|and "
                "got a street in return].",
                "What did {hero} do?",
            ),
            (
                "[Stone was brought by river|The wood came from the hills|Bricks were made on the "
                "spot], [which was slow|so roads had to be built first|as the town had no money "
                "left].",
                "Where did the material come from?",
            ),
            (
                "A fire in {fire} [destroyed the roof|spared it|left only the walls], [and "
                "children collected money for repairs|but it was rebuilt in a year|as a plaque "
                "still tells].",
                "What happened in the fire?",
            ),
            (
                "[Today it holds|Now visitors find|These days it is home to] [a small museum|a "
                "music school|a cafe|bats and pigeons|wedding parties].",
                "What is it used for today?",
            ),
            (
                "[Legend says|People tell] that [a {animal} lives under it|a treasure is hidden "
                "there|it hums before a storm].",
                "What does the legend say?",
            ),
        ),
    ),
    Topic(
        "event announcement",
        {
            "event": "{event}",
            "town": "{town}",
            "venue": "{venue}",
            "date": "{date}",
            "time": "{time}",
            "price": "{price}",
            "organiser": "{person}",
            "visitors": "{2..19}00",
        },
        (
            (
                "[The {event} of {town} takes place on {date} at {venue}|on {date}, {town} "
                "invites everyone to its {event} at {venue}|{town} will hold its yearly {event} "
                "at {venue} on {date}].",
                "Where is the event?",
                "When is the event?",
                "What kind of event is it?",
            ),
            (
                "Doors open at {time}[, and the first visitors get a free drink|, and there is "
                "parking behind the building|].",
                "At what time do the doors open?",
            ),
            (
                "A ticket costs {price}, [but children get in free|students pay half|and families "
                "get a discount].",
                "How much is a ticket?",
                "Who pays less?",
            ),
            (
                "{organiser}, who [plans|organises|started] the event, [hopes for|expects] about "
                "{visitors} visitors.",
                "Who organises the event?",
                "How many visitors are expected?",
            ),
            (
                "[Local cooks will sell|There will be stands with|Neighbours will bring] [soup, "
                "bread and cakes|pancakes and fruit juice|grilled vegetables and tea|cheese, "
                "honey and jam].",
                "What food is there?",
            ),
            (
                "[If it rains, everything moves indoors|In bad weather the event moves to the "
                "next day|The event takes place in any weather, so bring a coat].",
                "What happens if it rains?",
            ),
            (
                "[Helpers are still needed|The organisers still look for helpers], [above all for "
                "setting up chairs|especially in the kitchen|mainly to clean up at night].",
                "What are helpers needed for?",
            ),
        ),
    ),
    Topic(
        "town portrait",
        {
            "town": "{town}",
            "people": "{3..90},{100..999}",
            "river": "the [Ash|Wend|Lorne|Tamble|Silver|Orle|Brim]",
            "founded": "1{2..8}{10..99}",
            "building": (
                "[a stone bridge|an old mill|a clock tower|a round church|a glass market hall|a "
                "small castle]"
            ),
            "mayor": "{person}",
            "goods": "[cheese|glass|wool|paper|furniture|boats|pottery]",
        },
        (
            (
                "[{town} is a town of {people} people on {river}, founded in {founded}|on the "
                "banks of {river} lies {town}, where {people} people live|founded in {founded}, "
                "{town} lies on {river} and has {people} inhabitants].",
                "How many people live in {town}?",
                "On which river does {town} lie?",
            ),
            (
                "Its best-known sight is {building}, [built by local workers|which burned down "
                "once and was built again|which is on every postcard].",
                "What is the best-known sight of {town}?",
            ),
            (
                "For [centuries|a long time|many years] the town [lived from|made|was famous for] "
                "{goods}[, but today most people work in offices|, and two workshops still make "
                "it|].",
                "What was the town known for?",
            ),
            (
                "{mayor}, the mayor, wants to [close the centre to cars|plant a thousand trees|"
                "build a swimming pool|open a night bus line].",
                "Who is the mayor?",
                "What does the mayor want to do?",
            ),
            (
                "[Some shop owners are worried|Not everyone agrees|Many families like the plan], "
                "[because it would be expensive|as they need more space|since streets are loud].",
                "How do people feel about the plan?",
            ),
            (
                "[Trains run every hour|A bus leaves twice a day|The nearest airport is an hour "
                "away], and [cyclists use the river path|most visitors come in {season}].",
                "How can you get to {town}?",
            ),
        ),
    ),
    Topic(
        "school trip letter",
        {
            "teacher": "[Ms|Mr] {last}",
            "class": "class {2..9}[A|B|C]",
            "place": (
                "[the science museum|a sheep farm|the old salt mine|the zoo|the aquarium|a "
                "chocolate factory|the weather station]"
            ),
            "town": "{town}",
            "date": "{date}",
            "time": "{time}",
            "price": "{price}",
        },
        (
            (
                "[On {date}, {class} will visit {place} in {town} with {teacher}|{teacher} is "
                "taking {class} to {place} in {town} on {date}|dear parents, {class} goes to "
                "{place} in {town} on {date}].",
                "Where does the class go?",
                "When is the trip?",
                "Which class goes on the trip?",
            ),
            (
                "The bus leaves at {time} [from the main gate|in front of the gym|from the car "
                "park], so please [be on time|arrive ten minutes early].",
                "When does the bus leave?",
                "Where does the bus leave from?",
            ),
            (
                "The cost is {price} per child[ and includes lunch|, and help is available|].",
                "How much does the trip cost?",
            ),
            (
                "[Each child should bring|Please pack|Children need] [a bottle of water and a "
                "snack|a warm coat and good shoes|a notebook and two pencils|a hat and sun cream].",
                "What should the children bring?",
            ),
            (
                "[Phones stay at home|Phones may be used only on the bus|Sweets are not allowed], "
                "[as last year one was lost|because we want to talk to each other].",
                "What is the rule, and why?",
            ),
            (
                "[Two parents are needed|We still look for one parent] who can [help with the "
                "groups|bring a first-aid kit|carry the lunch boxes].",
                "What help is needed from parents?",
            ),
            (
                "Please [sign the form|return the form|answer] by [{weekday}|the end of the week].",
                "By when must parents answer?",
            ),
        ),
    ),
    Topic(
        "news item",
        {
            "town": "{town}",
            "weather": "[heavy rain|strong wind|thick fog|deep snow|a heat wave|a hail storm]",
            "day": "{weekday}",
            "road": "the [north|coast|mountain|valley|old mill] road",
            "homes": "{2..98}0 homes",
            "official": "{person}",
            "hours": "[two|three|five|eight|twelve] hours",
        },
        (
            (
                "[{weather} closed {road} near {town} on {day}|on {day}, {weather} near {town} "
                "forced the police to close {road}|drivers near {town} had to turn back on {day} "
                "when {weather} closed {road}].",
                "Why was the road closed?",
                "Which road was closed?",
                "On which day was it?",
            ),
            (
                "[About {homes} were without power|Power failed in {homes}|{homes} lost their "
                "electricity] for {hours}.",
                "How many homes lost power?",
                "How long did the power cut last?",
            ),
            (
                "[Nobody was hurt|No one was injured|Two people were treated and sent home], said "
                "{official}, who [leads the fire service|speaks for the town|runs the rescue "
                "team].",
                "Was anyone hurt?",
                "Who is {official}?",
            ),
            (
                "[Schools stayed open|Schools closed at noon|Buses ran with delays], and "
                "[neighbours brought tea to stranded drivers|a hotel offered free rooms|many "
                "people worked from home].",
                "How did people help or react?",
            ),
            (
                "[Crews cleared|Workers removed|Volunteers cleared] [fallen trees|mud and stones|"
                "broken glass] [through the night|until the next morning].",
                "What did the workers do?",
            ),
            (
                "The weather service expects [calmer days|more of the same|sunshine] [this "
                "weekend|from {weekday} on].",
                "What does the weather service expect?",
            ),
        ),
    ),
)
