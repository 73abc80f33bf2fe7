"""Time of one all-to-all of an expert layer: latency, then bytes over NVLink and over the network.

    seconds = latency + max(bytes within the domain / link, bytes beyond it / network)

Fitted to what DeepEP reports for its low-latency kernels (`data/reported/deepep.json`): three
numbers for twelve. Label: *derived* from *reported*.
"""

import json
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from minimoe.config import REPO

DISPATCH, COMBINE = 1.03125, 2.0  # bytes per value: FP8 with a scale per 128 values, bfloat16
REPORTED = REPO / "data" / "reported" / "deepep.json"


@dataclass(frozen=True)
class Fabric:
    """What connects GPUs: `domain` of them by `link` bytes/s each, the rest by `network`."""

    name: str
    latency: float  # seconds of one all-to-all of nothing
    link: float
    network: float
    domain: int

    def seconds(self, ranks: int, sent: float) -> float:
        """One all-to-all among `ranks` GPUs in which each sends `sent` bytes, evenly to all."""
        if ranks == 1:
            return 0.0
        near = min(ranks, self.domain) / ranks
        return self.latency + max(sent * near / self.link, sent * (1 - near) / self.network)

    def layer_seconds(self, ranks: int, tokens: float, D: int, K: int) -> float:
        """Dispatch and combine of one expert layer over `tokens` per GPU."""
        values = tokens * K * D
        return sum(self.seconds(ranks, values * size) for size in (DISPATCH, COMBINE))


@lru_cache(maxsize=1)
def rdma() -> Fabric:
    """H800 with one 400 Gb/s card per GPU, NVLink within 8: fitted to DeepEP's table."""
    record = json.loads(REPORTED.read_text(encoding="utf-8"))
    rows, domain = reported_rows(record), record["setting"]["domain"]
    best = None
    for latency in np.linspace(0, 60e-6, 31):
        for link in np.linspace(100e9, 400e9, 31):
            for network in np.linspace(30e9, 60e9, 31):
                fabric = Fabric("RDMA", float(latency), float(link), float(network), domain)
                worst = max(abs(fabric.seconds(P, sent) / took - 1) for P, sent, took in rows)
                best = min(best or (worst, fabric), (worst, fabric), key=lambda pair: pair[0])
    return best[1]


def reported_rows(record: dict) -> list[tuple[int, float, float]]:
    """(ranks, bytes sent per GPU, seconds) of each reported all-to-all."""
    at = record["setting"]
    values = at["tokens"] * at["topk"] * at["hidden"]
    return [
        (row["ranks"], values * record["bytes_per_value"][kind], row[f"{kind}_us"] * 1e-6)
        for row in record["rows"]
        for kind in ("dispatch", "combine")
    ]


def scale_up() -> Fabric:
    """72 GPUs in one NVLink domain: DeepEP's reported 726 GB/s on SM100, the latency of `rdma`
    *assumed*, since none is reported."""
    record = json.loads(REPORTED.read_text(encoding="utf-8"))
    link = record["later"]["rows"][0]["dispatch_gb_s"] * 1e9
    return replace(rdma(), name="NVLink domain of 72", link=link, domain=72)
