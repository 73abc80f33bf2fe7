"""Datasheet figures of chips, label *reported*: vendor's peaks, which no program quite reaches.

Dense rates (no 2:4 sparsity). Compare with *measured* figures by their ratio: on one H200 we
measured about 90 % of the memory bandwidth and 78 % of the bfloat16 rate (`data/measured`).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Chip:
    """FLOP/s by dtype, bytes/s, bytes; `on_chip` is what all cores can hold close by."""

    name: str
    matmul: dict[str, float]
    bandwidth: float
    memory: float
    cache: float  # last-level cache
    on_chip: float  # shared memory or L1 of all cores together
    source: str
    label: str = "reported"

    def knee(self, dtype: str = "bfloat16") -> float:
        """FLOP per byte above which arithmetic is the limit."""
        return self.matmul[dtype] / self.bandwidth


_NVIDIA = "www.nvidia.com/en-us/data-center/"
CHIPS = {
    "H100": Chip(
        "NVIDIA H100 SXM",
        {"bfloat16": 989e12, "float16": 989e12, "float32": 67e12, "float8": 1979e12},
        bandwidth=3.35e12,
        memory=80e9,
        cache=50e6,
        on_chip=132 * 256e3,
        source=f"NVIDIA H100 datasheet, {_NVIDIA}h100; architecture whitepaper for the caches",
    ),
    "H200": Chip(
        "NVIDIA H200 SXM",
        {"bfloat16": 989e12, "float16": 989e12, "float32": 67e12, "float8": 1979e12},
        bandwidth=4.8e12,
        memory=141e9,
        cache=60e6,
        on_chip=132 * 256e3,
        source=f"NVIDIA H200 datasheet, {_NVIDIA}h200; cache size as the device reports it",
    ),
    "B200": Chip(
        "NVIDIA B200 (HGX)",
        {"bfloat16": 2250e12, "float16": 2250e12, "float32": 80e12, "float8": 4500e12},
        bandwidth=8.0e12,
        memory=180e9,
        cache=126e6,
        on_chip=148 * 256e3,
        source=f"NVIDIA HGX B200 figures per GPU, {_NVIDIA}hgx; caches as third parties measured",
    ),
    "laptop": Chip(
        "laptop, 6 cores with AVX2 at 3.5 GHz, two channels of DDR5-5600",
        {"float32": 6 * 32 * 3.5e9, "bfloat16": 6 * 32 * 3.5e9},
        bandwidth=2 * 8 * 5600e6,
        memory=16e9,
        cache=24e6,
        on_chip=6 * 1.25e6,
        source="derived: cores x 32 float32 operations a cycle x clock; channels x 8 B x rate",
        label="derived",
    ),
}
