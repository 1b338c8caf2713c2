"""What an experiment is: repetitions to run, each by several methods, and a section written from what they measured."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from varopt.experiments.report import Section

__all__ = ["Experiment", "ExperimentTask", "Plan", "Row"]

Row = dict[str, Any]  # one method on one repetition: what was measured


@dataclass(frozen=True)
class ExperimentTask:
    """One repetition of an experiment at one size."""

    experiment: str
    size: int
    seed: int
    repetition: int
    budget: int = 0  # iterations, where the experiment limits them
    cost: float = 1.0  # expected seconds, for the remaining time only

    @property
    def key(self) -> tuple[str, int, int, int, int]:
        """What the repetition is known by."""
        return (self.experiment, self.size, self.seed, self.repetition, self.budget)

    def rng(self) -> np.random.Generator:
        """A generator of its own: the same whatever else runs, in whatever order."""
        return np.random.default_rng([self.seed, zlib.crc32(self.experiment.encode()), self.size, self.repetition])

    def row(self, method: str, **measured: Any) -> Row:
        """A row of this repetition."""
        return {
            "experiment": self.experiment, "size": self.size, "seed": self.seed, "repetition": self.repetition,
            "budget": self.budget, "method": method, **measured,
        }  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """What to repeat how often: sizes with their numbers of repetitions."""

    repetitions: dict[int, int]
    budget: int = 0

    def done(self, rows: Sequence[Row]) -> Plan:
        """What of the plan there are rows of."""
        seen = {(row["size"], row["repetition"]) for row in rows}
        counts = {size: sum(other == size for other, _ in seen) for size in self.repetitions}
        return Plan({size: count for size, count in counts.items() if count}, self.budget)

    def __str__(self) -> str:
        sizes: dict[int, list[str]] = {}
        for size, count in self.repetitions.items():
            sizes.setdefault(count, []).append(str(size))
        return ", ".join(
            f"{count} of size {same[0]}"
            if len(same) == 1
            else f"{count} of each size {', '.join(same[:-1])} and {same[-1]}"
            for count, same in sizes.items()
        )


class Experiment(ABC):
    """An experiment of the paper."""

    name: ClassVar[str]
    quick: ClassVar[Plan] = Plan({})
    full: ClassVar[Plan] = Plan({})
    methods: ClassVar[Sequence[str]] = ()

    def tasks(self, plan: Plan, seed: int) -> list[ExperimentTask]:
        """The repetitions of a plan."""
        return [
            ExperimentTask(self.name, size, seed, repetition, plan.budget, self.cost(size))
            for size, count in plan.repetitions.items()
            for repetition in range(count)
        ]

    def cost(self, size: int) -> float:
        """Expected seconds of a repetition."""
        return 1.0

    def run(self, task: ExperimentTask, methods: Collection[str]) -> list[Row]:
        """Run some of the methods on one repetition."""
        raise NotImplementedError(f"{self.name} repeats nothing")

    @abstractmethod
    def section(self, rows: Sequence[Row], plan: Plan, seed: int) -> Section:
        """The section of the report, from the rows of the plan."""
