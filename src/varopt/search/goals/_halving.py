"""Successive halving without waiting: an evaluation goes on past a rung if it is among the better share there [L20].

L20: L. Li, K. Jamieson, A. Rostamizadeh, E. Gonina, J. Ben-tzur, M. Hardt, B. Recht and A. Talwalkar, *A system for
massively parallel hyperparameter tuning*, MLSys 2020; the variant that stops instead of pausing. Ours: what an
evaluation is compared with is what was known when it began. So nothing is asked on the way, any executor will do, and
which evaluations stop depends on the batch and not on who is faster.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from varopt.search._checks import whole

__all__ = ["Halving", "Rungs", "as_halving"]


@dataclass(frozen=True)
class Halving:
    """Which reports decide whether an evaluation goes on.

    Parameters
    ----------
    first : int
        The step of the first rung: as many values are reported before any evaluation is stopped.
    factor : int
        Each rung is so many times as far as the one before, and one in so many goes on past it.
    """

    first: int = 1
    factor: int = 3

    def __post_init__(self) -> None:
        whole("first", self.first, 1)
        whole("factor", self.factor, 2)


def as_halving(stop_early: Any) -> Halving | None:
    """What the option `stop_early` says, or a `ValueError`."""
    if isinstance(stop_early, Halving):
        return stop_early
    if stop_early is None or isinstance(stop_early, bool):
        return Halving() if stop_early else None
    if isinstance(stop_early, (list, tuple)) and len(stop_early) == 2:  # as a journal keeps it
        return Halving(*stop_early)
    raise ValueError(f"stop_early must be True, False or a varopt.search.Halving; got {stop_early!r}.")


class Rungs:
    """The values that evaluations reported at each rung, and what that means for the next.

    Parameters
    ----------
    halving : Halving
        Where the rungs are.
    """

    def __init__(self, halving: Halving) -> None:
        self._halving = halving
        self._values: dict[int, list[float]] = defaultdict(list)  # sorted
        self._longest = 0  # steps of an evaluation that finished

    def see(self, reports: Sequence[float], *, finished: bool) -> None:
        """Take note of what an evaluation reported, smaller being better, and whether that was all it had to."""
        self._longest = max(self._longest, len(reports) if finished else 0)
        step = self._halving.first
        while step <= len(reports):
            insort(self._values[step], reports[step - 1])
            step *= self._halving.factor

    def limits(self) -> dict[int, float]:
        """For every rung that enough have reached, the highest value with which the next evaluation goes on.

        None at the last step: what has come so far is a result.
        """
        factor = self._halving.factor
        return {
            step: values[(len(values) + 1) // factor - 1]
            for step, values in self._values.items()
            if len(values) >= factor and step < self._longest
        }
