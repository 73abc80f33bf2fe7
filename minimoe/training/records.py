"""The json domain: records and tool calls that follow the schemas of `schemas.py`.

A document is a line that says what is wanted, then the JSON:

    record: person                      a record, on one line or indented
    {"id": 4711, ...}

    records: person                     a list of two to eight records
    [{"id": 4711, ...}, ...]

    tool: set_timer                     a call, its arguments taken from the request
    request: Set a timer of 20 minutes for the bread.
    {"tool": "set_timer", "arguments": {"minutes": 20, "label": "bread"}}
"""

import json
import random
from collections.abc import Callable, Iterator

from minimoe.training import words as w
from minimoe.training.schemas import RECORDS, SCHEMAS, TOOLS

BY = ("train", "bus", "boat", "bike")
GENRES = ("story", "travel", "history", "poems", "science", "art")
LABELS = ("bug", "docs", "build", "speed", "question", "design", "safety", "later")
STREETS = ("Mill Lane", "Station Road", "High Street", "River Walk", "Park Avenue", "Church Hill",
           "Harbour Street", "Oak Road", "Garden Row", "Bridge Street")  # fmt: skip
PROBLEMS = ("does not start", "is too slow", "shows no text", "loses its settings", "makes a noise",
            "stops after a minute", "needs a new label", "is missing a part")  # fmt: skip
MESSAGES = ("I will be late", "the key is under the mat", "dinner is ready", "I will call tonight",
            "the train was cancelled", "the map is in the car", "we meet at the gate",
            "the parcel has arrived")  # fmt: skip
SERVICES = ("search", "mail", "orders", "login", "images", "billing", "maps", "chat")


def _date(rng: random.Random) -> str:
    return f"20{rng.randint(20, 29)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def _time(rng: random.Random) -> str:
    return f"{rng.randint(0, 23):02d}:{rng.randrange(0, 60, 5):02d}"


def _some(rng: random.Random, items, low: int, high: int) -> list:
    return rng.sample(list(items), rng.randint(low, high))


def _price(rng: random.Random, high: int) -> float:
    return round(rng.uniform(0.5, high), 2)


# ---- records


def person(rng: random.Random) -> dict:
    """A person with contact and address."""
    first, last, town = rng.choice(w.PEOPLE), w.made_up_name(rng), w.made_up_town(rng)
    return {
        "id": rng.randint(1000, 9999),
        "name": f"{first} {last}",
        "age": rng.randint(18, 90),
        "email": f"{first}.{last}@{rng.choice(('mail', 'post', town))}.org".lower(),
        "address": {
            "street": rng.choice(STREETS),
            "number": rng.randint(1, 199),
            "town": town,
        },
        "tags": _some(rng, w.HOBBIES, 0, 4),
    }


def order(rng: random.Random) -> dict:
    """An order of one to five things."""
    names = _some(rng, w.THINGS, 1, 5)
    return {
        "order_id": f"A-{rng.randint(10000, 99999)}",
        "customer": rng.choice(w.PEOPLE),
        "date": _date(rng),
        "items": [
            {"name": name, "quantity": rng.randint(1, 20), "price": _price(rng, 99)}
            for name in names
        ],
        "paid": rng.random() < 0.5,
        "status": rng.choice(("new", "packed", "sent", "returned")),
    }


def sensor(rng: random.Random) -> dict:
    """A sensor and its readings, an hour apart."""
    unit, low, high = rng.choice((("C", 5, 35), ("%", 20, 90), ("lux", 50, 900), ("ppm", 350, 999)))
    room, hour = rng.choice(w.ROOMS), rng.randint(0, 17)
    return {
        "sensor": f"{room}-{rng.randint(10, 99)}",
        "room": room,
        "unit": unit,
        "readings": [
            {"time": f"{hour + i:02d}:00", "value": round(rng.uniform(low, high), 1)}
            for i in range(rng.randint(2, 6))
        ],
        "alarm": rng.random() < 0.2,
    }


def book(rng: random.Random) -> dict:
    """A book of a library."""
    return {
        "title": f"The {rng.choice(w.COLOURS).title()} {rng.choice(w.THINGS).title()}",
        "author": {"first": rng.choice(w.PEOPLE), "last": w.made_up_name(rng)},
        "year": rng.randint(1900, 2026),
        "pages": rng.randint(20, 900),
        "genres": _some(rng, GENRES, 1, 3),
        "lent_to": rng.choice(w.PEOPLE) if rng.random() < 0.4 else None,
    }


