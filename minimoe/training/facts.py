"""The kinds of facts that chats tell, change and ask for; {s} is the subject, {v} the value."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from minimoe.training import words as w

Draw = Callable[[random.Random], str]


@dataclass(frozen=True)
class FactKind:
    """One kind of fact. `reverse` asks for the subject of a value, where that makes sense."""

    name: str
    subject: Draw
    value: Draw
    told: tuple[str, ...]
    changed: tuple[str, ...]
    asked: tuple[str, ...]
    answer: str
    reverse: tuple[str, ...] = ()


def _pick(*lists) -> Draw:
    """One item of each list, joined by spaces."""
    return lambda rng: " ".join(rng.choice(items) for items in lists)


def _number(low: int, high: int) -> Draw:
    return lambda rng: str(rng.randint(low, high))


def _owned(things) -> Draw:
    return lambda rng: f"{rng.choice(w.PEOPLE)}'s {rng.choice(things)}"


KINDS = (
    FactKind("place", _pick(w.COLOURS, w.THINGS), _pick(w.ROOMS),
             ("The {s} is in the {v}.", "I put the {s} in the {v}.",
              "You can find the {s} in the {v}.", "In the {v} there is the {s}."),
             ("I moved the {s} to the {v}.", "The {s} is now in the {v}."),
             ("Where is the {s}?", "Do you know where the {s} is?", "In which room is the {s}?"),
             "The {s} is in the {v}.", ("What did I put in the {v}?", "What is in the {v}?")),
    FactKind("colour", _owned(w.THINGS), _pick(w.COLOURS),
             ("{s} is {v}.", "The colour of {s} is {v}."),
             ("{s} has been painted {v}.", "{s} is {v} now."),
             ("What colour is {s}?", "Which colour does {s} have?"),
             "{s} is {v}.", ("What is {v}?",)),
    FactKind("pet", _owned(w.ANIMALS), w.made_up_name,
             ("{s} is called {v}.", "The name of {s} is {v}."),
             ("{s} got a new name: {v}.", "{s} is called {v} now."),
             ("What is {s} called?", "What is the name of {s}?"),
             "{s} is called {v}.", ("Who is {v}?", "Who is called {v}?")),
    FactKind("town", _pick(w.PEOPLE), w.made_up_town,
             ("{s} lives in {v}.", "{s}'s home is in {v}."),
             ("{s} moved to {v}.", "{s} lives in {v} now."),
             ("Where does {s} live?", "In which town does {s} live?"),
             "{s} lives in {v}.", ("Who lives in {v}?",)),
    FactKind("food", _pick(w.PEOPLE), _pick(w.FOODS),
             ("{s} likes {v} best.", "{s}'s favourite food is {v}."),
             ("{s} changed taste and likes {v} best now.",),
             ("What is {s}'s favourite food?", "What does {s} like to eat best?"),
             "{s} likes {v} best.", ("Who likes {v} best?",)),
    FactKind("job", _pick(w.PEOPLE), _pick(w.JOBS),
             ("{s} works as a {v}.", "{s}'s job is {v}."),
             ("{s} has a new job: {v}.", "{s} works as a {v} now."),
             ("What does {s} do for a living?", "What is {s}'s job?"),
             "{s} works as a {v}.", ("Who works as a {v}?", "Who is the {v}?")),
    FactKind("code", _pick(w.COLOURS, w.DOORS), _number(1000, 9999),
             ("The code of the {s} is {v}.", "To open the {s}, enter {v}."),
             ("The code of the {s} was changed to {v}.",),
             ("What is the code of the {s}?", "How do I open the {s}?"),
             "The code of the {s} is {v}."),
    FactKind("day", _owned(w.EVENTS), _pick(w.DAYS),
             ("{s} is on {v}.", "On {v} there is {s}."),
             ("{s} was moved to {v}.",),
             ("When is {s}?", "On which day is {s}?"),
             "{s} is on {v}.", ("What happens on {v}?",)),
    FactKind("count", _pick(w.ROOMS), _number(10, 99),
             ("There are {v} chairs in the {s}.", "The {s} has {v} chairs."),
             ("Someone carried chairs about. There are {v} chairs in the {s} now.",),
             ("How many chairs are in the {s}?", "How many chairs does the {s} have?"),
             "There are {v} chairs in the {s}."),
    FactKind("hobby", _pick(w.PEOPLE), _pick(w.HOBBIES),
             ("{s}'s hobby is {v}.", "On weekends {s} is busy with {v}."),
             ("{s} has taken up {v} instead.",),
             ("What is {s}'s hobby?", "What does {s} do on weekends?"),
             "{s}'s hobby is {v}.", ("Who is busy with {v}?",)),
    FactKind("user", lambda rng: "your name", _pick(w.PEOPLE),
             ("My name is {v}.", "I am {v}."),
             ("Sorry, my name is {v}.",),
             ("What is my name?", "Do you remember my name?"),
             "Your name is {v}."),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}
NOTED = ("Noted.", "Got it.", "All right.", "I will remember that.", "Thank you, noted.")
TALK = (
    ("Hello!", "Hello! How can I help you?"),
    ("Good morning.", "Good morning! What can I do for you?"),
    ("Thank you.", "You are welcome."),
    ("Who are you?", "I am tiny-moe, a small language model with many experts."),
    ("What can you do?", "I remember what you tell me here, and I can add and subtract."),
    ("How are you today?", "I am fine, thank you. What would you like to know?"),
    ("It is raining again.", "Then it is a good day to stay inside."),
    ("The sun is out at last.", "Good! Enjoy the light."),
    ("I am a bit tired.", "Take a short rest. I will be here."),
    ("Wait a moment, please.", "Of course. Take your time."),
    ("Are you still there?", "Yes, I am here."),
    ("That was a long day.", "I hope the evening is a quiet one."),
)
