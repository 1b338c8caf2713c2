"""What an expectation costs, in calls of the normal distribution function."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.special
from numpy.typing import NDArray

from benchmarks._measure import compare, peak_memory
from benchmarks._registry import Config, Row, benchmark
from varopt import terms


@benchmark
def abs_derivatives(config: Config) -> Iterator[Row]:
    """Value, gradient and second derivative of many abs terms in one pass, against one `ndtr` on the same array."""
    size = config.pick(10**6, 10**4)
    rng = np.random.default_rng(0)
    term, s = terms.abs_(), np.ones(size)
    # u = nu / s: with many terms in the tails, as a standard normal, and all near the knot, where ndtr is cheapest.
    for spread in (3.0, 1.0, 0.1):
        nu = spread * rng.standard_normal(size)

        def candidate(nu: NDArray[np.float64] = nu) -> object:
            return term.derivatives(nu, s)

        def baseline(nu: NDArray[np.float64] = nu) -> object:
            return scipy.special.ndtr(nu)

        timed = compare(candidate, baseline, rounds=config.pick(21, 5))
        yield Row(
            problem=f"{size:.0e} abs terms, u ~ N(0, {spread:g}^2): value, first and second derivative",
            solver="terms.derivatives",
            ratio_of="time / one scipy.special.ndtr call on the same array",
            ratio=timed.ratio,
            target=4.0,
            timing=timed.candidate,
            baseline=timed.baseline,
            objective=float(np.sum(term.expectation(nu, s))),
            peak_bytes=peak_memory(candidate),
        )
