"""Word lists that the generated worlds share, and names made up on the spot."""

import random

WOMEN = """Ada Aiko Alba Anna Asha Carla Clara Dana Dina Ela Emma Esra Farah Fiona Flora Gita
Greta Hana Ida Ines Iris Jana June Kira Leila Lena Lidia Lina Lucy Maja Maria Mei Mila Mina Mona
Nadia Nina Nora Olga Paula Petra Pia Priya Rosa Sara Selma Sofia Tess Tina Uma Vera Yara
Zoe""".split()
MEN = """Amir Arjun Ben Bilal Bruno Chen Dario Diego Edgar Elias Emil Felix Hugo Ivan Jonas
Jorge Kai Karim Lars Leo Luca Marco Mateo Max Nils Noah Oscar Otto Pedro Ravi Rui Samir Sven
Tariq Theo Tom Victor Wei Yusuf""".split()
PEOPLE = sorted(WOMEN + MEN)
COLOURS = """red blue green yellow orange purple pink brown black white grey golden silver
turquoise violet scarlet olive cream navy copper""".split()
ROOMS = """kitchen attic garden cellar garage hall library bathroom bedroom office pantry shed
porch workshop studio balcony barn greenhouse laundry classroom""".split()
THINGS = """lamp ladder basket drum kettle map key umbrella suitcase clock guitar blanket mirror
bucket camera telescope notebook bicycle toolbox scarf lantern teapot hammer vase chessboard
radio kite compass backpack rope trumpet carpet painting saddle wheel""".split()
ANIMALS = """cat dog parrot rabbit goat horse turtle hamster duck pony goose lizard donkey crow
hedgehog ferret""".split()
FOODS = """soup rice lentils pancakes noodles dumplings olives cheese plums bread mushrooms
honey figs pasta curry salad beans cherries walnuts porridge couscous pears""".split()
COUNTABLE = """chairs boxes apples bottles candles plates books pencils lemons cups stones
marbles tickets buttons ropes eggs tiles coins shells jars""".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
JOBS = """baker carpenter nurse pilot teacher gardener sailor painter plumber farmer tailor
librarian driver cook doctor electrician musician beekeeper potter clerk""".split()
EVENTS = """meeting concert party race exam market wedding lesson picnic match parade auction
dinner lecture rehearsal""".split()
DOORS = """shed safe gate garage locker cellar archive tower boathouse vault""".split()
HOBBIES = """chess painting rowing knitting climbing pottery sailing cycling fishing dancing
singing juggling gardening archery fencing origami""".split()
SYLLABLES = """ba be bo bra da de dor du el en fa fen ga gor ha hel il ka ken kor la len lo lun
ma mer mi mor na nel no or pa pel ra ren ri ro sa sel so ta tel ti to tor va vel vi vo
wen za zo""".split()
TOWN_ENDS = "ville ford haven mouth wick stad burg dale field port mere by ton bridge".split()


def made_up_name(rng: random.Random) -> str:
    """A name that is in no list, for a pet or a boat: it can only be remembered, not guessed."""
    return "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 3))).capitalize()


def made_up_town(rng: random.Random) -> str:
    """A town name such as `Korwick`."""
    start = "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(1, 2)))
    return start.capitalize() + rng.choice(TOWN_ENDS)


def article(noun: str) -> str:
    """`a lamp`, `an umbrella`."""
    return ("an " if noun[0].lower() in "aeiou" else "a ") + noun


def listing(items: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]
