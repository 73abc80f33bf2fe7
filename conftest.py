"""Settings every test shares: threads per worker, hypothesis, and what nbval does not compare."""

import os

import hypothesis


def _share_cores() -> None:
    """Give each pytest worker its part of the cores, also in the processes that it starts."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, _cores() // workers)))


def _cores() -> int:
    """Cores that this process may use: fewer than there are under `taskset` and in containers."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_share_cores()

# The same examples on every run: a course's CI must not fail on a lucky draw.
# `pytest --hypothesis-profile=explore` looks for new ones.
hypothesis.settings.register_profile("course", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("course")


def pytest_collectstart(collector):
    """nbval compares stderr unless told not to; warnings differ from machine to machine."""
    if hasattr(collector, "skip_compare"):
        collector.skip_compare += ("stderr",)
