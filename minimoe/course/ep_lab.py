"""What 03_expert_parallelism runs: the engine on real ranks, and one MoE layer on virtual ones."""

import json
import os
import time
from dataclasses import dataclass

import torch

from minimoe.bench.ep import by_formula
from minimoe.course.figures_roofline import V41
from minimoe.course.measured import FOLDER
from minimoe.engine.llm import LLM
from minimoe.engine.params import SamplingParams
from minimoe.model.transformer import Transformer, moe_layers
from minimoe.parallel.dispatch import SlotTable, VirtualExperts
from minimoe.parallel.placement import in_order
from minimoe.parallel.tally import exchange_bytes
from minimoe.parallel.wire import VirtualWire
from minimoe.perf.exchange import Fabric

PARTS = ("own", "exchange", "waiting")


@dataclass(frozen=True)
class Run:
    """The same prompts on P ranks: tokens, speed, where a step's time goes, and bytes."""

    ranks: int
    tokens: list[list[int]]
    tok_s: float
    step: dict[str, float]  # seconds of a step by part, mean over ranks; waiting apart
    bytes: list[dict]  # per rank {kind: (sent, received)}, counted
    formula: list[dict]  # the same by formula


def run_on(ranks: int, prompts: list, new_tokens: int) -> Run:
    """Generate on this many processes of one thread each; 1 is the plain engine, in this one.

    The speed is that of the quicker of two runs. All prompts fit into one step, so there are as
    many steps as new tokens. On one process "own" is all of a step, sampling included.
    """
    params = SamplingParams(max_tokens=new_tokens, temperature=0.0, ignore_eos=True)
    llm = LLM("tiny-moe", device="cpu", expert_parallel_size=ranks, enable_prefix_caching=False)
    llm.generate(prompts[:1], SamplingParams(max_tokens=4, temperature=0.0))  # warm up
    seconds, _ = _timed(llm, prompts, params)
    if ranks > 1:
        llm.engine.step_times(reset=True)  # counted: one run only
    again, outputs = _timed(llm, prompts, params)
    seconds = min(seconds, again)  # other programs only ever add time
    tokens = [out.outputs[0].token_ids for out in outputs]
    tok_s = sum(map(len, tokens)) / seconds
    if ranks == 1:
        step = {"own": seconds / new_tokens, "exchange": 0.0, "waiting": 0.0}
        return Run(1, tokens, tok_s, step, [], [])
    counted = llm.engine.step_times(reset=True)
    formula = by_formula(llm, counted)
    llm.engine.time_apart()
    llm.generate(prompts, params)
    apart = llm.engine.step_times()
    llm.close()
    step = {part: sum(one[part] / one["steps"] for one in apart) / ranks for part in PARTS}
    return Run(ranks, tokens, tok_s, step, [one["bytes"] for one in counted], formula)


def _timed(llm: LLM, prompts: list, params: SamplingParams):
    start = time.perf_counter()
    outputs = llm.generate(prompts, params)
    return time.perf_counter() - start, outputs


def runs_table(runs: list[Run]) -> str:
    """Speed, and a step's milliseconds by part."""
    head = f"{'ranks':>5}{'tok/s':>8}" + "".join(f"{part:>10}" for part in PARTS)
    lines = [head + f"{'step, ms':>10}"]
    for run in runs:
        cells = [run.step[part] * 1e3 for part in PARTS]
        line = f"{run.ranks:>5}{run.tok_s:>8.0f}" + "".join(f"{cell:>10.2f}" for cell in cells)
        lines.append(line + f"{sum(cells):>10.2f}")
    return "\n".join([*lines, f"on a machine of {os.cpu_count()} cores"])


def speed_verdict(runs: list[Run], guess: float) -> str:
    """The last run's speed over the first's beside a guess, and what to make of it."""
    found = runs[-1].tok_s / runs[0].tok_s
    verdict = "slower than one process"
    if found >= 1:
        verdict = "but many processes get more of a busy machine than one does: run it again"
    return f"you said {guess} times, measured here {found:.2f}: {verdict}"


@dataclass(frozen=True)
class Exchange:
    """One MoE layer on P virtual ranks, each with T tokens of its own."""

    ranks: int
    pairs: list[list[int]]  # [P][P]: of rank r's tokens, computed by rank q
    counted: list[dict]  # bytes per rank, from the wire
    formula: list[dict]
    held: int  # experts on a rank
    hit: float  # of those, used in this step; mean over ranks
    rows: float  # rows of an expert that is used
    error: float  # largest difference from the layer in one piece


@torch.no_grad()
def exchange(model: Transformer, ids: list[int], ranks: int, layer: int = 0) -> Exchange:
    """Send the tokens `ids`, dealt out in order, through MoE layer `layer` of virtual ranks.

    Their routes are real: what the layer's router says at that place in the running model.
    """
    moe = moe_layers(model)[layer]
    x, chosen, weights = _layer_input(model, moe, ids)
    config = model.config
    placement = in_order(1, config.n_routed_experts, ranks)
    wire = VirtualWire(ranks)
    gate_up, down = moe.experts.gate_up.data, moe.experts.down.data
    out = VirtualExperts(0, placement, gate_up, down, wire)(x, chosen, weights)
    pairs = pair_counts(placement, chosen)
    formula = exchange_bytes(pairs, placement.per_rank, config.hidden_size, x.itemsize)
    hit, rows = _use(placement, chosen)
    error = (out - moe.experts(x, chosen, weights)).abs().max().item()
    counted = [{kind: tuple(both) for kind, both in one.items()} for one in wire.bytes]
    return Exchange(ranks, pairs, counted, formula, placement.per_rank, hit, rows, error)


