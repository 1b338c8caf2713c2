"""What no cut exceeds: ours, CP-SAT's bound, and what follows from the duals of two semidefinite solvers.

The programme is ``max <L, X> / 4`` over ``X >= 0`` with unit diagonal, and its dual ``min sum(y)`` where ``Diag(y) -
L / 4 >= 0``. A solver's y keeps to that up to its tolerance only: what it lacks, times the nodes, is added.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks._cut_rivals import cp_sat
from benchmarks._registry import Config, Row, benchmark
from benchmarks.annealing import processor_clock
from benchmarks.cuts._runs import best_known, graph_named
from benchmarks.discrete import is_absent, one_thread
from varopt.discrete import max_cut

__all__ = ["upper_bounds"]

Vector = NDArray[np.float64]


def _laplacian(graph: Any) -> Vector:
    dense = graph.toarray() if sp.issparse(graph) else np.asarray(graph)
    return np.asarray(np.diag(dense.sum(axis=1)) - dense) / 4.0


def _valid(laplacian: Vector, y: Vector) -> float:
    """A bound from any y."""
    lacking = float(np.linalg.eigvalsh(np.diag(y) - laplacian)[0])
    return float(y.sum()) + len(y) * max(0.0, -lacking)


def _cone(laplacian: Vector, lower: bool) -> tuple[Any, Vector, Vector, Any]:
    """``min sum(y)`` with ``A y + s = b``, s the triangle of a matrix in a cone; and which entries it has."""
    n = len(laplacian)
    rows, columns = np.tril_indices(n) if lower else np.triu_indices(n)
    order = np.lexsort((rows, columns))  # by columns
    rows, columns = rows[order], columns[order]
    at = np.flatnonzero(rows == columns)
    A = sp.csc_matrix((-np.ones(n), (at, np.arange(n))), shape=(rows.size, n))
    scaled = np.where(rows == columns, 1.0, np.sqrt(2.0)) * laplacian[rows, columns]
    return A, -scaled, np.ones(n), n


def _scs(laplacian: Vector, seconds: float) -> Vector:
    import scs

    A, b, c, n = _cone(laplacian, lower=True)
    solver = scs.SCS({"A": A, "b": b, "c": c}, {"s": [n]}, time_limit_secs=seconds, eps_abs=1e-6, eps_rel=1e-6,
                     max_iters=10**6, verbose=False)  # fmt: skip
    return np.asarray(solver.solve()["x"])


def _clarabel(laplacian: Vector, seconds: float) -> Vector:
    import clarabel

    A, b, c, n = _cone(laplacian, lower=False)
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.time_limit, settings.max_threads = False, seconds, 1
    empty = sp.csc_matrix((n, n))
    return np.asarray(clarabel.DefaultSolver(empty, c, A, b, [clarabel.PSDTriangleConeT(n)], settings).solve().x)


_FACTORED = 100  # nodes up to which an interior point is run: of 200 its factors take 20 GB
_SOLVERS: dict[str, Callable[[Vector, float], Vector]] = {"scs": _scs, "clarabel": _clarabel}


@benchmark
@one_thread
def upper_bounds(config: Config) -> Iterator[Row]:
    """Our bound over the best of the others in the same time: at most one where ours is not behind."""
    names = config.pick(("dense +-1 100", "dense +-1 200", "planar 400", "G1"), ("dense +-1 30",))
    for name in names:
        if name[0] == "G" and not np.isfinite(best_known(name)):
            yield Row(name, "varopt", "", 0.0, np.inf, skipped="the data are not in the folder that VAROPT_DATA names")
            continue
        graph, seconds = graph_named(name), config.pick(5.0, 1.0)
        with processor_clock():
            found = max_cut(graph, time_limit=seconds)
        bounds: dict[str, tuple[float, float]] = {}
        for solver, solve in _SOLVERS.items():
            if is_absent(solver) or (solver == "clarabel" and graph.shape[0] > _FACTORED):
                continue
            laplacian, began = _laplacian(graph), time.process_time()
            y = solve(laplacian, seconds)
            spent = time.process_time() - began
            bounds[solver] = (_valid(laplacian, y), spent)
        if not is_absent("ortools"):
            cut = cp_sat(graph, seconds, 0)
            bounds["CP-SAT"] = (cut.upper, cut.seconds)
        least = min((bound for bound, _ in bounds.values()), default=np.inf)
        told = ", ".join(f"{solver} {bound:.8g} ({spent:.1f} s)" for solver, (bound, spent) in bounds.items())
        yield Row(
            f"{name}, {seconds:g} s", "varopt", "bound / the best of the others", found.upper / least, 1.0,
            objective=found.fun, gap=found.upper - found.fun,
            note=f"cut {found.fun:g}, none exceeds {found.upper:g} ({found.time:.1f} s, {found.status.name}); {told}",
        )  # fmt: skip
