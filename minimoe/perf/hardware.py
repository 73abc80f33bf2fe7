"""What this machine can do: matrix products per second, and bytes per second by size.

Two numbers bound every step of a model (Roofline, Williams et al., CACM 2009): how fast the machine
multiplies and how fast it reads memory. Sweeping the size shows the caches as steps: what fits in
one is read faster than what does not. Everything here is *measured here*; datasheet figures of
other chips are in `chips.py`.
"""

import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Sweep:
    """Bandwidth over a buffer of `bytes`: read only, and copied (read + written), bytes/s."""

    bytes: int
    read: float
    copy: float


@dataclass
class Hardware:
    """Measured limits of one device. FLOP/s by dtype name, bytes/s, seconds."""

    name: str
    device: str
    matmul: dict[str, float]
    read: float  # from main memory: the largest buffers of the sweep
    copy: float  # bytes read + bytes written
    overhead: float  # of the smallest operation: what Python and dispatch cost
    sweep: list[Sweep] = field(default_factory=list)
    threads: int = 0
    label: str = "measured here"

    def knee(self, dtype: str = "float32") -> float:
        """FLOP per byte above which arithmetic, not memory, is the limit."""
        return self.matmul[dtype] / self.read

    def to_dict(self) -> dict:
        """All fields, for JSON; `from_dict` reads it back."""
        return asdict(self)


def from_dict(record: dict) -> Hardware:
    """The inverse of `Hardware.to_dict`, for measurements kept in a file."""
    return Hardware(**{**record, "sweep": [Sweep(**step) for step in record.get("sweep", [])]})


def measure(
    device: str | None = None, seconds: float = 10.0, progress: bool | None = None
) -> Hardware:
    """Measure the device (None: cuda if there is one, else cpu) in about `seconds`.

    `progress`: a bar on stderr; None draws it only where stderr is a terminal.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    sizes, dtypes = sweep_sizes(device), usable_dtypes(device)
    bar = Bar(2 * len(sizes) + 2 * len(dtypes) + 1, progress)
    budget = seconds / bar.steps
    with torch.inference_mode():
        sweep = [_sweep_step(device, size, budget, bar) for size in sizes]
        matmul = {name: _matmul_rate(device, name, budget, bar) for name in dtypes}
        overhead = _overhead(device)
    bar.step("done")
    largest = sweep[-3:]  # main memory: no cache holds these
    return Hardware(
        name=device_name(device),
        device=device,
        matmul=matmul,
        read=max(step.read for step in largest),
        copy=max(step.copy for step in largest),
        overhead=overhead,
        sweep=sweep,
        threads=torch.get_num_threads() if device == "cpu" else 0,
    )


def cache_steps(sweep: list[Sweep], fall: float = 0.75) -> list[int]:
    """Sizes in bytes after which reads get slower for good: about where a cache ends.

    A step is the last size of a plateau whose successors all stay below `fall` of it.
    """
    steps, best = [], 0.0
    for i, step in enumerate(sweep[:-1]):
        best = max(best, step.read)
        later = max(s.read for s in sweep[i + 1 :])
        if later < fall * best:
            steps.append(step.bytes)
            best = later
    return steps


def last_level_cache(device: str = "cpu") -> int | None:
    """Bytes of the last-level cache as the system reports it; None where it does not."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_properties(device).L2_cache_size
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        unit = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1], 1)
        sizes.append(int(text.rstrip("KMG")) * unit)
    return max(sizes, default=None)


def free_memory(device: str = "cpu") -> int:
    """Bytes that a program may take now: on CUDA of the card, else of the machine."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = dict(line.split(":") for line in meminfo.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    try:  # macOS names only the whole; take half as free
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (ValueError, OSError, AttributeError):
        return 4 << 30


def device_name(device: str) -> str:
    """The name of the CPU or GPU, as its maker gives it."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return platform.processor() or platform.machine()


def usable_dtypes(device: str) -> list[str]:
    """Dtypes worth timing: a GPU without bfloat16 units (T4) is left to float16."""
    if not device.startswith("cuda"):
        return ["float32", "bfloat16"]
    modern = torch.cuda.get_device_capability(device) >= (8, 0)
    return ["float32", "float16", "bfloat16"] if modern else ["float32", "float16"]