def trip(rng: random.Random) -> dict:
    """A trip in legs from town to town."""
    stops = [w.made_up_town(rng) for _ in range(rng.randint(2, 5))]
    legs = [
        {"start": a, "end": b, "by": rng.choice(BY), "leaves": _time(rng),
         "minutes": rng.randrange(10, 300, 5)}
        for a, b in zip(stops, stops[1:], strict=False)
    ]  # fmt: skip
    return {
        "trip": rng.randint(100, 999),
        "legs": legs,
        "travellers": _some(rng, w.PEOPLE, 1, 4),
        "price": _price(rng, 300),
    }


def recipe(rng: random.Random) -> dict:
    """A recipe with amounts in grams."""
    foods = _some(rng, w.FOODS, 2, 6)
    return {
        "name": f"{foods[0]} with {foods[1]}",
        "serves": rng.randint(1, 12),
        "ingredients": [{"item": food, "grams": rng.randrange(10, 900, 10)} for food in foods],
        "minutes": rng.randrange(5, 120, 5),
        "vegetarian": rng.random() < 0.5,
    }


def ticket(rng: random.Random) -> dict:
    """A ticket about something broken, with comments."""
    thing = rng.choice(w.THINGS)
    return {
        "ticket": rng.randint(1, 9999),
        "title": f"{thing} {rng.choice(PROBLEMS)}",
        "priority": rng.choice(("low", "normal", "high")),
        "assigned": rng.choice(w.PEOPLE) if rng.random() < 0.7 else None,
        "labels": _some(rng, LABELS, 0, 3),
        "comments": [
            {"by": rng.choice(w.PEOPLE), "text": f"the {thing} {rng.choice(PROBLEMS)} here too"}
            for _ in range(rng.randint(0, 3))
        ],
        "open": rng.random() < 0.6,
    }


def config(rng: random.Random) -> dict:
    """Settings of a service."""
    service = rng.choice(SERVICES)
    return {
        "service": service,
        "host": f"{service}.{rng.choice(('local', 'example', 'test'))}",
        "port": rng.randint(1024, 65535),
        "retries": rng.randint(0, 10),
        "timeout_s": rng.choice((0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)),
        "features": {key: rng.random() < 0.5 for key in ("cache", "metrics", "trace")},
        "paths": [f"/{service}/{part}" for part in _some(rng, ("v1", "v2", "data", "log"), 1, 3)],
    }


# ---- tool calls: (request, arguments)


def get_weather(rng: random.Random) -> tuple[str, dict]:
    """A request for the weather, and the arguments of its call."""
    town, day = w.made_up_town(rng), rng.choice(w.DAYS)
    unit = rng.choice(("celsius", "kelvin"))
    asked = rng.choice(("What is the weather in {t} on {d}, in {u}?",
                        "Will it be warm in {t} on {d}? Give it in {u}."))  # fmt: skip
    return asked.format(t=town, d=day, u=unit), {"town": town, "day": day.lower(), "unit": unit}


def book_table(rng: random.Random) -> tuple[str, dict]:
    """A request for a table, and the arguments of its call."""
    place = f"{rng.choice(w.COLOURS).title()} {rng.choice(w.ANIMALS).title()}"
    people, day, time = rng.randint(2, 12), rng.choice(w.DAYS), _time(rng)
    asked = rng.choice(("Book a table for {n} at the {p} on {d} at {t}.",
                        "We are {n} people. Is there a table at the {p} on {d}, {t}?"))  # fmt: skip
    arguments = {"place": place, "people": people, "day": day.lower(), "time": time}
    return asked.format(n=people, p=place, d=day, t=time), arguments


def send_message(rng: random.Random) -> tuple[str, dict]:
    """A request to tell someone something, and the arguments of its call."""
    to, text = rng.choice(w.PEOPLE), rng.choice(MESSAGES)
    asked = rng.choice(
        ("Tell {to} that {text}.", "Write to {to}: {text}.", "Let {to} know: {text}.")
    )
    return asked.format(to=to, text=text), {"to": to, "text": text}


