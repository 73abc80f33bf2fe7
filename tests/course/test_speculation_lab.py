"""The experiments of 05: guesses checked by hand, small rules, experts, the saved record."""

import matplotlib
import numpy as np
import pytest
import torch

matplotlib.use("Agg")

from minimoe import LLM, SamplingParams
from minimoe.course import figures_speculative as figures
from minimoe.course import speculation_lab as lab
from minimoe.course.checks.speculative_decoding import tokens_per_pass_naive
from minimoe.speculative.dspark_checkpoint import load_dspark

TEXT = "<|user|>Ida's horse is called Wenor.<|assistant|>Noted:"


@pytest.fixture(scope="module")
def llm():
    torch.set_num_threads(1)
    return LLM("tiny-moe", device="cpu", max_num_seqs=8, enable_prefix_caching=False)


def test_a_guess_stands_up_to_the_first_miss(llm):
    said = llm.generate([TEXT], SamplingParams(max_tokens=4, temperature=0.0))[0].outputs[0]
    right = lab.check_guess(llm, TEXT, said.text)
    assert right.stand == len(right.guess) == 4 and right.made.startswith(said.text)
    wrong = lab.check_guess(llm, TEXT, " Zebra")
    assert wrong.stand == 0 and wrong.made == wrong.said[0]
    assert "in place of the first miss" in figures.guess_table(wrong)
    assert lab.check_guess(llm, TEXT, "").made == wrong.made


def test_chi_square_tells_a_right_rule_from_a_wrong_one():
    p, q = np.array([0.2, 0.3, 0.5]), np.array([0.5, 0.3, 0.2])

    def draw(weights):
        return lambda p, q, random: random.choice(3, p=weights)

    assert "follows p" in lab.verdict(lab.count(draw(p), p, q, 4000), p)
    assert "NOT p" in lab.verdict(lab.count(draw(q), p, q, 4000), p)


def test_pairs_agree_with_the_record(llm):
    """p and q from the textbook forms overlap about as often as the GPU's loop accepted."""
    dspark = load_dspark("tiny-moe-dspark", llm.model.textbook)
    group = lab.prompts(llm, 1)["json"]
    made = llm.generate(group, SamplingParams(max_tokens=48, seed=0, ignore_eos=True))[0]
    found = lab.pairs(llm.model.textbook, dspark, group[0] + made.outputs[0].token_ids)
    torch.testing.assert_close(found.q.sum(-1), torch.ones(found.q.shape[:2]))
    rejection, shared = lab.kept_by_both_rules(found, most=4)
    assert 0.5 < shared <= rejection + 1e-9 <= 1


def test_the_record_adds_up():
    record = lab.training_record()
    for drafter in ("main", "no_markov", "layers_2", "layers_1"):
        for temperature in (0, 1):
            rows = record["results"][drafter][f"T={temperature}"]
            for name, rates in lab.acceptance(record, drafter, temperature).items():
                assert rows[name]["accepted_length"] == pytest.approx(
                    tokens_per_pass_naive(rates), abs=0.01
                )
                assert figures.expected_length(rates) == pytest.approx(tokens_per_pass_naive(rates))


def test_distinct_experts_grow_with_tokens(llm):
    texts = [ids for group in lab.prompts(llm, 2, 40).values() for ids in group]
    chosen = lab.routes(llm.model.textbook, texts)
    one, six = lab.distinct_experts(chosen, 1), lab.distinct_experts(chosen, 6)
    assert len(one) == 4 and one[0] == 4
    assert all(a < b <= 64 for a, b in zip(one, six, strict=True))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_figures_draw(capsys):
    figures.expected_tokens(0.75)
    assert "3 drafts give 2.73 tokens a pass, endless ones 4.00" in capsys.readouterr().out
    figures.acceptance_by_position()
    figures.experts_hit([4.0, 7.6], [15.0, 24.0], 64, 4)
    rates = {"plain": [100.0, 200.0], "five": [150.0, 100.0]}
    figures.speed_by_load(rates, [1, 4])
    assert "150 (1.50)" in figures.rates_table(rates, [1, 4])
    saved = lab.saved_speeds(1.0)
    assert figures.saved_table(saved).count("\n") == len(saved) >= 4
    assert figures.acceptance_text().count("\n") == 4
    assert "1.50" in figures.by_domain_table({"a": {"code": 1.0, "story": 2.0}})


def test_a_race_runs_every_prompt_at_every_load(llm):
    params = SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True)
    rates = lab.race({"a": llm, "b": llm}, [[5, 6], [7, 8]], [1, 2], params, rounds=1)
    assert set(rates) == {"a", "b"} and all(
        len(row) == 2 and min(row) > 0 for row in rates.values()
    )
