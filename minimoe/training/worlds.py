"""The worlds in which the stories play: places, people, obstacles and what overcomes them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class World:
    """Everything a story needs to know about where it happens.

    obstacles: (what blocks the way, the tool that helps, how it helps).
    troubles: (what is wrong at home, the thing that would mend it, how it ends well).
    favours: (what a helper wishes for, why).
    """

    name: str
    home: tuple[str, ...]
    places: tuple[str, ...]
    roles: tuple[str, ...]
    helpers: tuple[str, ...]
    weather: tuple[str, ...]
    sights: tuple[str, ...]
    obstacles: tuple[tuple[str, str, str], ...]
    troubles: tuple[tuple[str, str, str], ...]
    favours: tuple[tuple[str, str], ...]


VILLAGE = World(
    "village",
    ("a village below the hills", "a village of seven houses", "a small village by a mill"),
    (
        "the mill",
        "the old well",
        "the market square",
        "the churchyard",
        "the stone bridge",
        "the far meadow",
        "the orchard",
        "the blacksmith's yard",
        "the duck pond",
    ),
    ("the baker's child", "a young shepherd", "the miller's apprentice", "a weaver", "a carpenter"),
    (
        "an old beekeeper",
        "the blacksmith",
        "a travelling tinker",
        "the grumpy miller",
        "a woman with a donkey cart",
    ),
    (
        "It had rained all night.",
        "The morning was cold and clear.",
        "A dry wind blew from the hills.",
        "Fog lay over the fields.",
        "It was the hottest day of the summer.",
    ),
    (
        "Swallows flew low over the grass.",
        "Somewhere a dog barked twice.",
        "Smoke rose from a chimney.",
        "The bell struck the hour.",
        "A cart stood empty by the road.",
    ),
    (
        ("a locked gate", "an iron key", "The key turned, and the gate swung open."),
        ("a deep ditch full of water", "a long plank", "The plank reached just across."),
        ("an angry goose", "a crust of bread", "The goose took the bread and forgot to be angry."),
        ("a hedge of thorns", "a pair of shears", "With the shears it took only a few cuts."),
    ),
    (
        (
            "the oven had cracked",
            "a bag of clay",
            "The crack was filled, and there was bread again.",
        ),
        ("the well had gone dry", "a longer rope", "The bucket reached the water far below."),
        (
            "the bell had lost its clapper",
            "a piece of good iron",
            "The bell rang out over the roofs.",
        ),
        ("a lamb was ill", "a bunch of bitter herbs", "By evening the lamb stood on its legs."),
    ),
    (
        ("a jar of honey", "the winter had been long"),
        ("a new handle for the axe", "the old one broke"),
        ("a warm loaf", "there had been no breakfast"),
        ("three candles", "the nights were dark"),
    ),
)  # fmt: skip
HARBOUR = World(
    "harbour",
    ("a harbour town on a rocky coast", "a fishing town", "a town at the end of the land"),
    ("the long pier", "the lighthouse", "the sail loft", "the fish market", "the black rocks",
     "the sand bank", "the customs house", "the small island", "the cave under the cliff"),
    ("a fisher's child", "the keeper's child", "a young sailor", "a boat builder", "a net maker"),
    ("an old captain", "a one-eyed fisherman", "the lighthouse keeper", "a woman who mended nets",
     "a diver"),
    ("The tide was going out.", "A storm had passed in the night.", "The sea lay flat as a plate.",
     "Grey clouds hung over the water.", "The wind came from the west."),
    ("Gulls screamed above the roofs.", "The masts creaked.", "A seal looked out of the waves.",
     "The air smelled of salt and tar.", "Far out a ship passed slowly."),
    (("a stretch of wild water", "a strong pair of oars",
      "Stroke by stroke the boat came through."),
     ("a thick bank of fog", "a brass horn",
      "The horn was answered from the shore, and that showed the way."),
     ("a chain across the channel", "a heavy hammer", "After nine blows the chain broke."),
     ("slippery rocks", "a pair of shoes with nails", "The nails held on the wet stone.")),
    (("the lamp of the lighthouse was out", "a can of oil", "The beam swept over the sea again."),
     ("the best boat had a leak", "a pot of tar", "The boat stayed dry, even in the waves."),
     ("a child had a high fever", "a bottle of medicine", "Next morning the fever was gone."),
     ("the nets were torn", "a roll of strong twine", "The nets came up heavy with fish.")),
    (("a sharp knife", "the old one lay at the bottom of the sea"), ("a bag of salt",
      "the fish would spoil"),
     ("a woollen cap", "the wind was cold"), ("a letter from the post office",
      "it was long awaited")),
)  # fmt: skip
FOREST = World(
    "forest",
    ("a hut at the edge of the forest", "a clearing among old oaks", "a tree house by a stream"),
    ("the hollow oak", "the waterfall", "the moss stones", "the fox's den", "the beaver dam",
     "the blueberry slope", "the dark valley", "the ant hill", "the charcoal burner's place"),
    ("a young squirrel", "a small bear", "a clever hare", "a hedgehog", "a shy deer"),
    ("an owl", "an old badger", "a raven with one white feather", "a toad", "a family of mice"),
    ("The leaves were turning yellow.", "Snow lay on the branches.",
     "The air was warm and full of seeds.",
     "Rain dripped from every leaf.", "The moon was still in the sky."),
    ("A woodpecker knocked somewhere.", "The stream talked to itself.",
     "A twig snapped in the dark.",
     "Mushrooms stood in a ring.", "A spider had spun its web across the path."),
    (("a stream that had grown wide", "a fallen branch",
      "The branch lay from bank to bank like a bridge."),
     ("a sleeping wolf", "a pair of soft slippers", "In the slippers no step could be heard."),
     ("a wall of brambles", "a thick coat", "The thorns could not get through the coat."),
     ("a pitch-dark hollow", "a jar of fireflies", "The fireflies lit every root and stone.")),
    (("the winter store was empty", "a sack of acorns", "There was enough to eat until spring."),
     ("the roof had blown away", "a bundle of reeds", "The new roof kept out wind and rain."),
     ("the little ones could not sleep", "a song that the wind knew",
      "At the second verse all of them slept."),
     ("the spring was full of mud", "a smooth white stone", "The water ran clear again.")),
    (("some ripe berries", "hunger makes one grumpy"), ("a soft feather", "the nest was hard"),
     ("a shiny button", "shiny things are a joy"), ("a piece of bark",
      "there was a hole in the door")),
)  # fmt: skip
CITY = World(
    "city",
    ("a tall house in a big city", "a flat above a bakery", "a street near the station"),
    ("the tram depot", "the roof garden", "the museum", "the night market", "the public library",
     "the railway station", "the city park", "the clock tower", "the underground passage"),
    ("a bicycle courier", "a piano student", "the caretaker's child", "a young photographer",
     "a cook"),
    ("a street musician", "a tram driver", "the librarian", "a night watchman",
     "a woman who sold maps"),
    ("It was rush hour.", "The lights had just gone on.", "The streets were wet and shiny.",
     "It was Sunday, and the shops were closed.", "The first snow turned grey at once."),
    ("A tram rang its bell.", "Someone practised the violin.", "Pigeons walked about like owners.",
     "A newspaper blew along the street.", "The smell of fresh coffee came from a door."),
    (("a door with a code", "a slip of paper with four numbers",
      "The lock clicked at the last number."),
     ("a barrier at the station", "a ticket", "The barrier opened with a beep."),
     ("a lift that did not work", "a fuse", "The lift hummed and began to rise."),
     ("a guard who let nobody in", "a visitor's badge",
      "The guard looked at the badge and nodded.")),
    (("the concert was in danger", "a missing page of music", "That evening the hall was full."),
     ("the heating was broken", "a small brass valve", "Soon every room was warm."),
     ("the shop would have to close", "a signed contract", "The shop kept its lights on."),
     ("the lost dog had not come home", "an old photograph for the posters",
      "Two days later the dog sat at the door.")),
    (("a hot tea", "the shift was long"), ("a new string", "the old one had snapped"),
     ("the evening paper", "the puzzle was waiting"), ("an umbrella", "it looked like rain")),
)  # fmt: skip
STATION = World(
    "space station",
    ("a station high above a blue planet", "a research base on a small moon", "an old cargo ship"),
    ("the engine room", "the greenhouse deck", "the observation dome", "the cargo bay",
     "the air lock",
     "the radio cabin", "the cold store", "the repair shop", "the outer ring"),
    ("a young pilot", "the second engineer", "a botanist", "a radio operator", "a repair robot"),
    ("a robot with a squeaky wheel", "the ship's doctor", "the chief engineer", "a retired captain",
     "a talking computer"),
    ("The sun rose for the ninth time that day.", "The lights were set to night.",
     "Small stones rattled against the hull.", "The planet below was covered by clouds.",
     "All day the engines had been silent."),
    ("A green lamp blinked.", "The air smelled of metal.", "Something hummed behind the wall.",
     "A pencil floated by.", "Stars stood in the window without a flicker."),
    (("a sealed hatch", "a magnetic card", "The hatch slid open with a sigh."),
     ("a corridor without air", "a fresh oxygen bottle",
      "The bottle lasted exactly to the other end."),
     ("a jammed door", "a hydraulic jack", "Slowly the jack pushed the door aside."),
     ("a field of loose cables", "a pair of rubber gloves",
      "With the gloves the sparks did no harm.")),
    (("the air was getting thin", "a new filter", "Everyone took a deep breath."),
     ("the tomatoes were dying", "a box of fertile soil",
      "A week later the first green leaf appeared."),
     ("the radio was silent", "a spare antenna", "A voice from home came out of the noise."),
     ("the ship drifted off its course", "a corrected star chart",
      "The ship turned back to its course.")),
    (("a drop of oil", "something had squeaked for weeks"), ("a ripe tomato",
      "tubes taste of nothing"),
     ("a charged battery", "the old one died"), ("a roll of tape", "tape mends everything")),
)  # fmt: skip
DESERT = World(
    "desert",
    ("an oasis with nine palms", "a town of clay houses", "a camp of traders"),
    ("the salt lake", "the red canyon", "the ruined tower", "the wind gate", "the camel market",
     "the second oasis", "the great dune", "the cave of drawings", "the dry river"),
    ("a caravan guide", "a well digger", "the trader's child", "a young camel driver",
     "a map maker"),
    ("an old trader", "a star watcher", "a salt carrier", "a blind singer", "a goat herder"),
    ("The sand was already hot.", "At night it had been bitterly cold.",
     "A yellow cloud stood in the south.",
     "Not a breath of wind moved.", "The stars were still bright."),
    ("A lizard ran over the stones.", "A kite circled high above.", "The dunes glowed red.",
     "Far off a bell tinkled.", "The footprints of a fox crossed the path."),
    (("a sandstorm", "a wide cloth", "Under the cloth one could wait until the storm was over."),
     ("a steep wall of rock", "a knotted rope", "Knot by knot the top came nearer."),
     ("a night without a moon", "a small oil lamp",
      "The lamp showed the path, one step at a time."),
     ("a stubborn camel in the narrow pass", "a handful of dates",
      "For the dates the camel walked on.")),
    (("the well was filled with sand", "a good shovel", "By noon there was water at the bottom."),
     ("the caravan had lost its way", "a copper compass",
      "The caravan reached the market in time."),
     ("the goats had no food", "a load of dry grass", "The goats ate and gave milk again."),
     ("nobody remembered the old song", "a scroll from the ruins",
      "Everybody sang it until late at night.")),
    (("a skin of water", "the way had been long"), ("a piece of salt", "the soup had no taste"),
     ("a new sandal", "one was lost in the sand"), ("a handful of figs", "figs were a rare treat")),
)  # fmt: skip
WORLDS = (VILLAGE, HARBOUR, FOREST, CITY, STATION, DESERT)
