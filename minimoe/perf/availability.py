"""What failures cost a group of GPUs that must work together. Label: *derived*.

Nodes fail independently, at a rate per hour, and are repaired after a while. A failure takes
`gpus_lost` GPUs of its node. A group that cannot re-form is down while any of its nodes is broken;
one that re-forms is down for a restart, then serves with the healthy GPUs, and restarts again when
the node is back. A group of 8 on one node has nobody to re-form with if the whole node is lost.
"""

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Failures:
    """Of one node. Defaults *assumed*: one failure in 2,000 hours, 12 hours of repair."""

    per_hour: float = 1 / 2000
    repair_hours: float = 12.0
    gpus_lost: int = 1
    gpus_per_node: int = 8
    restart_hours: float = 0.1

    def __post_init__(self) -> None:
        if min(self.per_hour, self.repair_hours, self.restart_hours) < 0:
            raise ValueError("rates and hours below 0 make no sense: give 0 or more")
        if not 1 <= self.gpus_lost <= self.gpus_per_node:
            limit = f"use 1 to {self.gpus_per_node}"
            raise ValueError(f"{self.gpus_lost} GPUs lost per failure of a node: {limit}")

    @property
    def broken(self) -> float:
        """Part of the time that a node is broken."""
        return self.per_hour * self.repair_hours / (1 + self.per_hour * self.repair_hours)

    def nodes(self, gpus: int) -> int:
        """Nodes of a group. Raises ValueError for parts of a node."""
        if gpus % self.gpus_per_node:
            raise ValueError(f"{gpus} GPUs are no whole nodes of {self.gpus_per_node}")
        return gpus // self.gpus_per_node

    def interruptions_per_hour(self, gpus: int) -> float:
        """Failures somewhere in the group."""
        return self.nodes(gpus) * self.per_hour * (1 - self.broken)

    def rigid(self, gpus: int) -> float:
        """Part of full service of a group that waits for repair: all nodes healthy, and after each
        repair that makes it whole a restart."""
        healthy = (1 - self.broken) ** self.nodes(gpus)
        restarts = self.interruptions_per_hour(gpus) * (1 - self.broken) ** (self.nodes(gpus) - 1)
        return max(0.0, healthy - restarts * self.restart_hours)

    def reforming(self, gpus: int) -> float:
        """Part of full service of a group that re-forms: healthy GPUs, less two restarts of all of
        them for each failure, one without the node and one with it again."""
        lost = self.gpus_lost / self.gpus_per_node
        healthy = 1 - self.broken * lost
        if gpus == self.gpus_per_node and self.gpus_lost == self.gpus_per_node:
            return self.rigid(gpus)
        restarts = 2 * self.interruptions_per_hour(gpus)
        return max(0.0, healthy * (1 - min(1.0, restarts * self.restart_hours)))

    def table(self, sizes=(8, 64)) -> str:
        """Interruptions a month and part of full service, by size of the group."""
        lines = [f"{'GPUs':>5}{'failures a month':>18}{'waits for repair':>18}{'re-forms':>10}"]
        for gpus in sizes:
            monthly = self.interruptions_per_hour(gpus) * 730
            lines.append(
                f"{gpus:>5}{monthly:>18.2f}{self.rigid(gpus):>17.2%}{self.reforming(gpus):>10.2%}"
            )
        return "\n".join(lines)


def simulated(failures: Failures, gpus: int, reform: bool, hours: float, seed: int = 0) -> float:
    """Part of full service over `hours`, event by event: the oracle of the formulas above."""
    rng, nodes = random.Random(seed), failures.nodes(gpus)
    draw = [1 / failures.per_hour, failures.repair_hours]
    due = [rng.expovariate(failures.per_hour) for _ in range(nodes)]  # next change of each node
    broken, now, up_from, served = [False] * nodes, 0.0, 0.0, 0.0
    while now < hours:
        node = min(range(nodes), key=due.__getitem__)
        end = min(due[node], hours)
        lost = sum(broken) * failures.gpus_lost / gpus
        serving = reform or not any(broken)
        if serving:
            served += max(0.0, end - max(now, up_from)) * (1 - lost)
        now = end
        broken[node] = not broken[node]
        due[node] = now + rng.expovariate(1 / draw[broken[node]])
        if reform or not any(broken):
            up_from = now + failures.restart_hours
    return served / hours
