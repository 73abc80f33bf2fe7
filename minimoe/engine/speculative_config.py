"""`speculative_config`: from the user's dict to a drafter and a budget."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from minimoe.errors import MinimoeError
from minimoe.model.serving import ServingModel
from minimoe.speculative.budget import FORMS, Budget
from minimoe.speculative.drafter import Drafter
from minimoe.speculative.prompt_lookup import PromptLookup
from minimoe.speculative.rules import FixedLength, Rule, Threshold

METHODS = ("dspark", "prompt_lookup")
DEFAULT_LENGTH = 5
MOST_LOOKED_UP = 64  # tokens that prompt look-up may guess at once


@dataclass
class SpeculativeConfig:
    """What `LLM(speculative_config={...})` may hold.

    Args:
        method: "dspark", a trained drafter, or "prompt_lookup", which needs none.
        num_speculative_tokens: guesses for each request and step; None for 5, or as many as the
            drafter makes if those are fewer.
        model: DSpark's folder, or a shipped name; None for the target's name with "-dspark".
        scheduled: True: a budget decides each step how many guesses are checked, and whether to
            guess at all; or its form, "priced", "production" or "lossless". False: all are checked.
        threshold: check the guesses that survive with at least this probability, in place of a
            budget.
        budget: an object with `choose(confidence [B, G] or None, lengths, plain_tokens) -> checks`,
            in place of ours; see `speculative/rules.py`.
        drafter: a `Drafter` in place of ours; `method` is then not needed.
        prompt_lookup_min, prompt_lookup_max: sizes of the n-grams that are looked up.
    """

    method: str | None = None
    num_speculative_tokens: int | None = None
    model: str | Path | None = None
    scheduled: bool | str = True
    threshold: float | None = None
    budget: object | None = None
    drafter: Drafter | None = None
    prompt_lookup_min: int = 1
    prompt_lookup_max: int = 3

    @classmethod
    def of(cls, given) -> "SpeculativeConfig":
        """Check the user's dict. Raises MinimoeError for anything that cannot be meant."""
        if not isinstance(given, Mapping):
            raise MinimoeError(
                f"speculative_config is a {type(given).__name__}: give a dict such as "
                '{"method": "dspark", "num_speculative_tokens": 5}'
            )
        unknown = sorted(set(given) - set(cls.__dataclass_fields__))
        if unknown:
            raise MinimoeError(
                f"speculative_config has {unknown[0]!r}: it must be one of "
                f"{', '.join(cls.__dataclass_fields__)}"
            )
        config = cls(**given)
        config._check()
        return config

    def _check(self) -> None:
        if self.drafter is None and self.method not in METHODS:
            raise MinimoeError(f"method is {self.method!r}: it must be one of {', '.join(METHODS)}")
        lowest, highest = self.prompt_lookup_min, self.prompt_lookup_max
        for name in ("num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max"):
            value = getattr(self, name)
            if name == "num_speculative_tokens" and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise MinimoeError(f"{name} is {value!r}: it must be a whole number of 1 or more")
        if lowest > highest:
            raise MinimoeError(f"prompt_lookup_min {lowest} exceeds prompt_lookup_max {highest}")
        if not isinstance(self.scheduled, bool) and self.scheduled not in FORMS:
            raise MinimoeError(
                f"scheduled is {self.scheduled!r}: it must be True, False or one of "
                f"{', '.join(FORMS)}"
            )
        limit = self.threshold
        if limit is not None and not isinstance(limit, int | float):
            raise MinimoeError(f"threshold is {limit!r}: it must be a number between 0 and 1")
        if self.model is not None and not isinstance(self.model, str | Path):
            raise MinimoeError(f"model is {self.model!r}: it must be a drafter's name or folder")
        if self.budget is not None and not callable(getattr(self.budget, "choose", None)):
            raise MinimoeError(
                f"budget is a {type(self.budget).__name__}: give an object with a method choose("
                "confidence, lengths, plain_tokens)"
            )
        if self.drafter is not None and not isinstance(self.drafter, Drafter):
            raise MinimoeError(
                f"drafter is a {type(self.drafter).__name__}: give a subclass of "
                "minimoe.speculative.drafter.Drafter"
            )

    def make_drafter(self, model: ServingModel, name: str | Path) -> Drafter:
        """The drafter for `model`, which the user called `name`."""
        if self.drafter is not None:
            self._settle_length(self.drafter.length, "the drafter guesses")
            return self.drafter
        if self.method == "prompt_lookup":
            length = self._settle_length(MOST_LOOKED_UP, "prompt look-up guesses")
            return PromptLookup(length, self.prompt_lookup_min, self.prompt_lookup_max)
        return self._load_dspark(model, name)

    def _load_dspark(self, model: ServingModel, name: str | Path) -> Drafter:
        from minimoe.speculative.dspark_checkpoint import drafter_folder, load_dspark
        from minimoe.speculative.dspark_drafter import DSparkDrafter
        from minimoe.speculative.serving_dspark import ServingDSpark

        folder = drafter_folder(self.model or f"{name}-dspark")
        served = ServingDSpark(load_dspark(folder, model.textbook), model)
        length = self._settle_length(served.length, f"the block of drafter {folder.name!r} is")
        return DSparkDrafter(served, length, _name(folder), _calibration(folder))

    def _settle_length(self, most: int, what: str) -> int:
        """The number of guesses, now that it is known how many the drafter can make."""
        if self.num_speculative_tokens is None:
            self.num_speculative_tokens = min(DEFAULT_LENGTH, most)
        length = self.num_speculative_tokens
        if length > most:
            raise MinimoeError(
                f"num_speculative_tokens is {length} and {what} {most} tokens: use {most} or fewer"
            )
        return length

    def make_budget(self, profile):
        """The rule that decides about checks, or what makes it at the first drafted step.

        `profile()` gives the engine's `StepTimes`. Call it after `make_drafter`.
        """
        length = self.num_speculative_tokens
        if self.budget is not None:
            own = self.budget
            return own if isinstance(own, Rule) else PlugIn(length, own)
        if self.threshold is not None:
            return Threshold(length, self.threshold)
        if self.scheduled is False:
            return FixedLength(length)
        form = {} if self.scheduled is True else {"form": self.scheduled}
        return lambda: Budget(profile(), length, **form)


class PlugIn(Rule):
    """A user's object that only has `choose`."""

    def __init__(self, length: int, own):
        super().__init__(length)
        self.choose = own.choose


def _name(folder: Path) -> str:
    from minimoe.kvstore.fingerprint import model_name

    return model_name(folder)


def _calibration(folder: Path):
    """The drafter's calibration, where one lies beside its weights."""
    if not (folder / "calibration.json").is_file():
        return None
    from minimoe.speculative.calibration import Calibration

    return Calibration.load(folder / "calibration.json")
