"""The story domain: short tales with a reason for everything that happens.

`plot.py` decides what happens, `worlds.py` where; this file finds the words, in many ways.
"""

import random
from collections.abc import Iterator

from minimoe.training.plot import Helper, Plot, draw_plot

TIMES = ("By noon", "In the afternoon", "Towards evening", "Before long", "After a while",
         "An hour later", "When the shadows grew long", "Some time later")  # fmt: skip


def the(thing: str) -> str:
    """`a bag of clay` -> `the bag of clay`."""
    head, _, rest = thing.partition(" ")
    return f"the {rest}" if head in ("a", "an", "some") else f"the {thing}"


def capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


class Teller:
    """Puts a plot into words; the same plot can be told in many ways."""

    def __init__(self, plot: Plot, rng: random.Random):
        self.plot, self.rng = plot, rng
        self.she, self.her, self.hers = plot.pronoun

    def tell(self) -> str:
        """The whole story, paragraph by paragraph."""
        helpers = self.plot.helpers
        parts = [self.opening(), self.need(), self.blocked()]
        parts += [self.bargain(helper) for helper in helpers]
        parts += [self.found(), *(self.reward(helper) for helper in reversed(helpers))]
        parts += [self.mishap()] if self.rng.random() < 0.5 else []
        parts += [self.through(), self.home_again()]
        return "\n\n".join(" ".join(s for s in part if s) for part in parts)

    def one(self, *options: str) -> str:
        """One of the sentences, by chance, with a capital first letter."""
        return capital(self.rng.choice(options))

    def sight(self, chance: float = 0.4) -> str:
        """Something seen on the way, or with 1 - `chance` nothing."""
        return self.rng.choice(self.plot.world.sights) if self.rng.random() < chance else ""

    def opening(self) -> list[str]:
        """Sentences that introduce the hero."""
        p = self.plot
        return [
            self.one(
                f"{p.hero} lived in {p.home}.",
                f"In {p.home} lived {p.hero}, {p.role}.",
                f"There once was {p.role} called {p.hero}, who lived in {p.home}.",
                f"This is the story of {p.hero}, {p.role} from {p.home}.",
            ),
            self.one(
                f"Everyone knew that {p.hero} was {p.trait}.",
                f"{p.hero} was {p.trait}, and {p.friend} was {self.hers} best friend.",
                f"People called {self.her} {p.trait}.",
                f"{self.hers} best friend was {p.friend}.",
            ),
            self.rng.choice(p.world.weather),
            self.sight(),
        ]

    def need(self) -> list[str]:
        """Sentences that tell the trouble and its cure."""
        p = self.plot
        return [
            self.one(
                f"That day {p.trouble}.",
                f"Then something bad happened: {p.trouble}.",
                f'{p.friend} came running. "Have you heard? {capital(p.trouble)}!"',
                f"When {p.hero} woke up, {p.trouble}.",
            ),
            self.one(
                f"Only {p.cure} could help.",
                f"What they needed was {p.cure}.",
                f'"We need {p.cure}," said {p.friend}.',
            ),
            self.one(
                f"And {p.cure}, so people said, could be found at {p.cure_place}.",
                f"{p.friend} had seen what they needed at {p.cure_place}.",
                f'"Look at {p.cure_place}," said {p.friend}. "But be back before night."',
            ),
            self.one(
                f"So {p.hero} set out at once.",
                f"{p.hero} did not wait and went there.",
                f'"I will go," said {p.hero}.',
                f"{p.hero} took some bread and left.",
            ),
        ]

    def blocked(self) -> list[str]:
        """Sentences about the obstacle before the cure."""
        p = self.plot
        return [
            self.one(
                f"But on the way to {p.cure_place} there was {p.obstacle}.",
                f"Just before {p.cure_place} {p.hero} had to stop, because of {p.obstacle}.",
                f"The way led to {p.cure_place}, but {p.obstacle} lay between.",
            ),
            self.one(
                f"Three times {p.hero} tried, and three times {self.she} had to turn back.",
                f"{p.hero} thought about it for a while.",
                "There was no way around.",
                f"It was too much for {self.her} alone.",
            ),
            self.one(
                f'"If only I had {p.tool}!" {self.she} said.',
                f"With {p.tool} it would be easy, {self.she} thought.",
                f"What {self.she} needed now was {p.tool}.",
            ),
            self.sight(0.3),
        ]

    def bargain(self, h: Helper) -> list[str]:
        """Sentences in which a helper asks for something in return."""
        p = self.plot
        return [
            self.one(
                f"{self.rng.choice(TIMES)} {p.hero} came to {h.place}.",
                f"{p.hero} walked on to {h.place}.",
                f"So {self.she} went to {h.place} to ask for help.",
            ),
            self.one(
                f"There {self.she} met {h.who}, whose name was {h.name}.",
                f"There sat {h.who} named {h.name}.",
                f"{h.name}, {h.who}, was there.",
            ),
            self.one(
                f'"Could you give me {h.gives}?" asked {p.hero}.',
                f'"Good day," said {p.hero}. "I need {h.gives}."',
                f"{p.hero} told {h.name} about {the(p.obstacle)} and asked for {h.gives}.",
            ),
            self.one(
                f'"You can have {h.gives}," said {h.name}, "if you bring me {h.wants}."',
                f'"I have {h.gives}," said {h.name}, "but first I want {h.wants}."',
                f'{h.name} smiled. "Bring me {h.wants}, and you shall have {the(h.gives)}."',
            ),
            self.one(
                f'"Why?" asked {p.hero}. "Because {h.reason}," said {h.name}.',
                f"{h.name} wanted it because {h.reason}.",
                f"The reason was simple: {h.reason}.",
            ),
        ]

    def found(self) -> list[str]:
        """Sentences in which the thing that the last helper wants is found."""
        p, h = self.plot, self.plot.helpers[-1]
        return [
            self.one(
                f"{p.hero} found {h.wants} at {p.found_at}.",
                f"At {p.found_at} {p.hero} looked everywhere, and at last found {h.wants}.",
                f"{p.hero} remembered that {p.friend} kept {h.wants} at {p.found_at}, and "
                f"{p.friend} gave it gladly.",
                f"It took a long walk to {p.found_at}, but there {self.she} got {h.wants}.",
            ),
            self.sight(),
        ]

    def reward(self, h: Helper) -> list[str]:
        """Sentences in which a helper gives what was promised."""
        p = self.plot
        return [
            self.one(
                f"{self.she} carried {the(h.wants)} to {h.place}.",
                f"Then {self.she} hurried back to {h.name} with {the(h.wants)}.",
                f"{self.rng.choice(TIMES)} {self.she} stood before {h.name} again.",
            ),
            self.one(
                f"{h.name} was pleased and handed over {the(h.gives)}.",
                f'"Thank you," said {h.name}, and gave {self.her} {the(h.gives)}.',
                f"{h.name} kept the promise: now {p.hero} had {the(h.gives)}.",
            ),
        ]

    def mishap(self) -> list[str]:
        """Sentences about a detour, or something lost and found."""
        p, h = self.plot, self.plot.helpers[0]
        lost = [
            f"On the way {p.hero} stumbled and lost {the(p.tool)}.",
            f"{capital(self.she)} went back the whole way to {h.place}.",
            f"There it lay, beside {h.name}, who laughed and gave it to {self.her} once more.",
        ]
        astray = [
            f"{p.hero} took the wrong turn and came to {p.found_at}.",
            "That cost an hour.",
            f'"Not here," said {p.hero}. "To {p.cure_place}!"',
        ]
        met = [
            f"On the way {p.hero} met {p.friend}.",
            '"Where have you been?"',
            f'"At {h.place}. {h.name} gave me {the(p.tool)}," said {p.hero}.',
            f'"Then I will come with you," said {p.friend}.',
        ]
        return self.rng.choice((lost, astray, met))

    def through(self) -> list[str]:
        """Sentences in which the tool overcomes the obstacle."""
        p = self.plot
        return [
            self.one(
                f"Now {p.hero} went back to {the(p.obstacle)}.",
                f"Once more {p.hero} stood before {the(p.obstacle)}, this time with {the(p.tool)}.",
                f"{self.rng.choice(TIMES)} {self.she} reached {the(p.obstacle)} again.",
            ),
            p.effect,
            self.one(
                f"At {p.cure_place} lay {p.cure}.",
                f"Behind it was {p.cure_place}, and there {self.she} found {p.cure}.",
                f"A few steps on, at {p.cure_place}, {self.she} saw what {self.she} had come for: "
                f"{p.cure}.",
            ),
            self.sight(0.3),
        ]

    def home_again(self) -> list[str]:
        """Sentences that bring the cure home."""
        p, h = self.plot, self.plot.helpers[0]
        return [
            self.one(
                f"{p.hero} brought {the(p.cure)} home.",
                f"With {the(p.cure)} {p.hero} hurried home, where {p.friend} was waiting.",
                f"It was dark when {p.hero} came home with {the(p.cure)}.",
            ),
            p.ending,
            self.one(
                f'"How did you do it?" asked {p.friend}. "With {p.tool} from {h.name}," '
                f"said {p.hero}.",
                f"{p.hero} told {p.friend} about {h.name} and {the(p.tool)}.",
                f"And {h.name}? {h.name} had {h.wants} and was content.",
                f"The next day {p.hero} took {the(p.tool)} back to {h.name} at {h.place}.",
            ),
            self.one(
                f"From then on nobody said that {p.hero} was only {p.trait}.",
                "Who gives something, gets something.",
                f"And {p.hero} slept very well that night.",
                "That is how it was.",
                f"{p.friend} still tells this story today.",
            ),
        ]


def documents(rng: random.Random) -> Iterator[str]:
    """Stories without end."""
    while True:
        yield Teller(draw_plot(rng), rng).tell()
