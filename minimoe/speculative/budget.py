"""`Budget`: drafts and checks as much as pays on this machine at this load.

Before each step it weighs the tokens per second expected of a plain step and of a drafted one
(`plan`); after drafting it shares the checks out among the requests (`choose`).

Sources: DSpark, arXiv 2607.05147, Algorithm 1 and its production form; the same idea is in vLLM's
adaptive verification. The form "priced" is ours.
"""

import numpy as np

from minimoe.errors import MinimoeError
from minimoe.speculative.admission import (
    by_survival,
    first_drop,
    first_too_dear,
    of_width,
    prefixes,
)
from minimoe.speculative.outlook import History, Outlook, outlook
from minimoe.speculative.rules import Rule
from minimoe.speculative.step_times import StepTimes

FORMS = ("priced", "production", "lossless")
DELAY = 2  # what is expected comes from confidences of at least this many steps ago
REFRESH = 16  # steps between two looks at the same load
MARGIN = 0.01  # drafting stops or starts when it is worse or better by this share
STOP_AFTER = 3  # looks in a row that find it worse
TRIAL_SHARE = 0.005  # of the time, spent on trying whether drafting pays again
TRIAL_ROWS = 8  # confidences that one trial collects
FIRST_WAIT, LONGEST_WAIT = 8, 1000  # steps between trials; after each, twice as many
PLAIN_TRIAL = 200  # while drafting, this often a plain step, to know what it takes now
CLEAR_GAIN, SELDOM = 2.0, 0.1  # where drafting is better by so much, a tenth as often
CHECK_ALL = 64  # this often all are checked, or else not all, to know what the other way takes
FREE = 0.05  # a check that costs less of a token is not weighed: weighing costs more
LOOK_AT = 4  # where checks are free, one step in so many is looked at all the same
MEMORY, WEIGHT = 0.98, 5.0  # of the promises kept, per step; and how many are taken for granted


class Budget(Rule):
    """Shares checks among requests by survival and by the measured cost of a step.

    Args:
        times: the engine's profile; `observe` keeps it up to date.
        length: drafts of each request, G.
        form: how many slots of a step are admitted, always the likeliest ones.
            "lossless": Algorithm 1, up to the first that does not raise tokens per second.
            "production": as many as would have been best two and more steps ago.
            "priced": up to the first whose survival is below its price, the tokens that its time
            would bring elsewhere; prices are from two and more steps ago.

    No form looks at a token to decide whether to check it, so the output distribution stays as it
    is (`admission.py` says why). Raises MinimoeError for an unknown form.
    """

    def __init__(self, times: StepTimes, length: int, form: str = "priced"):
        super().__init__(length)
        if form not in FORMS:
            raise MinimoeError(f"the budget's form is {form!r}: it must be one of {FORMS}")
        self.times, self.form = times, form
        self.history = History(max(1, length), DELAY)
        self._looks: dict[tuple[int, int], tuple[int, Outlook]] = {}
        self._step = 0
        self._drafting, self._worse, self._trials = True, 0, 0
        self._idle, self._patience = 0, FIRST_WAIT  # plain steps since a trial, and until the next
        self._busy, self._plain_patience = 0.0, 2 * FIRST_WAIT  # the same while drafting
        self._kept, self._promised = 0.0, 0.0
        self._promise: float | None = None  # of this step's checks

    @property
    def draft_next(self) -> bool:
        return self.length > 0 and (self._drafting or self._trials > 0)

    @property
    def trust(self) -> float:
        """Drafts accepted lately for each that the confidences promised."""
        return (self._kept + WEIGHT) / (self._promised + WEIGHT)

    def plan(self, requests):
        if self.length == 0 or requests == 0:
            return 0
        self._step += 1
        look = self.look(requests)
        self._start_or_stop(look.gain)
        if self._drafting:
            return 0 if self._plain_trial(look.gain) else self.length
        if self._trials == 0:
            self._idle += 1
            if self._idle >= min(self._patience, self._wait(look, requests)):
                self._idle, self._trials = 0, -(-TRIAL_ROWS // requests)
                self._patience *= 2
        return self.length if self._trials else 0

    def choose(self, confidence, lengths, plain_tokens=0):
        if not len(lengths):
            return []
        if self._all_pay(len(lengths), plain_tokens):
            self._promise, self._trials = None, max(0, self._trials - 1)
            return list(lengths)
        a = of_width(self.survival(confidence, lengths), max(1, self.length))  # [B, G]
        order, slots = by_survival(a)
        count = self._count(slots, len(a), plain_tokens)
        checks = prefixes(order, slots, count, a.shape)
        self.history.add(a)
        self._trials = max(0, self._trials - 1)
        self._promise = float(slots[: sum(checks)].sum())
        return checks

    def observe(self, drafted, requests, tokens, seconds, checked=(), accepted=()):
        super().observe(drafted, requests, tokens, seconds, checked, accepted)
        self.times.observe(drafted, requests, tokens, seconds)
        if drafted and self._promise is not None:
            self._kept = MEMORY * self._kept + sum(accepted)
            self._promised = MEMORY * self._promised + self._promise

    def look(self, requests: int, others: int = 0) -> Outlook:
        """What to expect at this load; looked up anew every few steps."""
        made, found = self._looks.get((requests, others), (0, None))
        if found is None or self._step >= made + REFRESH:
            accepted = self.trust * self.history.accepted(requests)
            found = outlook(self.times, accepted, requests, others)
            if len(self._looks) > 100:
                self._looks.clear()
            self._looks[requests, others] = self._step, found
        return found

    def _all_pay(self, requests: int, others: int) -> bool:
        """Whether this step checks everything unseen: no check costs anything to speak of, or no
        choice among them is better than all."""
        if self.form == "lossless" or self._step % LOOK_AT == 0:
            return False
        look = self.look(requests, others)
        return look.dearest < FREE or (look.all_pay and self.form == "priced")

    def _count(self, slots: np.ndarray, requests: int, others: int) -> int:
        """How many of the sorted slots are admitted in this step."""
        if self.form == "lossless":
            seconds = self.times.drafted_seconds(requests, len(slots), others)
            return first_drop(self.trust * slots, seconds, requests)
        look = self.look(requests, others)
        if self.form == "production":
            return look.count
        early = self._step & (self._step - 1) == 0  # 1, 2, 4, 8, ...
        other_way = self._drafting and (early or self._step % CHECK_ALL == 0)
        if look.all_pay != other_way:
            return len(slots)
        return int(look.full[first_too_dear(self.trust * slots, look.prices)])

    def _start_or_stop(self, gain: float) -> None:
        self._worse = self._worse + 1 if gain < 1 - MARGIN else 0
        if gain > 1 + MARGIN:
            self._drafting, self._idle, self._patience = True, 0, FIRST_WAIT
        elif self._worse >= STOP_AFTER:
            self._drafting = False

    def _plain_trial(self, gain: float) -> bool:
        self._busy += 1 if gain < CLEAR_GAIN else SELDOM
        if self._busy < self._plain_patience:
            return False
        self._busy, self._plain_patience = 0.0, min(2 * self._plain_patience, PLAIN_TRIAL)
        return True

    def _wait(self, look: Outlook, requests: int) -> float:
        """Steps between trials, so that what they lose is a small share of the time."""
        lost = -(-TRIAL_ROWS // requests) * look.lost
        return min(max(lost / TRIAL_SHARE, FIRST_WAIT), LONGEST_WAIT)
