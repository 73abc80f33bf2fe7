"""What happens in a story, drawn before its first word, so that all its sentences agree."""

import random
from dataclasses import dataclass

from minimoe.training import words as w
from minimoe.training.worlds import WORLDS, World

TRAITS = ("patient", "curious", "stubborn", "quiet", "cheerful", "careful", "restless", "brave",
          "forgetful", "kind", "proud", "clever", "shy", "hasty", "thoughtful", "bold")  # fmt: skip
SHE, HE = ("she", "her", "her"), ("he", "him", "his")


@dataclass(frozen=True)
class Helper:
    """Someone at a place who gives something away in return for a favour."""

    name: str
    who: str
    place: str
    gives: str
    wants: str
    reason: str


@dataclass(frozen=True)
class Plot:
    """Something is wrong at home; a cure lies beyond an obstacle; a tool overcomes the obstacle.

    The first helper gives the tool and wants a favour. With a second helper, that one has what the
    first one wants, and wants something else. What the last helper wants lies at `found_at`.
    """

    world: World
    home: str
    hero: str
    role: str
    trait: str
    pronoun: tuple[str, str, str]
    friend: str
    trouble: str
    cure: str
    ending: str
    cure_place: str
    obstacle: str
    tool: str
    effect: str
    helpers: tuple[Helper, ...]
    found_at: str


def draw_plot(rng: random.Random) -> Plot:
    """A plot in one of the worlds, with one or two helpers."""
    world = rng.choice(WORLDS)
    cure_place, found_at, *places = rng.sample(world.places, 4)
    hero, friend, *names = rng.sample(w.PEOPLE, 4)
    pronoun = SHE if hero in w.WOMEN else HE
    if rng.random() < 0.3:
        hero = w.made_up_name(rng)
    trouble, cure, ending = rng.choice(world.troubles)
    obstacle, tool, effect = rng.choice(world.obstacles)
    count = rng.choice((1, 1, 2))
    favours = rng.sample(world.favours, count)
    gives = [tool, *(thing for thing, _ in favours)]
    who = rng.sample(world.helpers, count)
    helpers = tuple(
        Helper(names[i], who[i], places[i], gives[i], *favours[i]) for i in range(count)
    )
    return Plot(world, rng.choice(world.home), hero, rng.choice(world.roles), rng.choice(TRAITS),
                pronoun, friend, trouble, cure, ending, cure_place, obstacle, tool,
                effect, helpers, found_at)  # fmt: skip
