"""The post's arithmetic comes out of its assumptions, and follows them when they change."""

from dataclasses import replace

import pytest

from minimoe.perf import economics as eco


def test_storage_of_one_gpu():
    ssd = eco.Storage()
    assert ssd.physical_tb == pytest.approx(17.28)  # "about 17"
    assert ssd.overhead == pytest.approx(1.2)  # "adds about 20 %"
    assert ssd.disk_dollars == pytest.approx(8_640)  # "about $8,500"
    assert ssd.years * eco.HOURS_PER_YEAR == pytest.approx(44_000, rel=0.01)
    assert ssd.disk_dollars_per_hour == pytest.approx(0.20, abs=0.01)
    assert 0.2 < ssd.dollars_per_hour < 0.5


def test_three_copies_cost_two_and_a_half_times_as_much():
    copies = replace(eco.Storage(), data_shards=1, parity_shards=2)
    assert copies.dollars_per_hour / eco.Storage().dollars_per_hour == pytest.approx(3 / 1.2)


def test_gpus_implied_by_the_pool():
    assert eco.gpus_implied(100, 14.4) == pytest.approx(7_819, abs=1)
    assert eco.gpus_implied(100, 14.4, overhead=1.2) == pytest.approx(6_516, abs=1)


def test_value_of_a_stored_token():
    prefill = eco.recompute_dollars_per_million(16, 73_700, hit_share=0.563)
    assert prefill == pytest.approx(0.138, abs=5e-4)
    disk = eco.Storage(logical_tb=1, dollars_per_tb=100, years=3, surroundings=1)
    keep = disk.token_dollars_per_day(70_272)
    reads = eco.break_even_reads_per_day(keep, prefill)
    assert reads == pytest.approx(0.056, abs=5e-4)
    assert eco.value_per_day(reads, prefill, keep) == pytest.approx(0, abs=1e-15)
    smaller = eco.break_even_reads_per_day(disk.token_dollars_per_day(890), prefill)
    assert smaller == pytest.approx(reads * 890 / 70_272)


def test_income_and_tokens_a_day():
    for gpus, share in [(6_000, 0.0302), (7_000, 0.0403), (8_000, 0.0504)]:
        income = eco.income_per_million(155e12, 38, gpus)
        assert eco.output_share_for(income, 0.9) == pytest.approx(share, abs=1e-4)
    assert eco.tokens_per_second_per_gpu(155e12, 7_000) == pytest.approx(256_283, abs=1)


@pytest.mark.parametrize("hit_rate", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.4])
def test_hit_rate_and_output_share_are_inverse(hit_rate, share):
    income = eco.TokenPrices().blend(hit_rate, share)
    assert eco.hit_rate_for(income, share) == pytest.approx(hit_rate)
    assert eco.output_share_for(income, hit_rate) == pytest.approx(share)


def test_small_formulas():
    assert eco.dollars_per_million(3.6, 1000) == pytest.approx(1.0)
    assert eco.throughput_gain_to_pay(0.4, 4) == pytest.approx(0.1)