def set_timer(rng: random.Random) -> tuple[str, dict]:
    """A request for a timer, and the arguments of its call."""
    minutes, label = rng.randint(1, 90), rng.choice(w.FOODS)
    asked = rng.choice(("Set a timer of {m} minutes for the {x}.", "The {x} need {m} minutes."))
    return asked.format(m=minutes, x=label), {"minutes": minutes, "label": label}


def find_route(rng: random.Random) -> tuple[str, dict]:
    """A request for a way between towns, and the arguments of its call."""
    start, end, by = w.made_up_town(rng), w.made_up_town(rng), rng.choice(BY)
    asked = rng.choice(
        ("How do I get from {s} to {e} by {b}?", "I want to go to {e} from {s} by {b}.")
    )
    return asked.format(s=start, e=end, b=by), {"start": start, "end": end, "by": by}


def set_lamp(rng: random.Random) -> tuple[str, dict]:
    """A request to change a lamp, and the arguments of its call."""
    room, colour, level = rng.choice(w.ROOMS), rng.choice(w.COLOURS), rng.randrange(0, 101, 5)
    asked = rng.choice(("Make the lamp in the {r} {c}, at {n} percent.",
                        "Set the {r} to {c} light, {n} percent."))  # fmt: skip
    arguments = {"room": room, "colour": colour, "brightness": level}
    return asked.format(r=room, c=colour, n=level), arguments


def add_event(rng: random.Random) -> tuple[str, dict]:
    """A request for an entry in the calendar, and the arguments of its call."""
    title, date, time = rng.choice(w.EVENTS), _date(rng), _time(rng)
    guests = _some(rng, w.PEOPLE, 0, 4)
    company = f" with {w.listing(guests)}" if guests else ""
    asked = f"Put the {title}{company} into the calendar: {date}, {time}."
    return asked, {"title": title, "date": date, "time": time, "guests": guests}


def add_item(rng: random.Random) -> tuple[str, dict]:
    """A request to list things to buy, and the arguments of its call."""
    names = _some(rng, w.COUNTABLE, 1, 4)
    items = [{"name": name, "quantity": rng.randint(2, 20)} for name in names]
    wanted = w.listing([f"{item['quantity']} {item['name']}" for item in items])
    return rng.choice(("We need {x}.", "Put {x} on the list.")).format(x=wanted), {"items": items}


MAKERS: dict[str, Callable] = {name: globals()[name] for name in RECORDS}
CALLERS: dict[str, Callable] = {name: globals()[name] for name in TOOLS}


def record(rng: random.Random, name: str) -> dict:
    """One record of the schema `name`."""
    return MAKERS[name](rng)


def call(rng: random.Random, name: str) -> tuple[str, dict]:
    """(request in words, the call that fulfils it) for the tool `name`."""
    request, arguments = CALLERS[name](rng)
    return request, {"tool": name, "arguments": arguments}


def prompt(name: str, request: str | None = None) -> str:
    """What stands before the JSON in a document."""
    return f"record: {name}\n" if request is None else f"tool: {name}\nrequest: {request}\n"


def documents(rng: random.Random) -> Iterator[str]:
    """Documents without end: half records, a fifth lists of records, the rest tool calls."""
    records, tools = list(RECORDS), list(TOOLS)
    while True:
        chance = rng.random()
        if chance < 0.5:
            name = rng.choice(records)
            indent = 2 if rng.random() < 0.3 else None
            yield prompt(name) + json.dumps(record(rng, name), indent=indent)
        elif chance < 0.7:
            name = rng.choice(records)
            many = [json.dumps(record(rng, name)) for _ in range(rng.randint(2, 8))]
            yield f"records: {name}\n[" + ",\n ".join(many) + "]"
        else:
            request, made = call(rng, rng.choice(tools))
            yield prompt(made["tool"], request) + json.dumps(made)


def value_of(document: str):
    """(schema name, value) of a document's JSON; ValueError if it does not parse."""
    head, _, rest = document.partition("\n")
    kind, _, name = head.partition(": ")
    text = rest.partition("\n")[2] if kind == "tool" else rest
    return name, json.loads(text)


def fault(name: str, value) -> str | None:
    """Why `value` does not fit the schema `name`, or None when it fits."""
    import jsonschema

    error = next(iter(jsonschema.Draft202012Validator(SCHEMAS[name]).iter_errors(value)), None)
    return error.message if error else None
