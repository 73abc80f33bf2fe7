from dataclasses import replace

import pytest

from minimoe.config import ModelConfig
from minimoe.course.parameters import DEEPSEEK_V3, outline, parts, table, total_and_active

TINY = ModelConfig.tiny()


def test_parts_sum_to_all_parameters():
    model = outline(TINY)
    assert sum(part.total for part in parts(model)) == sum(p.numel() for p in model.parameters())


def test_used_is_all_less_the_experts_not_chosen():
    total, active = total_and_active(outline(TINY))
    expert = 3 * TINY.hidden_size * TINY.moe_intermediate_size
    assert total - active == (64 - 4) * expert * 5


@pytest.mark.parametrize("chosen", [1, 64])
def test_edges(chosen):
    total, active = total_and_active(outline(replace(TINY, num_experts_per_tok=chosen)))
    assert (active == total) == (chosen == 64)


def test_tied_embeddings_count_once():
    total, _ = total_and_active(outline(replace(TINY, tie_word_embeddings=True)))
    untied, _ = total_and_active(outline(TINY))
    assert untied - total == TINY.vocab_size * TINY.hidden_size


def test_deepseek_v3_has_the_reported_size():
    total, active = total_and_active(outline(DEEPSEEK_V3))
    assert round(total / 1e9) == 671
    embedding = DEEPSEEK_V3.vocab_size * DEEPSEEK_V3.hidden_size
    assert round((active - embedding) / 1e9, 1) == 36.6  # reported, counted without the embedding


def test_table_ends_with_the_sum():
    assert table(outline(TINY)).splitlines()[-1].split() == ["sum", "8.02", "2.49"]
