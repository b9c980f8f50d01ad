"""Topics from offices, shops and companies. Pure data."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.topic import Topic

TOPICS = (
    Topic(
        "job posting",
        {
            "company": "{company}",
            "job": "{job}",
            "town": "{town}",
            "hours": "[10|15|20|25|30|35|40] hours a week",
            "pay": "{15..48} dollars an hour",
            "start": "{month} {1..28}",
            "contact": "{person}",
        },
        (
            (
                "[{company} is looking for a {job} in {town}, starting on {start}|do you want to "
                "work as a {job}? {company} has an open position in {town} from {start}|our "
                "office in {town} needs a {job}; the position at {company} starts on {start}].",
                "Which job is offered?",
                "Where is the job?",
                "When does the job start?",
            ),
            (
                "The position is for {hours} and pays {pay}[, plus travel costs|, with a rise "
                "after six months|].",
                "How much does the job pay?",
                "How many hours a week is the job?",
            ),
            (
                "[You should have|We expect|Applicants need] [two years of experience|a driving "
                "licence|good knowledge of {subject}|a calm way with customers] and [a friendly "
                "voice|an eye for detail|strong hands|patience].",
                "What should applicants bring?",
            ),
            (
                "[Your tasks will include|Each day you will be|The work means] [answering "
                "questions from {group}|checking deliveries|keeping the records in order|training "
                "new colleagues|planning the week].",
                "What are the tasks?",
            ),
            (
                "[In return, we offer|What you get is] [free lunch on {weekday}s|{24..32} days of "
                "holiday|a quiet office with a garden|a course of your choice each year].",
                "What does the company offer?",
            ),
            (
                "[Weekend work is rare|The shop is closed on {weekday}s|Remote work is possible "
                "on {weekday}s], [and nobody works at night|but please tell us if you need fixed "
                "hours].",
                "What does the posting say about working time?",
            ),
            (
                "Please send [your letter|a short letter and your papers|one page about yourself] "
                "to {contact} before [{weekday}|the end of the month|{start}].",
                "To whom should applications be sent?",
            ),
        ),
    ),
    Topic(
        "sales report",
        {
            "company": "{company}",
            "product": "{product}",
            "quarter": "the [first|second|third|fourth] quarter",
            "units": "{2..98},{100..999}",
            "growth": "{2..48} percent",
            "region": "the [northern|southern|eastern|western|coastal] region",
            "manager": "{person}",
        },
        (
            (
                "[In {quarter}, {company} sold {units} units of its {product}|{company} reports "
                "that it sold {units} pieces of its {product} in {quarter}|sales of the {product} "
                "from {company} reached {units} units in {quarter}].",
                "How many units were sold?",
                "Which product is the report about?",
                "Which quarter is described?",
            ),
            (
                "That is {growth} [more|less] than [a year ago|in the quarter before|planned].",
                "By how much did sales change?",
            ),
            (
                "[The strongest sales came from|Most of the change came from|Growth was fastest "
                "in] {region}, where [two new shops opened|a large hotel placed an order|prices "
                "were cut|an old rival closed].",
                "Which region is mentioned, and why?",
            ),
            (
                "[Costs rose slightly|Costs stayed flat|Delivery became more expensive], [mainly "
                "because of fuel|as wages went up|because packaging is now made of {material}].",
                "What happened to costs?",
            ),
            (
                "[Returns fell|Returns doubled|The number of returns did not change], and the "
                "most common complaint was [a missing screw|the slow delivery|the thin box|the "
                "loud motor].",
                "What was the most common complaint?",
            ),
            (
                "{manager}, head of [sales|the region|the board], [called the result solid|said "
                "the team had worked hard|was not satisfied].",
                "What did {manager} say?",
            ),
            (
                "For the next quarter, the company plans [a cheaper model|a campaign for {group}|"
                "a test in {town}|fewer discounts].",
                "What is planned for the next quarter?",
            ),
        ),
    ),
    Topic(
        "status report",
        {
            "system": "the [booking|payment|search|mail|login|reporting] [service|system|page]",
            "start": "{time}",
            "duration": "{2..95} minutes",
            "users": "{2..9}{0..9}0 users",
            "cause": (
                "[a full disk|an expired certificate|a wrong setting|a broken cable|a slow "
                "database query|an update that ran twice]"
            ),
            "engineer": "{person}",
            "ticket": "[OPS|NET|WEB]-{100..9999}",
        },
        (
            (
                "[At {start} on {weekday}, {system} stopped working for {duration}|{system} was "
                "down for {duration} on {weekday}, beginning at {start}|for {duration}, starting "
                "at {start}, {system} could not be reached].",
                "What stopped working?",
                "How long was the problem?",
                "When did it start?",
            ),
            (
                "[About {users} were affected|{users} saw an error page|we received complaints "
                "from {users}].",
                "How many users were affected?",
            ),
            (
                "[The cause was {cause}|The problem was traced to {cause}|It turned out that "
                "{cause} was to blame].",
                "What was the cause?",
            ),
            (
                "{engineer} [found the problem|restarted the servers|restored the last backup] "
                "and [informed the customers|wrote this report|opened ticket {ticket}].",
                "Who solved the problem, and how?",
            ),
            (
                "[No data was lost|A few messages were lost|Orders from that time were repeated "
                "by hand].",
                "Was any data lost?",
            ),
            (
                "[To prevent this in future|So that it does not happen again], the team will [add "
                "an alarm|test each change twice|write a checklist|replace the old hardware].",
                "What will be done to prevent it?",
            ),
            (
                "The follow-up is recorded in ticket {ticket}.",
                "In which ticket is the follow-up recorded?",
            ),
        ),
    ),
    Topic(
        "supplier email",
        {
            "sender": "{first}",
            "receiver": "{first}",
            "company": "{company}",
            "amount": "{2..9}0 [boxes|crates|rolls|bags]",
            "goods": (
                "[apples|flour|nails|paper cups|candles|tea|buttons|soap|seeds|screws|coffee|tiles|"
                "rice]"
            ),
            "date": "{date}",
            "number": "{100..999}-{10..99}",
        },
        (
            (
                "[Hi {receiver}, this is {sender} from {company} about your order of {amount} of "
                "{goods}|Dear {receiver}, thank you for ordering {amount} of {goods} from "
                "{company}|Hello {receiver}, {sender} from {company} here; you asked for {amount} "
                "of {goods}].",
                "Who wrote the email?",
                "What was ordered?",
                "Who receives the email?",
            ),
            (
                "[We can deliver on {date}|Delivery is planned for {date}|The truck will reach "
                "you on {date}][, some time before noon|, late in the afternoon|, if the roads "
                "are clear|].",
                "When is the delivery?",
            ),
            (
                "[Please note that|You should know that] [the price has gone up by {2..12} "
                "percent|we are short of drivers|half of the goods will come later|our warehouse "
                "has moved to {town}].",
                "What should the receiver know?",
            ),
            (
                "[If you need|In case you want] [a different size|another colour|a later date], "
                "[just reply to this message|call us before {weekday}|write to the office].",
                "What should the receiver do to change the order?",
            ),
            (
                "The invoice has the number {number} and is due [in {1..4}0 days|at the end of "
                "{month}|on delivery].",
                "What is the number of the invoice?",
                "When is the invoice due?",
            ),
            (
                "[As always, empty crates can be returned|This time, please keep the pallets|The "
                "driver will need a signature].",
                "What is said about the delivery itself?",
            ),
            ("[Best wishes|Many thanks|See you soon], {sender}.",),
        ),
    ),
    Topic(
        "workshop plan",
        {
            "topic": (
                "[public speaking|first aid|spreadsheets|conflict talks|photo editing|safe driving|"
                "project planning|time management]"
            ),
            "trainer": "{person}",
            "company": "{company}",
            "date": "{date}",
            "place": "{venue}",
            "seats": "{8..40} places",
            "fee": "{price}",
        },
        (
            (
                "[{company} offers a workshop on {topic} on {date}|on {date} there will be a "
                "workshop on {topic}, paid for by {company}|anyone at {company} who wants to "
                "learn about {topic} can join the workshop on {date}].",
                "What is the workshop about?",
                "When is the workshop?",
            ),
            (
                "The trainer is {trainer}, [who wrote a book about it|who used to be a {job}|a "
                "{job} from {town}].",
                "Who is the trainer?",
            ),
            (
                "[It takes place at {place}|We meet at {place}|The group will work at {place}] "
                "and [starts|begins] at {time}.",
                "Where does the workshop take place?",
                "At what time does it start?",
            ),
            (
                "There are only {seats}, so [sign up early|write to the {team} team soon|first "
                "come, first served].",
                "How many places are there?",
            ),
            (
                "[In the morning|Before lunch], [everyone tries short exercises|the group watches "
                "examples|we talk about mistakes]; [in the afternoon|later], [people work in "
                "pairs|each person gives a short talk|there is a small test].",
                "What happens in the morning and in the afternoon?",
            ),
            (
                "The fee of {fee} [covers lunch and a booklet|is paid by the company|is returned "
                "after the last session].",
                "What does the fee cover, or who pays it?",
            ),
            (
                "[Bring a laptop|Bring a pen and paper|No preparation is needed], and [wear "
                "comfortable shoes|turn off your phone|be ready to laugh].",
                "What should people bring or prepare?",
            ),
        ),
    ),
    Topic(
        "startup profile",
        {
            "company": "{company}",
            "founder": "{person}",
            "partner": "{person}",
            "town": "{town}",
            "founded": "20{10..24}",
            "staff": "{4..90} people",
            "idea": (
                "[an app that reminds people to water their plants|a box that keeps bread fresh|a "
                "map of quiet streets|bicycles for delivery drivers|soap without plastic|a website "
                "for borrowing tools|lamps that run on rain water|shoes made from old tyres]"
            ),
        },
        (
            (
                "[{founder} and {partner} founded {company} in {town} in {founded}|in {founded}, "
                "{founder} met {partner} in {town}, and soon they started {company}|{company}, a "
                "young firm from {town}, was started by {founder} and {partner} in {founded}].",
                "Who founded the company?",
                "When was the company founded?",
                "Where is the company from?",
            ),
            (
                "[Their idea was|They wanted to sell|Its first product was] {idea}.",
                "What was the idea?",
            ),
            (
                "[Banks said no|The first model broke|For a year they earned nothing], [but a "
                "neighbour lent them money|but they did not give up|so they worked in a garage].",
                "Which problem did they have at first?",
            ),
            (
                "[Today {staff} work there|Now the firm has {staff}|By now {staff} have a job "
                "there], and [half of them are women|the youngest is {18..22}|most work from "
                "home].",
                "How many people work there?",
            ),
            (
                "[Customers like|Reviews praise|People talk about] [the low price|the funny "
                "videos|the quick answers|the honest advertising].",
                "What do customers like?",
            ),
            (
                "[A larger company|A rival from {town}|An investor] [offered to buy it|copied the "
                "idea|wants to join], [but {founder} refused|which {partner} finds flattering|and "
                "talks go on].",
                "What did others want to do?",
            ),
            (
                "The next step is [a shop in {town}|a second product|selling abroad|a prize for "
                "students].",
                "What is the next step?",
            ),
        ),
    ),
    Topic(
        "memo",
        {
            "company": "{company}",
            "team": "{team}",
            "author": "{person}",
            "date": "{date}",
            "room": "room {2..40}",
            "days": "[two|three|four|five|six|ten]",
            "tool": "[Planwise|Tasknest|Notegrid|Shiftly|Deskmap|Fileport]",
        },
        (
            (
                "[From {date}, the {team} team at {company} will use {tool} for all its requests|"
                "{company} is moving its {team} team to {tool} on {date}|starting {date}, "
                "everyone in the {team} team of {company} will work with {tool}].",
                "[Which team|What team] will use {tool}?",
                "When does the change [start|take place]?",
                "Which company is the text about?",
            ),
            (
                "[The old system was slow and often lost files|many people said that the old "
                "forms took too long|last year the team spent hours each week on copying data by "
                "hand].",
                "What was wrong with the old way of working?",
            ),
            (
                "{author} will [lead the training|run the training sessions|show the new steps] "
                "in {room}[, and each session lasts about an hour|, with coffee for everyone|].",
                "Who leads the training?",
                "Where does the training take place?",
            ),
            (
                "[Please finish open requests at least {days} days before the change|open "
                "requests should be closed {days} days earlier|nobody can add new entries in the "
                "last {days} days before the switch].",
                "How many days before the change must requests be closed?",
            ),
            (
                "Old records [will stay readable until the end of the year|can still be opened, "
                "but not changed|will be moved over a weekend].",
                "What happens to the old records?",
            ),
            (
                "[Managers should check|Each manager must check|Team leaders need to confirm] "
                "that all new members have [an account|a password|access].",
                "What should managers check?",
            ),
            ("Questions can be sent to {author}.", "Who can answer questions?"),
        ),
    ),
    Topic(
        "product note",
        {
            "company": "{company}",
            "product": "{product}",
            "model": "[Nova|Terra|Pico|Luma|Orbit|Aero|Vela|Rondo] {2..90}",
            "price": "{price}",
            "material": "{material}",
            "weight": "{2..9}{10..99} grams",
            "color": "{color}",
            "warranty": "[one year|two years|three years|five years]",
        },
        (
            (
                "[The {model} is a new {product} from {company} and costs {price}|{company} has "
                "announced the {model}, a {color} {product} for {price}|this {month}, {company} "
                "brings out a {product} called the {model}; its price is {price}].",
                "What is the name of the product?",
                "How much does it cost?",
                "Who makes it?",
            ),
            (
                "It is made of {material} and weighs {weight}[, so it is easy to carry|, which is "
                "less than the older model|].",
                "What is it made of?",
                "How much does it weigh?",
            ),
            (
                "[Testers liked|Early buyers praised|Most reviewers liked] its [simple design|"
                "quiet sound|soft grip|strong base|clear manual] but [found|said] [the box hard "
                "to open|the colour a little dull|the cable too short|the cover difficult to "
                "clean].",
                "What did people like?",
                "What did people dislike?",
            ),
            (
                "The {color} version [sells best|is sold only online|will arrive later in the "
                "year|was asked for by many customers].",
                "What does the text say about the {color} version?",
            ),
            (
                "The warranty [lasts|covers] {warranty}[ and covers all parts|, and repairs are "
                "free during that time|].",
                "How long is the warranty?",
            ),
            (
                "[To clean it, use a damp cloth and no soap|it should be kept dry and away from "
                "strong heat|after each use, wipe it and let it dry].",
                "How should the product be cared for?",
            ),
            ("Spare parts can be ordered [by phone|on the website|in every shop].",),
        ),
    ),
    Topic(
        "customer message",
        {
            "customer": "{person}",
            "company": "{company}",
            "product": "{product}",
            "order": "{10..99}-{1000..9999}",
            "date": "{date}",
            "price": "{price}",
            "problem": (
                "[it arrived with a crack|one part was missing|it was the wrong colour|it stopped "
                "working after a week|the box was empty|it makes a loud noise]"
            ),
        },
        (
            (
                "[Hello, my name is {customer} and I bought a {product} from {company} on {date}|"
                "dear {company}, I ordered a {product} on {date}; my name is {customer}|this is "
                "{customer}, and I am writing about the {product} I ordered from {company} on "
                "{date}].",
                "Who wrote the message?",
                "What did the customer buy?",
                "When was it ordered?",
            ),
            (
                "[Sadly|Unfortunately|I am sorry to say that], {problem}.",
                "What is the problem with the product?",
            ),
            (
                "The order number is {order}[, and I paid {price}| and the price was {price}|].",
                "What is the order number?",
            ),
            (
                "[I called twice, but nobody answered|I already wrote an email last week|your "
                "chat told me to wait], [and I still have no answer|which did not help].",
                "What has the customer tried?",
            ),
            (
                "[I would like|I want|I hope to get] [my money back|a new one|a repair|a "
                "discount] [by {weekday}|as soon as possible|before my holiday].",
                "What does the customer want?",
            ),
            (
                "[Until now I was always happy with your shop|My family has shopped with you for "
                "years|The delivery itself was fast and friendly].",
                "What does the customer say that is positive?",
            ),
            ("[Thank you for your help|I look forward to your reply|Kind regards].",),
        ),
    ),
    Topic(
        "meeting notes",
        {
            "chair": "{person}",
            "writer": "{first}",
            "project": "[Lantern|Compass|Harvest|Bluebird|Anchor|Pebble|Meadow]",
            "date": "{date}",
            "budget": "{11..98},000 dollars",
            "city": "{town}",
            "deadline": "{month} {1..28}",
        },
        (
            (
                "[On {date}, {chair} opened the meeting about project {project}|the meeting on "
                "project {project} was held on {date} and led by {chair}|{chair} led the {date} "
                "meeting, which was about project {project}].",
                "Who led the meeting?",
                "What was the meeting about?",
                "When was the meeting?",
            ),
            (
                "The group [agreed on|approved|discussed] a budget of {budget}[, a little less "
                "than planned|, which includes travel|].",
                "How large is the budget?",
            ),
            (
                "[The first version must be ready by {deadline}|Everyone accepted {deadline} as "
                "the deadline|The deadline was moved to {deadline}].",
                "What is the deadline?",
            ),
            (
                "{writer} will [write the report|call the printers|prepare the slides|book the "
                "rooms] and [send it to the group|share the result on {weekday}].",
                "What will {writer} do?",
            ),
            (
                "[The biggest risk is|The main worry was|People worried about] [a late delivery|a "
                "lack of staff|the rising price of paper|the old software].",
                "What is the main risk?",
            ),
            (
                "[A test in {city} went well|The office in {city} asked for more time|Visitors "
                "from {city} liked the idea], [so no change is needed|and a second test will "
                "follow].",
                "What is said about {city}?",
            ),
            (
                "The next meeting is [in two weeks|on {weekday}|after the holidays].",
                "When is the next meeting?",
            ),
        ),
    ),
    Topic(
        "shop portrait",
        {
            "owner": "{person}",
            "shop": (
                "[Corner|Morning|Lantern|Copper|Willow|Paper|Sunny] [Cup|Shelf|Oven|Thread|Spoon|"
                "Basket]"
            ),
            "kind": "[bakery|bookshop|cafe|flower shop|bicycle shop|tea house|toy shop]",
            "town": "{town}",
            "opened": "20{10..24}",
            "staff": "[three|four|six|eight|nine] people",
            "special": (
                "[coffee|lemon cake|handwritten cards|window display|friendly cat|evening concerts|"
                "mint tea|low prices|wooden toys]"
            ),
        },
        (
            (
                "[{owner} opened the {shop}, a {kind} in {town}, in {opened}|the {shop} is a "
                "{kind} in {town} that {owner} opened in {opened}|in {opened}, {owner} left an "
                "office job and opened a {kind} called the {shop} in {town}].",
                "Who opened the {shop}?",
                "What kind of shop is it?",
                "When did it open?",
            ),
            (
                "[It is known for|People come for|Most customers talk about] its {special}[, "
                "which the whole street loves|, and has been from the start|].",
                "What is the shop known for?",
            ),
            (
                "{staff} work there, [most of them students|some since the first day|all from the "
                "same street].",
                "How many people work there?",
            ),
            (
                "[The first year was hard|At first few customers came|The start was slow], "
                "because [the street was closed for repairs|rents were high|nobody knew the "
                "place].",
                "Why was the start difficult?",
            ),
            (
                "[A newspaper article|A local singer|A rainy summer|A school project] [changed "
                "that|brought new customers|made the shop popular].",
                "What made the shop popular?",
            ),
            (
                "It is open [every day except {weekday}|from {7..10} am to {4..8} pm|only in the "
                "afternoon].",
                "When is the shop open?",
            ),
            (
                "Next year {owner} wants to [open a second shop|hire a baker|give evening classes|"
                "add a small terrace].",
                "What does {owner} want to do next year?",
            ),
        ),
    ),
)
