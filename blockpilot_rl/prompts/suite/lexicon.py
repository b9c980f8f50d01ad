"""The words that fill the slots of English templates: pure data, all invented or everyday."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def words(text: str) -> tuple[str, ...]:
    """Split a list of words at its commas."""
    return tuple(word.strip() for word in text.split(","))


LEXICON: Mapping[str, Sequence[str]] = {
    "first": words(
        "Anna, Ben, Clara, David, Elena, Felix, Grace, Hugo, Iris, Jonas, Kira, Leo, Maya, Nils, "
        "Olga, Paul, Rosa, Sam, Tara, Victor, Wanda, Yusuf, Zoe, Amir, Bianca, Carlos, Dina, Emil, "
        "Farah, Greta, Hana, Ivan, Jade, Karim, Lena, Marco, Nora, Oscar, Priya, Ravi, Sofia, Theo"
    ),
    "last": words(
        "Abbott, Berger, Castell, Dorman, Eklund, Farrow, Grover, Hale, Ibarra, Jensen, Kowal, "
        "Lindqvist, Marlow, Novak, Okoro, Patel, Quist, Rossi, Sandoval, Tanaka, Ulrich, Vance, "
        "Whitlock, Yilmaz, Zeller, Brandt, Costa, Duval, Fenwick, Moreau"
    ),
    "person": ("{first} {last}",),
    "town": words(
        "Alderbrook, Bellmere, Cinderford Bay, Dunmoor, Eastwick Falls, Fernhill, Glenhaven, "
        "Harrowgate Point, Inverley, Juniper Bridge, Kestrel Bay, Larkfield, Millbrook, Northam, "
        "Oakridge, Pinewater, Quarry Hill, Rosewood, Silverton, Thornbury, Upper Marsh, Vale End, "
        "Westbrook, Yarrow, Stonebridge, Maplewood, Greycliff, Sandholm"
    ),
    "company": (
        "[Bright|Silver|North|Blue|Green|Clear|Red|Swift|Stone|Sun|River|Iron|Maple|Harbor|Summit]"
        "[leaf|line|point|gate|field|wave|path|works|stone|bridge] "
        "[Foods|Tools|Labs|Systems|Books|Energy|Travel|Furniture|Health|Logistics|Studios|"
        "Textiles]",
    ),
    "job": words(
        "teacher, nurse, baker, engineer, gardener, pilot, carpenter, librarian, farmer, chef, "
        "doctor, painter, mechanic, tailor, fisher, programmer, musician, bus driver, shopkeeper, "
        "architect, scientist, plumber, journalist, firefighter, electrician, photographer"
    ),
    "animal": words(
        "fox, owl, rabbit, turtle, bear, hedgehog, dolphin, crow, cat, dog, mouse, otter, penguin, "
        "squirrel, elephant, whale, horse, frog, goat, duck, beaver, lion, wolf, parrot, snail"
    ),
    "color": words(
        "red, blue, green, yellow, orange, purple, white, black, brown, pink, grey, silver, golden"
    ),
    "mood": words(
        "happy, sad, funny, calm, mysterious, hopeful, exciting, gentle, dreamy, brave, cheerful, "
        "quiet, warm, spooky, silly, thoughtful"
    ),
    "place": words(
        "a small village, a busy city, a quiet forest, an old castle, an island village, a "
        "mountain "
        "hut, a space station, a snowy town, a deep cave, a beach house, a train station, a little "
        "bakery, a big library, a farmhouse, a desert camp, a lighthouse, a hidden garden, a "
        "harbour town, "
        "a school, an empty theatre, a market hall, a river boat"
    ),
    "object": words(
        "a golden key, a broken clock, an old map, a lost letter, a magic stone, a red umbrella, "
        "a talking book, a tiny lamp, a silver ring, a paper boat, a strange seed, a wooden box, "
        "a blue bicycle, a music box, a locked door, a warm scarf, a kite, a cracked mirror, "
        "a secret recipe, a glass marble, an old radio, a pocket watch"
    ),
    "theme": words(
        "friendship, courage, kindness, honesty, patience, family, hope, curiosity, trust, home, "
        "sharing, hard work, forgiveness, teamwork, growing up, saying goodbye"
    ),
    "season": words("spring, summer, autumn, winter"),
    "weekday": words("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"),
    "month": words(
        "January, February, March, April, May, June, July, August, September, October, November, "
        "December"
    ),
    "date": ("{month} {1..28}", "{1..28} {month}", "{weekday}, {month} {1..28}"),
    "time": (
        "[{7..11} am|{1..9} pm]",
        "[{7..11}:[15|30|45] am|{1..9}:[15|30|45] pm]",
        "{8..20}:[00|15|30|45]",
    ),
    "year": ("19{50..99}", "20{10..24}"),
    "price": ("${5..95}", "${5..99}.[50|99|25|95]", "{10..400} dollars"),
    "fruit": words(
        "apples, oranges, pears, bananas, plums, peaches, lemons, cherries, grapes, melons, mangoes"
    ),
    "thing": words(
        "books, pencils, marbles, stickers, cookies, eggs, tickets, boxes, bottles, coins, cards, "
        "candles, buttons, flowers, balloons, shells, cups, chairs, toys, stamps, notebooks, lamps"
    ),
    "food": words(
        "pancakes, vegetable soup, fried rice, apple pie, tomato pasta, bread, an omelette, "
        "a fruit salad, a cheese sandwich, lentil curry, mashed potatoes, chocolate cake, "
        "porridge, "
        "a green salad, pizza, mushroom risotto, banana bread, tacos, a smoothie, potato soup"
    ),
    "hobby": words(
        "painting, running, chess, gardening, photography, cooking, swimming, hiking, knitting, "
        "playing the guitar, cycling, bird watching, reading, dancing, fishing, drawing, yoga, "
        "learning a language, camping, pottery, playing the piano, writing, board games, baking"
    ),
    "subject": words(
        "mathematics, history, biology, geography, physics, chemistry, music, art, English, "
        "computer science, economics, astronomy, French, Spanish"
    ),
    "product": words(
        "backpack, desk lamp, water bottle, kettle, bicycle helmet, pair of headphones, tent, "
        "office chair, garden hose, toaster, raincoat, keyboard, blender, alarm clock, travel mug, "
        "wall clock, sleeping bag, coffee grinder, bookshelf, hand mixer, camera, fan, rain jacket"
    ),
    "material": words(
        "aluminium, bamboo, recycled plastic, cotton, steel, oak wood, nylon, glass, wool, cork"
    ),
    "event": words(
        "book fair, food festival, chess tournament, science night, art exhibition, charity run, "
        "garden show, film evening, craft market, jazz concert, bicycle race, poetry reading, "
        "cooking class, photo walk, open day, repair cafe, kite festival, language exchange"
    ),
    "venue": words(
        "the town hall, the central library, the old market square, the community centre, "
        "the riverside park, the school gym, the main theatre, the botanical garden, the museum, "
        "the harbour hall, the sports ground, the railway depot"
    ),
    "team": words(
        "sales, support, design, marketing, finance, research, logistics, product, training, "
        "human resources, quality, engineering"
    ),
    "concept": words(
        "gravity, photosynthesis, inflation, a rainbow, electricity, a volcano, the water cycle, "
        "friction, an earthquake, democracy, a magnet, recycling, the internet, a vaccine, sleep, "
        "a budget, climate, a fossil, sound, a computer, evaporation, an algorithm, trade, "
        "an eclipse, a tide, a battery, oxygen, a glacier, a password, teamwork, a shadow, "
        "a database, a telescope, digestion, a compass, a variable in programming, a lever, "
        "memory, a bridge, a solar panel, wind, an ecosystem, interest on a loan, a thermometer, "
        "a map"
    ),
    "goal": words(
        "sleep better, learn to cook, save money, read more books, drink more water, get fit, "
        "learn Spanish, keep the house tidy, make new friends, grow tomatoes, wake up early, "
        "study for an exam, spend less time on the phone, run five kilometres, write a diary, "
        "speak in public, eat more vegetables, plan a trip, find a job, remember names, "
        "learn to swim, take better photos, stay calm before a test, start a small garden"
    ),
    "rhyme": words(
        "cat, star, tree, rain, house, light, day, blue, moon, sand, bell, cake, road, snow, king, "
        "boat, hill, nose, night, spoon"
    ),
    "group": words(
        "children, beginners, students, busy parents, older people, new employees, teenagers, "
        "travellers, first-time users, neighbours"
    ),
}
