"""Topics about animals, plants, weather and science. Pure data."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.topic import Topic

TOPICS = (
    Topic(
        "experiment report",
        {
            "student": "{first}",
            "partner": "{first}",
            "question": (
                "[whether plants grow faster with music|how salt changes the freezing of water|"
                "which paper towel holds the most water|whether warm water freezes first|how far a "
                "paper plane flies|which bread goes mouldy first|how colour changes the heating of "
                "a can]"
            ),
            "days": "{3..21} days",
            "samples": "{4..30} samples",
            "result": "{5..60} percent",
            "teacher": "[Ms|Mr] {last}",
        },
        (
            (
                "[{student} and {partner} wanted to find out {question}|for the science fair, "
                "{student} and {partner} tested {question}|the question that {student} and "
                "{partner} asked was {question}].",
                "What did the students want to find out?",
                "Who did the experiment?",
            ),
            (
                "They [used|prepared|compared] {samples} and [wrote down numbers|took photos|"
                "measured them] for {days}.",
                "How many samples were used?",
                "How long did the experiment last?",
            ),
            (
                "[To be fair|So that only one thing changed], all samples [stood in the same room|"
                "had the same size|got the same light].",
                "How did they make the test fair?",
            ),
            (
                "[The difference was {result}|They found a difference of {result}|On average, one "
                "group was {result} ahead], [more than they had guessed|but some samples did not "
                "fit|which is not much].",
                "What was the result?",
            ),
            (
                "[One sample was lost|The scale broke on the second day|A cat knocked over a "
                "glass], so [they repeated that part|the first numbers were not used|the results "
                "are a little uncertain].",
                "What went wrong?",
            ),
            (
                "{teacher} [said the chart was very clear|asked for more tests|liked the honest "
                "notes|found a mistake in the sums].",
                "What did the teacher say?",
            ),
            (
                "Next time they want to [use more samples|test it outdoors|ask {group} to help|"
                "measure every hour].",
                "What do they want to do next time?",
            ),
        ),
    ),
    Topic(
        "plant note",
        {
            "plant": (
                "[silver|creeping|tall|dwarf|winter|star|bell] [mint|thistle|lily|clover|fern|"
                "willow|poppy]"
            ),
            "height": "{10..190} centimetres",
            "color": "{color}",
            "months": "{month} and {month}",
            "place": "[dry slopes|river banks|old walls|shady woods|sandy soil|wet meadows]",
            "use": (
                "[a tea against coughs|a yellow dye|a soft rope|a sweet syrup|a cream for tired "
                "feet]"
            ),
            "botanist": "{person}",
        },
        (
            (
                "[The {plant} grows on {place} and reaches {height}|on {place}, look for the "
                "{plant}, which can be {height} tall|gardeners know the {plant}: it likes {place} "
                "and grows to {height}].",
                "Where does the plant grow?",
                "How tall is the plant?",
            ),
            (
                "Its {color} flowers open in {months}[ and smell of honey|, but only in the "
                "morning|].",
                "When do the flowers open?",
                "What colour are the flowers?",
            ),
            (
                "[Bees visit it all day|Sheep do not touch it|Birds carry its seeds], [since it "
                "has much nectar|because it tastes bitter|and so it spreads fast].",
                "How do animals deal with the plant?",
            ),
            (
                "[In the past|For centuries|In some villages] people made {use} from [its leaves|"
                "its roots|the dried flowers].",
                "What did people make from the plant?",
            ),
            (
                "[It needs little water|Water it every {2..9} days|Too much water harms it], and "
                "[full sun|half shade|a sheltered spot] suits it best.",
                "What does the plant need?",
            ),
            (
                "{botanist}, who first described it, [took it for a weed|drew it in {year}|named "
                "it after a {animal}].",
                "What did {botanist} do?",
            ),
            (
                "[It is now rare|It is still common|Its numbers are growing], [as fields are mown "
                "too early|because parks plant it|and picking it is not allowed].",
                "How common is the plant now?",
            ),
        ),
    ),
    Topic(
        "space note",
        {
            "planet": "[Kora|Velis|Tann|Orbis|Mirel|Dusk|Pallo] {2..30}",
            "star": "the star [Anthe|Brisa|Colm|Derra|Eos|Fenn]",
            "distance": "{4..95} light years",
            "year_length": "{3..900} days",
            "temperature": "{20..400} degrees",
            "team": (
                "[a school team from {town}|two astronomers from {town}|a group around {person}]"
            ),
            "moons": "[two|three|five|seven] moons",
        },
        (
            (
                "[{planet} is a planet that circles {star}, {distance} away from us|{distance} "
                "from Earth, the planet {planet} circles {star}|{team} found the planet {planet}, "
                "which circles {star} at a distance of {distance}].",
                "What is {planet}?",
                "How far away is it?",
            ),
            (
                "[A year there lasts {year_length}|It needs {year_length} for one round|One year "
                "on it takes {year_length}][, and one side is always dark|, and seasons do not "
                "exist|].",
                "How long is a year there?",
            ),
            (
                "[By day it reaches {temperature}|The surface is {temperature} hot|Temperatures "
                "rise to {temperature}], [so water cannot stay liquid|and at night it freezes|"
                "which melts some metals].",
                "How hot does it get?",
            ),
            (
                "It has {moons}, [one of them covered with ice|all of them small|and the largest "
                "has clouds].",
                "How many moons does it have?",
            ),
            (
                "[The discovery took|The search lasted] {2..9} [years|months|nights], [and was "
                "almost given up|and used an old telescope|because clouds were in the way].",
                "How long did the search take?",
            ),
            (
                "[Nobody can live there|Life is unlikely|Some hope to find life there], but [the "
                "air holds oxygen|scientists want to look closer|a probe could arrive in {2..9}00 "
                "years].",
                "Could there be life?",
            ),
            (
                "[The name comes from|It is named after] [a child's drawing|an old song|a "
                "character in a play|the dog of an astronomer].",
                "Where does the name come from?",
            ),
        ),
    ),
    Topic(
        "weather diary",
        {
            "place": "{town}",
            "writer": "{first}",
            "date": "{date}",
            "low": "{1..9} degrees",
            "high": "{10..34} degrees",
            "rain": "{2..60} millimetres",
            "wind": "[north|east|south|west] wind",
        },
        (
            (
                "[{date}, {place}: {low} in the morning and {high} at noon|today, {date}, it was "
                "{high} at noon in {place}, after only {low} at dawn|the day in {place}, {date}, "
                "began with {low} and ended with {high}].",
                "How warm was it at noon?",
                "How cold was it in the morning?",
                "Where was it measured?",
            ),
            (
                "[We had {rain} of rain|It rained {rain}|The glass shows {rain} of rain], [most "
                "of it before breakfast|all in one hour|more than in the whole of {month}].",
                "How much did it rain?",
            ),
            (
                "The {wind} [shook the windows|carried the smell of the sea|was gentle|brought "
                "dust], [and the laundry flew away|so {writer} stayed in|and kites were out].",
                "What did the wind do?",
            ),
            (
                "[Clouds looked like|In the west stood clouds like] [a row of sheep|towers|an old "
                "{animal}], [which means a change|so a storm may come|but nothing followed].",
                "What did the clouds look like?",
            ),
            (
                "[In the garden|By the pond|On the field], [the first {fruit} are ripe|frogs were "
                "loud|frost lay until ten|snow still covers the bench].",
                "What did the writer see outside?",
            ),
            (
                "[Neighbour|Old] {last} says [the winter will be long|it was warmer in {year}|the "
                "swallows know best].",
                "What does the neighbour say?",
            ),
            (
                "{writer} [wrote this by candle light|will check the gauge tomorrow|has kept this "
                "diary for {2..40} years].",
                "What do we learn about {writer}?",
            ),
        ),
    ),
    Topic(
        "pet column",
        {
            "pet": "[{animal}|rabbit|cat|dog|parrot|turtle]",
            "name": "[Biscuit|Pepper|Muffin|Shadow|Clover|Waffle|Juno|Pickle|Comet]",
            "owner": "{person}",
            "age": "{2..14} years",
            "weight": "{2..9} kilograms",
            "habit": (
                "[steals socks|opens doors|sleeps in the sink|barks at the moon|hides spoons|"
                "watches the washing machine|waits at the bus stop]"
            ),
            "vet": "Doctor {last}",
        },
        (
            (
                "[{name} is a {pet} that belongs to {owner} and {habit}|{owner} owns a {pet} "
                "called {name} that {habit}|everyone on the street knows {name}, the {pet} of "
                "{owner}, because it {habit}].",
                "What kind of animal is {name}?",
                "Who owns {name}?",
                "What does {name} do?",
            ),
            (
                "{name} is {age} old and weighs {weight}, [which is too much, says the vet|and is "
                "in good health|a little less than last year].",
                "How old is {name}?",
                "How much does {name} weigh?",
            ),
            (
                "[It came from a shelter|A neighbour gave it away|It was found on a ship], [thin "
                "and shy|with one blue eye|in a box of {fruit}].",
                "Where did {name} come from?",
            ),
            (
                "[Breakfast is|In the morning it gets|Its favourite food is] [oats with water|"
                "cooked carrots|a spoon of {food}|fish from the market], [but never sweets|and "
                "then it sleeps|served at {6..9} am].",
                "What does {name} eat?",
            ),
            (
                "{vet} [advises|recommends|asks for] [longer walks|a scale in the kitchen|a quiet "
                "corner|fewer treats].",
                "What does the vet advise?",
            ),
            (
                "[Once|Last {season}], it [ran away for two days|woke the house when a pipe broke|"
                "won a small prize|fell into the pond], [and came back dirty|and became famous|"
                "which nobody has forgotten].",
                "What happened once?",
            ),
            (
                "[If you meet it, do not run|Children may stroke it|It dislikes hats].",
                "How should people behave?",
            ),
        ),
    ),
    Topic(
        "nature note",
        {
            "animal": (
                "[grey|red|marsh|little|striped|northern] [heron|fox|beetle|owl|frog|lizard|hare|"
                "otter|finch]"
            ),
            "region": "the [hills|wetlands|forests|valleys|lakes] near {town}",
            "food": "[small fish|insects|seeds and berries|worms|grass and roots|snails]",
            "count": "{2..40}0",
            "weight": "{20..95}0 grams",
            "month": "{month}",
            "researcher": "{person}",
        },
        (
            (
                "[The {animal} lives in {region} and eats mostly {food}|in {region}, walkers can "
                "see the {animal}, an animal that feeds on {food}|few animals are as shy as the "
                "{animal}, which lives in {region} and eats {food}].",
                "What does the {animal} eat?",
                "Where does the {animal} live?",
            ),
            (
                "An adult weighs about {weight}[, and males are a little larger|, and it can live "
                "for {4..20} years|].",
                "How much does an adult weigh?",
            ),
            (
                "It [sleeps|rests|hides] [during the day and hunts at night|in hollow trees|under "
                "stones when it is hot|in a nest of leaves].",
                "Where or when does the animal rest?",
            ),
            (
                "The young are born in {month} and [stay with their mother for a few weeks|can "
                "move on their own after ten days|leave the nest before autumn].",
                "When are the young born?",
            ),
            (
                "[Its main enemies are|It is hunted by|It must watch out for] [large birds|wild "
                "cats|snakes], but [traffic is the bigger danger|dry summers harm it even more].",
                "Which dangers does the animal face?",
            ),
            (
                "{researcher} counted {count} of them last year, [more than ever before|fewer "
                "than the year before|about as many as usual].",
                "How many animals were counted?",
                "Who counted the animals?",
            ),
            (
                "Visitors [should stay on the path|must not feed it|are asked to keep dogs on a "
                "lead].",
                "What should visitors do?",
            ),
        ),
    ),
)