def _layer_input(model: Transformer, moe, ids: list[int]):
    """What an MoE layer gets when the model runs over `ids`: `x [T, D]`, and its routes."""
    caught = []
    hook = moe.router.register_forward_hook(lambda *call: caught.append((call[1][0], *call[2][:2])))
    try:
        for start in range(0, len(ids), 512):
            model(torch.tensor([ids[start : start + 512]]))
    finally:
        hook.remove()
    return [torch.cat(part) for part in zip(*caught, strict=True)]


def pair_counts(placement, chosen: torch.Tensor) -> list[list[int]]:
    """`[P][P]`: how many (token, expert) pairs of rank r's tokens rank q computes."""
    found = []
    for rank, ids in enumerate(chosen.tensor_split(placement.ranks)):
        slots = SlotTable(placement, 0, rank).choose(ids)
        on = slots.flatten() // placement.per_rank
        found.append(torch.bincount(on, minlength=placement.ranks).tolist())
    return found


def _use(placement, chosen: torch.Tensor) -> tuple[float, float]:
    """Experts used per rank, and rows per used expert, of one layer. chosen: `[T, K]`."""
    counts = torch.bincount(chosen.flatten(), minlength=placement.experts)
    hit = int((counts > 0).sum())
    return hit / placement.ranks, chosen.numel() / hit


def pairs_table(pairs: list[list[int]]) -> str:
    """Who computes whose pairs: a line per home, a column per rank that computes."""
    ranks = range(len(pairs))
    lines = [" " * 16 + "".join(f"to rank {q}".rjust(11) for q in ranks)]
    for r in ranks:
        lines.append(f"{f'tokens of {r}':<16}" + "".join(f"{n:>11}" for n in pairs[r]))
    return "\n".join(lines)


def bytes_table(counted: list[dict], formula: list[dict]) -> str:
    """Kilobytes that each rank sends, by kind, and whether they are those of the formula."""
    kinds = list(formula[0])
    lines = ["rank" + "".join(f"{kind:>12}" for kind in kinds) + f"{'as by formula':>16}"]
    for rank, (found, want) in enumerate(zip(counted, formula, strict=True)):
        cells = "".join(f"{found[kind][0] / 1000:>9.1f} kB" for kind in kinds)
        same = all(found[kind] == want[kind] for kind in kinds if kind != "counts")
        lines.append(f"{rank:>4}{cells}{'yes' if same else 'NO':>16}")
    return "\n".join(lines)


def hopper_rows(narrow: list[dict], wide: list[dict], fabric: Fabric) -> list[dict]:
    """One V4.1-Flash expert layer on H200s, by tokens per GPU: EP8 beside EP64.

    narrow, wide: rows of `bench moe`, *measured*; the exchange is *derived* from `fabric`.
    Microseconds, and the throughput per GPU of EP8 over EP64, without and with the exchange.
    """
    out = []
    for one, other in zip(narrow, wide, strict=True):
        tokens, layer = one["tokens"], (one["seconds"], other["seconds"])
        sent = [fabric.layer_seconds(P, tokens, V41["D"], V41["K"]) for P in (8, 64)]
        both = [sum(pair) for pair in zip(layer, sent, strict=True)]
        row = {"tokens": tokens, "layer": layer, "exchange": sent}
        out.append(row | {"alone": layer[1] / layer[0], "ratio": both[1] / both[0]})
    return out


def hopper_table(rows: list[dict]) -> str:
    """`hopper_rows` as text."""
    lines = [
        f"{'tokens':>6}{'layer, us':>14}{'exchange, us':>20}{'EP8 / EP64, per GPU':>24}",
        f"{'a GPU':>6}{'EP8':>8}{'EP64':>8}{'EP8':>11}{'EP64':>7}{'layer':>14}{'+ exchange':>14}",
    ]
    for row in rows:
        layer, sent = ([1e6 * t for t in row[name]] for name in ("layer", "exchange"))
        lines.append(
            f"{row['tokens']:>6}{layer[0]:>8.0f}{layer[1]:>8.0f}{sent[0]:>11.0f}{sent[1]:>7.0f}"
            f"{row['alone']:>14.2f}{row['ratio']:>14.2f}"
        )
    return "\n".join(lines)


def load_two_gpus() -> dict:
    """What `bench exchange` measured on two H200s: "messages", "layers", and how it was made."""
    return json.loads((FOLDER / "h200x2-ep.json").read_text(encoding="utf-8"))


def messages_table(record: dict) -> str:
    """All-to-alls between GPUs by bytes sent per GPU."""
    lines = [f"{'bytes':>12}{'us':>8}{'GB/s':>8}"]
    for row in record["messages"]:
        rate = row["bytes_per_second"] / 1e9
        lines.append(f"{row['bytes']:>12,}{row['seconds'] * 1e6:>8.0f}{rate:>8.1f}")
    versions = record["versions"]
    lines.append(f"measured on {record['ranks']} x {record['device']}, {record['date']}, ")
    lines[-1] += f"torch {versions['torch']}, NCCL\n  by: {record['command']}"
    return "\n".join(lines)


def use_table(rows: list[Exchange]) -> str:
    """What a rank holds and how well its experts are used."""
    lines = [f"{'ranks':>5}{'experts held':>14}{'used':>7}{'rows per expert used':>22}"]
    for one in rows:
        lines.append(f"{one.ranks:>5}{one.held:>14}{one.hit:>7.1f}{one.rows:>22.1f}")
    return "\n".join(lines)
