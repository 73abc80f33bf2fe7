"""Cases of the KV checks on which a hint can only mean the mistake that it names."""

import random
from itertools import islice

from minimoe.course.checks import kv_reuse, victim
from minimoe.course.conversation import computed_with_reuse, prompt_lengths


def test_no_two_mistakes_of_a_conversation_give_one_number():
    """Else a reader who forgot the answers may be told to add up all turns."""
    case = list(islice(kv_reuse.ConversationTokens().cases(random.Random(0)), 2))[1]
    said = {computed_with_reuse(*case)[-1]: "last turn", prompt_lengths(*case)[-1]: "once"}
    said[sum(computed_with_reuse(*case))] = "right"
    for held, says in kv_reuse.HELD.items():
        assert said.setdefault(kv_reuse.conversation_naive(*case, held), says) == says
    for mistake, says in kv_reuse.SUMS.items():
        assert said.setdefault(mistake(*case), says) == says


def test_no_two_orders_drop_the_same_blocks():
    check = victim.Victim()
    case = next(iter(check.cases(random.Random(0))))
    orders = [
        victim.hyperbolic,
        victim._without_one,
        victim.by(victim._until_last_use),
        victim.by(lambda use: use.last),
        victim.by(lambda use: use.first),
        victim.by(lambda use: (use.count, use.last)),
    ]
    assert len({tuple(check.call(order, *case)) for order in orders}) == len(orders)
