"""The chat domain: conversations in small worlds, where an answer is right or wrong.

The user tells facts, changes some, talks of other things and asks later; in between come sums. Form
of a document: `<|user|>`text`<|assistant|>`text`<|end|>`, repeated.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from minimoe.tokenizer import ASSISTANT, END, USER
from minimoe.training import sums
from minimoe.training import words as w
from minimoe.training.facts import BY_NAME, KINDS, NOTED, TALK, FactKind


@dataclass(frozen=True)
class Turn:
    """One message and its answer.

    kind: tell, recall (first question on a fact since it was told), again (a later one), unknown,
    sum, talk. `value` is the part of the answer that makes it right.
    """

    user: str
    assistant: str
    kind: str
    value: str = ""


@dataclass
class World:
    """What has been told so far in one conversation."""

    rng: random.Random
    facts: dict[tuple[str, str], str] = field(default_factory=dict)  # (kind, subject): value
    asked: dict[tuple[str, str], int] = field(default_factory=dict)  # since told or changed

    def tell(self) -> Turn:
        """One to three new facts in one message."""
        told = [self._new_fact() for _ in range(self.rng.choice((1, 1, 2, 3)))]
        said = " ".join(self._say(kind.told, s, v) for kind, s, v in told)
        return Turn(said, self._acknowledge(told), "tell")

    def change(self) -> Turn:
        """A known fact gets another value."""
        name, subject = self.rng.choice(list(self.facts))
        kind, value = BY_NAME[name], self._other_value(name, subject)
        self._set(name, subject, value)
        said = self._say(kind.changed, subject, value)
        return Turn(said, self._acknowledge([(kind, subject, value)]), "tell")

    def recall(self) -> Turn:
        """A question on a known fact, rather one that was not asked for yet."""
        keys = list(self.facts)
        key = self.rng.choices(keys, [4.0 ** -self.asked[k] for k in keys])[0]
        kind, (name, subject), value = BY_NAME[key[0]], key, self.facts[key]
        known = "again" if self.asked[key] else "recall"
        self.asked[key] += 1
        only = sum(k[0] == name and v == value for k, v in self.facts.items()) == 1
        backwards = kind.reverse and only and self.rng.random() < 0.25
        said = self._say(kind.reverse if backwards else kind.asked, subject, value)
        answer = _capital(kind.answer.format(s=subject, v=value))
        return Turn(said, answer, known, subject if backwards else value)

    def unknown(self) -> Turn:
        """A question on something that was never told."""
        kind, subject = self._new_subject()
        return Turn(self._say(kind.asked, subject, ""), "You have not told me that.", "unknown")

    def sum(self) -> Turn:
        """A sum or a difference; sometimes of numbers that were told."""
        rng = self.rng
        together = self._together() if rng.random() < 0.3 else None
        person, things = rng.choice(w.PEOPLE), rng.choice(w.COUNTABLE)
        q = together or sums.random_question(rng, person, things)
        return Turn(q.question, q.answer, "sum", str(q.value))

    def talk(self) -> Turn:
        """A turn of small talk: question, answer and kind."""
        return Turn(*self.rng.choice(TALK), "talk")

    def _together(self) -> sums.Sum | None:
        rooms = [(s, int(v)) for (name, s), v in self.facts.items() if name == "count"]
        if len(rooms) < 2:
            return None
        (first, a), (second, b) = self.rng.sample(rooms, 2)
        question = f"How many chairs do the {first} and the {second} have together?"
        held_out = sums.is_held_out(a, b)
        return None if held_out else sums.Sum(question, f"{a} + {b} = {a + b} chairs.", a + b)

    def _new_subject(self) -> tuple[FactKind, str]:
        while True:
            kind = self.rng.choice(KINDS)
            subject = kind.subject(self.rng)
            if (kind.name, subject) not in self.facts:
                return kind, subject

    def _new_fact(self) -> tuple[FactKind, str, str]:
        kind, subject = self._new_subject()
        value = kind.value(self.rng)
        self._set(kind.name, subject, value)
        return kind, subject, value

    def _set(self, name: str, subject: str, value: str) -> None:
        self.facts[name, subject] = value
        self.asked[name, subject] = 0

    def _other_value(self, name: str, subject: str) -> str:
        while True:
            value = BY_NAME[name].value(self.rng)
            if value != self.facts[name, subject]:
                return value

    def _say(self, templates, subject: str, value: str) -> str:
        return _capital(self.rng.choice(templates).format(s=subject, v=value))

    def _acknowledge(self, told) -> str:
        if len(told) > 1 or self.rng.random() < 0.7:
            return self.rng.choice(NOTED)
        kind, subject, value = told[0]
        return "Noted: " + kind.answer.format(s=subject, v=value)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def conversation(rng: random.Random, turns: int) -> list[Turn]:
    """`turns` turns; every recalled fact was told before, in this conversation."""
    world = World(rng)
    made = [world.talk()] if rng.random() < 0.2 else []
    while len(made) < turns:
        made.append(_next_turn(world, rng)())
    return made


def _next_turn(world: World, rng: random.Random):
    if not world.facts:
        return world.sum if rng.random() < 0.35 else world.tell
    kinds = (world.tell, world.change, world.recall, world.unknown, world.sum, world.talk)
    return rng.choices(kinds, (26, 8, 30, 4, 28, 4))[0]


def render(turns: list[Turn]) -> str:
    """The document of a conversation."""
    return "".join(f"{USER}{t.user}{ASSISTANT}{t.assistant}{END}" for t in turns)


def messages(turns: list[Turn]) -> list[dict]:
    """The conversation as chat messages."""
    pairs = ((("user", t.user), ("assistant", t.assistant)) for t in turns)
    return [{"role": role, "content": text} for pair in pairs for role, text in pair]


def documents(rng: random.Random) -> Iterator[str]:
    """Conversations without end: most of 2 to 12 turns, one in eight of 20 to 60."""
    while True:
        turns = rng.randint(20, 60) if rng.random() < 0.12 else rng.randint(2, 12)
        yield render(conversation(rng, turns))