def sweep_sizes(device: str) -> list[int]:
    """Buffer sizes, powers of two, up to what fits comfortably in free memory."""
    smallest, largest = (20, 32) if device.startswith("cuda") else (15, 30)
    limit = free_memory(device) // 6
    return [1 << power for power in range(smallest, largest + 1) if 1 << power <= limit]


def best_seconds(
    run: Callable[[], object], device: str, budget: float = 0.2, least: int = 3
) -> float:
    """Seconds of one `run`, the best of several repeats within `budget` seconds."""
    clock = _Clock(device)
    once = clock.time(run, 1)
    repeats = max(1, int(min(0.02, budget / 8) / max(once, 1e-7)))
    best, start, rounds = once, time.perf_counter(), 0
    while rounds < least or time.perf_counter() - start < budget:
        best = min(best, clock.time(run, repeats))
        rounds += 1
    return best


class _Clock:
    """Seconds per run: the device's own events on CUDA, else the host's clock."""

    def __init__(self, device: str) -> None:
        self.cuda = device.startswith("cuda")

    def time(self, run: Callable[[], object], repeats: int) -> float:
        if not self.cuda:
            start = time.perf_counter()
            for _ in range(repeats):
                run()
            return (time.perf_counter() - start) / repeats
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / repeats


def _sweep_step(device: str, size: int, budget: float, bar: "Bar") -> Sweep:
    bar.step(f"memory, {size / 2**20:g} MiB")
    source = torch.full((size // 4,), 0.5, device=device)  # a gigabyte of random numbers is slow
    target = torch.empty_like(source)
    # The faster of two readers: neither is best at every size and on every machine.
    readers = [lambda: torch.dot(source, source), lambda: source.sum()]
    read = size / min(_launched_together(reader, device, budget / 2) for reader in readers)
    bar.step(f"memory, {size / 2**20:g} MiB")
    seconds = best_seconds(lambda: target.copy_(source), device, budget / 2)
    if device.startswith("cuda"):  # a copy in a graph is left to slower copy engines: add instead
        adding = lambda: torch.add(source, 1.0, out=target)  # noqa: E731
        seconds = min(seconds, _launched_together(adding, device, budget / 2))
    return Sweep(size, read, 2 * size / seconds)


def _launched_together(run: Callable[[], object], device: str, budget: float) -> float:
    """Seconds of one run. On CUDA ten runs are one graph: a launch takes longer than a small read,
    and would hide the L2 cache."""
    if not device.startswith("cuda"):
        return best_seconds(run, device, budget)
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            run()
    return best_seconds(graph.replay, device, budget) / 10


def _matmul_rate(device: str, dtype: str, budget: float, bar: "Bar") -> float:
    """FLOP/s of the best square product: 2 n^3 operations for n x n by n x n."""
    best = 0.0
    for n in (4096, 8192) if device.startswith("cuda") else (1024, 2048):
        bar.step(f"matrix product, {dtype}")
        a, b = (torch.randn(n, n, device=device).to(DTYPES[dtype]) for _ in range(2))
        out = torch.empty_like(a)
        run = lambda a=a, b=b, out=out: torch.mm(a, b, out=out)  # noqa: E731
        best = max(best, 2 * n**3 / best_seconds(run, device, budget))
    return best


def _overhead(device: str) -> float:
    """Seconds from Python through dispatch and back for one addition of one number."""
    a = torch.zeros(1, device=device)
    return best_seconds(lambda: a.add_(1.0), device, 0.1)


class Bar:
    """A progress bar of one line on stderr."""

    def __init__(self, steps: int, show: bool | None = None) -> None:
        self.steps, self.done = steps, 0
        self.show = sys.stderr.isatty() if show is None else show

    def step(self, doing: str) -> None:
        """One step is done; `doing` names the next."""
        self.done += 1
        if self.show:
            filled = 30 * self.done // self.steps
            line = f"\r[{'#' * filled:<30}] {doing:<28}"
            end = "\n" if self.done == self.steps else ""
            print(line, end=end, file=sys.stderr, flush=True)
