"""What an expectation costs, in calls of the normal distribution function."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.special

from benchmarks._measure import compare, peak_memory
from benchmarks._registry import Config, Row, benchmark
from varopt import terms


@benchmark
def abs_derivatives(config: Config) -> Iterator[Row]:
    """Value, gradient and second derivative of many abs terms in one pass, against one `ndtr` on the same array."""
    size = config.pick(10**6, 10**4)
    rng = np.random.default_rng(0)
    # u = nu / s ~ N(0, 9): most terms near the knot, some far in the tails where the formula changes
    nu, s = 3.0 * rng.standard_normal(size), np.ones(size)
    term = terms.abs_()

    def candidate() -> object:
        return term.derivatives(nu, s)

    timed = compare(candidate, lambda: scipy.special.ndtr(nu), rounds=config.pick(21, 5))
    yield Row(
        problem=f"{size:.0e} abs terms: value, first and second derivative",
        solver="terms.derivatives",
        ratio_of="time / one scipy.special.ndtr call on the same array",
        ratio=timed.ratio,
        target=4.0,
        timing=timed.candidate,
        baseline=timed.baseline,
        objective=float(np.sum(term.expectation(nu, s))),
        peak_bytes=peak_memory(candidate),
    )
