"""A drafter's plane travels with its blocks: through memory, disk, lost nodes and other engines."""

import pytest
import torch
from kvstore.test_tiers import hurt, settled, store_of

from minimoe import SamplingParams
from minimoe.kvstore.metadata import StoreError
from minimoe.speculative.drafter import Draft, Drafter

B, G = 16, 3
GREEDY = SamplingParams(max_tokens=10, temperature=0.0, ignore_eos=True)


class NotingDrafter(Drafter):
    """Notes every token and position in its plane, and reads all of it before each guess.

    As a trained one would, it also writes into the places of its guesses, which later passes must
    write anew. Its guesses are nearly all wrong.
    """

    length = block = G
    plane = (2, 3)

    def __init__(self, name="noting"):
        self.name, self.read = name, 0

    def attach(self, plane):
        self.rows = plane.flatten(1, 2)  # [2, slots, 3]

    def observe(self, step):
        notes = torch.stack([step.ids, step.positions, step.ids * step.positions], 1)
        self.rows[:, step.slots] = notes.to(self.rows)

    def propose(self, seqs, step):
        for seq in seqs:
            places = range(seq.num_computed)
            slots = [seq.blocks[i // B] * B + i % B for i in places]
            want = torch.tensor([[seq.tokens[i], i, seq.tokens[i] * i] for i in places])
            assert torch.equal(self.rows[:, slots], want.to(self.rows).expand(2, -1, -1))
            self.read += seq.num_computed
        self.rows[:, step.slots] = 1e6
        ids = torch.tensor([[seq.tokens[-1]] * G for seq in seqs])
        return Draft(ids, [G] * len(seqs))


@pytest.fixture
def make_two_planes(make_llm):
    def make(name="noting", **settings):
        config = {"drafter": NotingDrafter(name), "num_speculative_tokens": G, "scheduled": False}
        return make_llm(speculative_config=config, **settings)

    return make


@pytest.fixture
def ask(prompt_of, make_llm):
    """Send a prompt; the text must be that of an engine without drafter and store."""
    plain = make_llm(enable_prefix_caching=False)

    def send(llm, length, seed=0):
        prompt = prompt_of(length, seed=seed)
        read = drafter_of(llm).read
        out = llm.generate([prompt], GREEDY)[0]
        assert out.outputs[0].token_ids == plain.generate([prompt], GREEDY)[0].outputs[0].token_ids
        assert drafter_of(llm).read > read
        return out.num_cached_tokens

    return send


def drafter_of(llm):
    return llm.engine.speculation.drafter


@pytest.mark.parametrize("length", [B - 1, B, B + 1, 2 * B, 2 * B + 1, 5 * B])
def test_from_memory_and_from_disk(make_two_planes, ask, tmp_path, length):
    llm = make_two_planes(kv_store=tmp_path)
    assert set(llm.engine.runner.kv) == {"target", "draft"}
    cached = (length - 1) // B * B
    assert [ask(llm, length), ask(llm, length)] == [0, cached]
    assert ask(settled(llm), length) == cached
    assert llm.engine.reuse.disk.counts["loaded"] == cached // B


@pytest.mark.parametrize("damage", ["gone", "flipped"])
def test_in_another_engine_with_two_nodes_lost(make_two_planes, ask, tmp_path, damage):
    first, second = make_two_planes(kv_store=tmp_path), make_two_planes(kv_store=tmp_path)
    ask(first, 7 * B + 5)
    settled(first)
    hurt(store_of(first), (2, 9), damage)
    assert ask(second, 7 * B + 5) == 7 * B


def test_under_pool_pressure(make_two_planes, ask, tmp_path):
    llm = make_two_planes(kv_store=tmp_path, num_gpu_blocks_override=8)
    for seed in range(6):
        ask(llm, 5 * B + seed, seed)
    settled(llm)
    assert [ask(llm, 5 * B + seed, seed) for seed in range(6)] == [4 * B] + [5 * B] * 5


def test_engines_whose_planes_differ_are_refused(make_two_planes, make_llm, tmp_path):
    make_two_planes(kv_store=tmp_path)
    for make in (make_llm, lambda **given: make_two_planes("another", **given)):
        with pytest.raises(StoreError, match="drafter noting.*drafter (none|another)"):
            make(kv_store=tmp_path)


def test_a_drafter_without_a_plane_shares_the_store_of_none(make_llm, prompt_of, tmp_path):
    plain, prompt = make_llm(kv_store=tmp_path), prompt_of(4 * B)
    cold = plain.generate([prompt], GREEDY)[0]
    settled(plain)
    lookup = make_llm(kv_store=tmp_path, speculative_config={"method": "prompt_lookup"})
    warm = lookup.generate([prompt], GREEDY)[0]
    assert warm.num_cached_tokens == 3 * B
    assert warm.outputs[0].token_ids == cold.outputs[0].token_ids
