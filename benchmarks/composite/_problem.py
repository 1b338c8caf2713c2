"""A problem, its certified solution, and the rows that compare it with a yardstick and with rivals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import varopt as vo
from benchmarks._isolate import isolated
from benchmarks._measure import Comparison, compare, peak_memory, seconds
from benchmarks._registry import Config, Row
from benchmarks._rivals import ACCURATE, Rival, challenge, finite

Vector = NDArray[np.float64]

MEMORY = 3.0  # most memory at once, in sizes of the data
SMALL = 10**6  # bytes of data below which memory is that of the interpreter's own objects
ROUNDS = 5
LONGEST = 150.0  # seconds that a rival may be given


@dataclass(frozen=True)
class Problem:
    """An objective to be built from data, and the data as rivals take it.

    Parameters
    ----------
    name : str
    build : callable
        Makes the objective; building is on the clock.
    data : tuple
        What a rival's `prepare` is called with.
    data_bytes : int
        The size of what a user holds.
    """

    name: str
    build: Callable[[], Any]
    data: tuple[Any, ...]
    data_bytes: int


@dataclass(frozen=True)
class Yardstick:
    """What a solve is measured in: the time of `call`, after an allowance of seconds."""

    name: str
    call: Callable[[], object]
    allowance: float = 0.0

    @property
    def ratio_of(self) -> str:
        """The ratio in words."""
        return f"(time - {1e3 * self.allowance:g} ms) / {self.name}" if self.allowance else f"time / {self.name}"


def weighted_gram(X: Vector) -> Yardstick:
    """One weighted Gram matrix: what a step of Newton's method cannot do without."""
    weights = np.ones(X.shape[0])
    return Yardstick("one X.T @ (d[:, None] * X)", lambda: X.T @ (weights[:, None] * X))


@dataclass(frozen=True)
class Bracket:
    """How a solve ended, small enough to be sent between processes."""

    value: float
    lower: float
    method: str
    message: str
    seconds: float

    @property
    def gap(self) -> float:
        """``value - lower``, on the scale of the objective."""
        return self.value - self.lower

    @property
    def closed(self) -> bool:
        """Whether the gap is the one asked for."""
        return self.gap <= ACCURATE * max(1.0, abs(self.value))


@dataclass(frozen=True)
class Contest:
    """A problem with its certified row, against which rivals are run."""

    problem: Problem
    row: Row
    bracket: Bracket | None
    config: Config

    @property
    def our_seconds(self) -> float:
        """The median warm solve, or the only one."""
        if self.row.timing is not None:
            return self.row.timing.median
        return math.nan if self.bracket is None else self.bracket.seconds

    def against(self, rivals: Iterable[tuple[Rival, float]], limit: float = 20.0) -> Iterator[Row]:
        """One row per rival: our seconds over theirs, with the most that passes."""
        limit = self.config.pick(limit, 2.0)
        for rival, target in rivals:
            yield self._row(rival, self.config.pick(target, math.inf), limit)

    def _row(self, rival: Rival, target: float, limit: float) -> Row:
        blank = Row(self.problem.name, rival.name, "varopt's time / its time", math.nan, target)
        if absent := rival.absent:
            return replace(blank, skipped=absent)
        if rival.compile is not None and self.config.quick:
            return replace(blank, skipped="compiles for longer than a quick run may take")
        if self.bracket is None or not math.isfinite(self.bracket.lower):
            return replace(blank, skipped="no certified bound to judge it by")
        if math.isfinite(target):  # long enough for a rival without an answer to have lost by the target
            limit = min(max(limit, 1.1 * self.our_seconds / target), LONGEST)
        objective, lower = self.problem.build(), self.bracket.lower
        outcome = challenge(
            rival, self.problem.data, lambda: vo.minimize(self.problem.build()), self.our_seconds,
            lambda x: float(objective(x)), lower, limit=limit, rounds=self.config.pick(ROUNDS, 2),
        )  # fmt: skip
        row = replace(blank, ratio=outcome.ratio, note=outcome.remark, lower=lower, versions=rival.all_versions)
        if outcome.trial is None:
            if not outcome.remark.startswith("stopped"):
                return replace(row, skipped="it failed")
            row = replace(row, ratio_of="varopt's time / its time, at most")
            return row if row.ratio <= target else replace(row, skipped="too early to tell")
        value = outcome.trial.value
        return replace(row, timing=outcome.timing, objective=value, gap=finite(value - lower))


def certify(
    problem: Problem, yardstick: Yardstick | None, target: float, config: Config, *, limit: float = 30.0,
    memory: float = MEMORY,
) -> Contest:  # fmt: skip
    """Solve to a certified gap of 1e-9 and time it, building included, in turns with the yardstick.

    Without one, what counts is the gap itself. A gap that stays open fails the row, whatever the time.
    """
    if config.tell is not None:
        config.tell(problem)
        return Contest(problem, Row(problem.name, "varopt", "", math.nan, target, skipped="told"), None, config)
    rounds, limit = config.pick(ROUNDS, 2), config.pick(limit, 4.0)

    def solve() -> Any:
        return vo.minimize(problem.build(), time_limit=limit)

    def work() -> Iterator[Bracket | Comparison | int | None]:
        yield None
        results: list[Any] = []
        spent = seconds(lambda: results.append(solve()))
        r = results[-1]
        yield Bracket(r.fun, r.lower, r.method, r.message, spent)
        measure = yardstick.call if yardstick is not None else int
        yield compare(solve, measure, rounds=rounds if spent < 0.1 * limit else 1)
        yield peak_memory(solve)

    done, reason = isolated(work, 3.0 * limit)
    found: dict[type, Any] = {type(item): item for item in done}
    bracket, timed, peak = found.get(Bracket), found.get(Comparison), found.get(int)
    row = Row(
        problem=problem.name,
        solver=f"varopt {bracket.method}" if bracket else "varopt",
        ratio_of=yardstick.ratio_of if yardstick else f"relative gap / {ACCURATE:g}",
        ratio=math.nan,
        target=config.pick(target, math.inf),
        status="ok" if bracket and bracket.closed else bracket.message if bracket else reason,
        data_bytes=problem.data_bytes,
        memory_target=memory if problem.data_bytes >= SMALL and not config.quick else math.inf,
        peak_bytes=peak,
    )
    if bracket:
        relative = bracket.gap / max(1.0, abs(bracket.value)) / ACCURATE
        row = replace(row, objective=bracket.value, lower=bracket.lower, gap=bracket.gap, ratio=relative)
    if timed:
        row = replace(row, timing=timed.candidate)
        if yardstick:
            row = replace(row, baseline=timed.baseline, ratio=timed.ratio_beyond(yardstick.allowance))
    elif bracket and yardstick:
        row = replace(row, ratio=math.nan)
    return Contest(problem, row, bracket, config)
