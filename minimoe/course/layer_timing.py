"""An expert layer timed on this CPU as an engine meets it: with weights that are not in cache."""

from dataclasses import replace

import torch

from minimoe.bench.expert_shapes import ExpertShape, random_weights, routed
from minimoe.bench.moe import bench_ids
from minimoe.perf.hardware import Hardware

SETS = 16


def time_layer(shape: ExpertShape, tokens: list[int], machine: Hardware) -> list[dict]:
    """Rows as of `bench moe`, float32, one per number of tokens.

    A few tokens hit a few experts, and repeats of the same run would find those in cache. So the
    runs take turns over SETS windows of a longer list of experts, each K further on: no expert is
    met again until K * SETS others were.
    """
    more = replace(shape, E=shape.E + shape.K * (SETS - 1))
    gate_up, down = random_weights(more, torch.float32, "cpu")
    starts = range(0, shape.K * SETS, shape.K)
    weights = [(gate_up[at : at + shape.E], down[at : at + shape.E]) for at in starts]
    rows = []
    for T in tokens:
        row = bench_ids(
            shape, routed(shape, T, "cpu"), weights, "float32", "cpu", machine, baselines=False
        )
        rows.append({"shape": shape.name, "tokens": T, **row})
    return rows
