"""JSON Schemas of the json domain: records and tool calls."""


def _object(**properties) -> dict:
    """A closed object in which every property is required, in this order."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _text(pattern: str | None = None) -> dict:
    return {"type": "string", "minLength": 1} | ({"pattern": pattern} if pattern else {})


def _one_of(*values) -> dict:
    return {"enum": list(values)}


def _number(low: float, high: float) -> dict:
    return {"type": "number", "minimum": low, "maximum": high}


def _integer(low: int, high: int) -> dict:
    return {"type": "integer", "minimum": low, "maximum": high}


def _list(items: dict, low: int, high: int) -> dict:
    return {"type": "array", "items": items, "minItems": low, "maxItems": high}


FLAG = {"type": "boolean"}
DATE = _text(r"^20\d\d-[01]\d-[0-3]\d$")
TIME = _text(r"^[0-2]\d:[0-5]\d$")
DAY = _one_of("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

RECORDS = {
    "person": _object(
        id=_integer(1000, 9999),
        name=_text(),
        age=_integer(18, 90),
        email=_text(r"^[a-z0-9.]+@[a-z]+\.[a-z]+$"),
        address=_object(street=_text(), number=_integer(1, 199), town=_text()),
        tags=_list(_text(), 0, 4),
    ),
    "order": _object(
        order_id=_text(r"^A-\d{5}$"),
        customer=_text(),
        date=DATE,
        items=_list(_object(name=_text(), quantity=_integer(1, 20), price=_number(0, 500)), 1, 5),
        paid=FLAG,
        status=_one_of("new", "packed", "sent", "returned"),
    ),
    "sensor": _object(
        sensor=_text(r"^[a-z]+-\d{2}$"),
        room=_text(),
        unit=_one_of("C", "%", "lux", "ppm"),
        readings=_list(_object(time=TIME, value=_number(-50, 5000)), 2, 6),
        alarm=FLAG,
    ),
    "book": _object(
        title=_text(),
        author=_object(first=_text(), last=_text()),
        year=_integer(1900, 2026),
        pages=_integer(20, 900),
        genres=_list(_one_of("story", "travel", "history", "poems", "science", "art"), 1, 3),
        lent_to={"type": ["string", "null"]},
    ),
    "trip": _object(
        trip=_integer(100, 999),
        legs=_list(
            _object(start=_text(), end=_text(), by=_one_of("train", "bus", "boat", "bike"),
                    leaves=TIME, minutes=_integer(5, 600)), 1, 4),
        travellers=_list(_text(), 1, 4),
        price=_number(0, 900),
    ),
    "recipe": _object(
        name=_text(),
        serves=_integer(1, 12),
        ingredients=_list(_object(item=_text(), grams=_integer(5, 2000)), 2, 6),
        minutes=_integer(5, 240),
        vegetarian=FLAG,
    ),
    "ticket": _object(
        ticket=_integer(1, 99999),
        title=_text(),
        priority=_one_of("low", "normal", "high"),
        assigned={"type": ["string", "null"]},
        labels=_list(_text(), 0, 3),
        comments=_list(_object(by=_text(), text=_text()), 0, 3),
        open=FLAG,
    ),
    "config": _object(
        service=_text(),
        host=_text(r"^[a-z]+\.[a-z]+$"),
        port=_integer(1024, 65535),
        retries=_integer(0, 10),
        timeout_s=_number(0, 120),
        features=_object(cache=FLAG, metrics=FLAG, trace=FLAG),
        paths=_list(_text("^/"), 1, 3),
    ),
}  # fmt: skip


def _tool(name: str, **arguments) -> dict:
    return _object(tool={"const": name}, arguments=_object(**arguments))


TOOLS = {
    "get_weather": _tool("get_weather", town=_text(), day=DAY, unit=_one_of("celsius", "kelvin")),
    "book_table": _tool("book_table", place=_text(), people=_integer(1, 20), day=DAY, time=TIME),
    "send_message": _tool("send_message", to=_text(), text=_text()),
    "set_timer": _tool("set_timer", minutes=_integer(1, 600), label=_text()),
    "find_route": _tool("find_route", start=_text(), end=_text(),
                        by=_one_of("train", "bus", "boat", "bike")),
    "set_lamp": _tool("set_lamp", room=_text(), colour=_text(), brightness=_integer(0, 100)),
    "add_event": _tool("add_event", title=_text(), date=DATE, time=TIME,
                       guests=_list(_text(), 0, 4)),
    "add_item": _tool("add_item",
                      items=_list(_object(name=_text(), quantity=_integer(1, 20)), 1, 4)),
}  # fmt: skip
SCHEMAS = RECORDS | TOOLS
