"""Branch and cut on odd-cycle inequalities: proofs of optimality for sparse problems, such as tori of spins."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers.discrete.bounds import OddCycles, Spins
from varopt.solvers.discrete.proofs._branch_and_bound import ProofProgress

__all__ = ["branch_and_cut", "is_sparse"]

Vector = NDArray[np.float64]

# Set by hand: at six edges a spin the semidefinite bound is better, and shortest paths from 3,000 nodes take seconds.
_EDGES_PER_SPIN = 3.5
_SPINS = 3000  # up to which it is tried
_TILT = 0.1  # of the slack of a proof, by which the best cut known is favoured
_STALLED_ROUNDS = 8  # rounds without so much of a better bound,
_RISE = 0.02  # as a share of what is missing, after which a box is split
_DECIDED = 1e-6


def is_sparse(spins: Spins) -> bool:
    """Whether the couplings are so few that the linear relaxation is worth its time."""
    if not sp.issparse(spins.quadratic) or spins.size > _SPINS:
        return False
    edges = int(spins.quadratic.nnz) // 2 + int(np.count_nonzero(spins.field))
    return 0 < edges <= _EDGES_PER_SPIN * spins.size


def branch_and_cut(
    spins: Spins, best: Vector, slack: float, rng: np.random.Generator, expired: Callable[[], bool] = lambda: False
) -> Iterator[ProofProgress]:
    """Rising lower bounds on the energy, and better points where they turn up; it ends when the optimum is proved.

    Parameters
    ----------
    spins : Spins
        The problem, `is_sparse`.
    best : ndarray
        The best spins known.
    slack : float
        A box is closed when its bound exceeds the best value less this.
    rng : numpy.random.Generator
        Where inequalities are looked for first.
    expired : callable
        Asked often; True ends the run early, and what was yielded holds.

    Notes
    -----
    Best first. A box says of some edges whether they are cut. It is bounded in rounds, each a linear programme and new
    inequalities, until it is closed or rounds no longer help; then it is split by the least decided edge. All boxes
    share the inequalities. What is yielded counts the rounds.
    """
    relaxation = OddCycles(spins, rng)
    best = best.copy()
    value = relaxation.value(best)
    relaxation.favour(best, _TILT * slack)
    count, rounds = itertools.count(), 0
    box = np.zeros(relaxation.edges), np.ones(relaxation.edges)
    queue = [(-np.inf, next(count), box)]
    while queue and not expired() and queue[0][0] < value - slack:
        lower, _, (low, high) = heapq.heappop(queue)
        others = queue[0][0] if queue else np.inf
        stalled, cut = 0, 0.5 * (low + high)
        while lower < value - slack and stalled < _STALLED_ROUNDS and not expired():
            found = relaxation.bound(low, high, expired)
            rounds += 1
            if found is None:
                lower = np.inf
                break
            missing = value - slack - lower
            stalled = 0 if found.lower > lower + (_RISE * missing if np.isfinite(missing) else 0.0) else stalled + 1
            lower, cut = max(lower, found.lower), found.cut
            if (energy := relaxation.value(found.spins)) < value - 1e-12 * abs(value):
                best, value = found.spins, energy
                relaxation.favour(best, _TILT * slack)
            # Boxes that were closed are bounded by no more than the best value less the slack.
            yield ProofProgress(min(lower, others, value - slack), best, value, rounds)
            if found.is_closed:
                break
        open_edges = np.flatnonzero(low < high)
        if lower >= value - slack:
            continue
        if expired() or not open_edges.size:  # nothing more can be known of it
            heapq.heappush(queue, (lower, next(count), (low, high)))
            break
        # The least decided; of those that are all decided, though the bound is short of their value, the dearest.
        doubt = np.minimum(cut, 1.0 - cut)[open_edges]
        weight = np.abs(relaxation.couplings[open_edges])
        edge = int(open_edges[(doubt * weight if doubt.max() > _DECIDED else weight).argmax()])
        for side in (0.0, 1.0):
            child = low.copy(), high.copy()
            child[0][edge] = child[1][edge] = side
            heapq.heappush(queue, (lower, next(count), child))
    if not queue or queue[0][0] >= value - slack:
        yield ProofProgress(value, best, value, rounds)
