"""Scheduler, pool, prefix reuse and a drafter with its own plane, in any order of events.

The target is a table, so every greedy text is known beforehand. The drafter writes into its plane
which token stands where, and looks at each draft whether all context rows still say so.
"""

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from speculation_toys import TableModel, random_table, table_engine

from minimoe.engine.params import SamplingParams
from minimoe.speculative.drafter import Draft, Drafter
from minimoe.speculative.rules import Rule

TABLE = random_table(6, seed=5)
BEST = TABLE.argmax(-1).tolist()
BLOCK, G, BLOCKS, LIMIT = 16, 4, 7, 90


class PlaneDrafter(Drafter):
    """Right guesses with a wrong one now and then; keeps and checks a context of its own."""

    name, length, block, plane = "plane", G, G + 1, (1, 1)

    def attach(self, plane):
        self.rows = plane.view(-1)

    def observe(self, step):
        self.rows[step.slots] = (10 * step.positions + step.ids + 1).to(self.rows.dtype)

    def propose(self, seqs, step):
        slots = step.slots.view(len(seqs), self.block)
        assert len(set(step.slots.tolist())) == slots.numel(), "two tokens write one row"
        guesses = []
        for seq, own in zip(seqs, slots, strict=True):
            self.check_context(seq)
            p = torch.arange(seq.num_computed, seq.num_computed + self.block)
            assert own.tolist() == self.slots_of(seq, p)
            self.rows[own] = -1.0
            guess, token = [], seq.tokens[-1]
            for place in range(G):
                token = BEST[token]
                guess.append(token if (len(seq.tokens) + place) % 5 else (token + 1) % 6)
            guesses.append(guess)
        return Draft(torch.tensor(guesses), [G] * len(seqs))

    def check_context(self, seq):
        positions = torch.arange(seq.num_computed)
        want = 10 * positions + torch.tensor(seq.tokens[: seq.num_computed]) + 1
        assert self.rows[self.slots_of(seq, positions)].tolist() == want.tolist()

    def slots_of(self, seq, positions):
        return [seq.blocks[p // BLOCK] * BLOCK + p % BLOCK for p in positions.tolist()]


class Scripted(Rule):
    """Checks as many as the test says next."""

    script: list = []

    def choose(self, confidence, lengths, plain_tokens=0):
        assert plain_tokens >= 0
        return [self.script.pop() if self.script else n for n in lengths]


class SpeculationMachine(RuleBasedStateMachine):
    @initialize(budget=st.integers(4, 40), seqs=st.integers(1, 4))
    def build(self, budget, seqs):
        self.rule = Scripted(G)
        self.rule.script = []
        self.engine = table_engine(
            TableModel(TABLE),
            PlaneDrafter(),
            self.rule,
            max_model_len=LIMIT,
            max_num_seqs=seqs,
            max_num_batched_tokens=budget,
            num_blocks=BLOCKS,
            enable_prefix_caching=True,
        )
        self.wanted, self.added = {}, 0

    @rule(heads=st.integers(0, 3), tail=st.integers(1, 20), new=st.integers(1, 30))
    def add(self, heads, tail, new):
        prompt = [2] * (BLOCK * heads) + [3 + self.added % 3] * tail
        params = SamplingParams(max_tokens=new, temperature=0.0, ignore_eos=True)
        self.engine.add_request(str(self.added), prompt, params)
        answer = [BEST[prompt[-1]]]
        while len(answer) < min(new, LIMIT - len(prompt)):
            answer.append(BEST[answer[-1]])
        self.wanted[str(self.added)] = answer
        self.added += 1

    @rule(checks=st.lists(st.integers(0, G), max_size=4))
    def step(self, checks):
        self.rule.script = checks
        for out in self.engine.step():
            if out.finished:
                assert out.outputs[0].token_ids == self.wanted.pop(out.request_id)
                assert out.metrics.accepted <= out.metrics.checked <= out.metrics.drafted

    @rule(pick=st.integers(0, 30))
    def abort(self, pick):
        name = str(pick % max(1, self.added))
        self.engine.abort_request(name)
        self.wanted.pop(name, None)

    @invariant()
    def pages_add_up(self):
        if hasattr(self, "engine"):
            engine = self.engine
            engine.pool.check()
            running = engine.scheduler.running
            for block in range(BLOCKS):
                users = sum(seq.blocks.count(block) for seq in running)
                assert engine.pool.refs[block] == users
            for seq in running:
                assert not seq.draft and seq.num_named * BLOCK <= seq.num_computed
                assert seq.num_computed < len(seq.tokens) <= seq.max_total

    def teardown(self):
        if hasattr(self, "engine"):
            steps = 0
            while self.engine.has_unfinished_requests():
                self.step([])
                steps += 1
                assert steps < 1000, "no end in sight"
            assert not self.wanted and self.engine.pool.num_free == BLOCKS


TestSpeculationMachine = SpeculationMachine.TestCase
TestSpeculationMachine.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)
