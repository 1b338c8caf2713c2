"""The problems of the field by name, each in its own convention; all of them one energy of bits underneath."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import bandwidth, issymmetric

from varopt._domains import as_finite
from varopt.discrete._clauses import checked_clauses, checked_weights, variable_count
from varopt.discrete._labels import LabelledResult, is_label, labelled, mapping_matrix, mapping_vector
from varopt.optimize import Result, Status, minimize_energy
from varopt.solvers.discrete import (
    BIT,
    NEGATED,
    Energy,
    Products,
    added_rounding,
    doubles,
    lost_by_converting,
    lost_of_repeated,
    model_energy,
)

__all__ = ["ising", "max_cut", "max_sat", "qubo"]

Vector = NDArray[np.float64]


class Options(TypedDict, total=False):
    """What all of them take besides."""

    x0: Any
    progress: bool
    callback: Callable[[Any], Any] | None
    tol: float
    method: str
    device: str | None
    pool: int
    beta: Callable[[float], float] | None


_OPTIONS = {*Options.__annotations__, "time_limit", "seed", "started"}


def max_cut(
    graph: Any, *, weight: str = "weight", time_limit: float | None = None, target: float | None = None,
    seed: Any = 0, **options: Unpack[Options],
) -> LabelledResult:  # fmt: skip
    """Two sides for the nodes of a graph such that the edges between them weigh most.

    Parameters
    ----------
    graph : sparse or dense matrix, or networkx graph
        Weights of edges, of either sign; nodes of a networkx graph are in the order of ``graph.nodes``. Loops are never
        cut. A triangular matrix states every edge once; of another asymmetric matrix the weights of both directions
        are added up, with a warning.
    weight : str
        The attribute of networkx edges that is their weight; an edge without it has weight 1.
    time_limit : float, optional
        Seconds. With it the search uses all the time it is given, unless the optimum is proved; without, it ends when
        it has settled.
    target : float, optional
        Stop at a cut at least as large.
    seed : int or numpy.random.Generator
        Equal seeds give equal runs. With a time limit they are planned to fit in it, by what sweeps take as it goes:
        then equal seeds begin alike, and may end differently.
    **options
        ``x0``, sides to start from; ``progress=True`` for a live line on standard error; ``callback``, called with the
        state after every round (it may raise `StopIteration`); ``tol``, the relative gap that counts as proved;
        ``method``, one of `varopt.solvers.discrete.SEARCHES`; ``device="cuda"`` to search on a GPU, with PyTorch;
        ``pool``, how many of the best different cuts ``r.pool`` keeps.

    Returns
    -------
    LabelledResult
        ``x`` the side of each node, 0 or 1; ``partition`` the two sets of nodes; ``fun`` the cut; ``upper`` what no cut
        exceeds; ``draw()`` draws it where the graph is networkx's.

    Notes
    -----
    Memory is linear in the edges, but for the proof of the upper bound: n^2 numbers up to n = 4500. Where a quarter of
    all pairs or more are edges, it is that of two to three dense matrices.

    Examples
    --------
    >>> import numpy as np
    >>> from varopt.discrete import max_cut
    >>> square = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])
    >>> r = max_cut(square)
    >>> r.fun, r.status.name, bool(r.x[0] != r.x[1])
    (4.0, 'PROVED', True)
    """
    started = time.perf_counter()
    named = hasattr(graph, "nodes") and hasattr(graph, "edges")  # networkx, without importing it
    given, _, rounded = _adjacency(graph, weight) if named else _matrix("graph", graph)
    matrix, share = _couplings("graph", given)
    # cut = sum_{i<j} w_ij (x_i + x_j - 2 x_i x_j)
    energy = Energy.quadratic_form(matrix, weight=2.0 * share)
    sums, lost = energy.row_sums()
    energy = replace(energy, linear=-0.5 * sums, rounding=energy.rounding + lost + rounded)
    r = _maximized(energy, target, time_limit=time_limit, seed=seed, started=started, **options)
    return labelled(r, list(graph.nodes), graph) if named else labelled(r)


def qubo(
    Q: Any, linear: Any = None, *, maximize: bool = False, time_limit: float | None = None,
    target: float | None = None, seed: Any = 0, **options: Unpack[Options],
) -> LabelledResult:  # fmt: skip
    """Minimise, or maximise, ``x'Qx + linear'x`` over bits.

    Parameters
    ----------
    Q : square matrix, sparse or dense, mapping from pairs to numbers, or dimod.BinaryQuadraticModel
        Every entry counts: Q need not be symmetric, and an upper triangle states each pair once. Pairs are of indices
        from 0, or of labels of any other kind, such as texts.
    linear : array of shape (n,), optional
        Added to the diagonal of Q.
    maximize : bool
        Maximise instead.
    time_limit, target, seed, **options
        As for `max_cut`.

    Returns
    -------
    LabelledResult
        ``x`` the bits; ``sample`` the bits by label; ``lower <= optimum <= upper``.

    Examples
    --------
    >>> from varopt.discrete import qubo
    >>> r = qubo({(0, 0): -1.0, (1, 1): -1.0, (0, 1): 3.0})
    >>> r.fun, int(r.x.sum()), r.status.name
    (-1.0, 1, 'PROVED')
    """
    started = time.perf_counter()
    sign = -1.0 if maximize else 1.0
    labels: list[Hashable] | None
    if hasattr(Q, "change_vartype") and hasattr(Q, "quadratic"):  # dimod, without importing it
        coefficients, rounded = _vector("linear", linear, len(Q.variables))
        if not len(Q.variables):
            raise ValueError("Q must not be empty.")
        energy, labels = model_energy(Q, sign, coefficients)
    else:
        matrix, labels, lost = _matrix("Q", Q)
        coefficients, rounded = _vector("linear", linear, matrix.shape[0])
        energy, rounded = Energy.quadratic_form(matrix, sign * coefficients, weight=sign), rounded + lost
    energy = replace(energy, rounding=energy.rounding + rounded)
    run = _maximized if maximize else _minimized
    return labelled(run(energy, target, time_limit=time_limit, seed=seed, started=started, **options), labels)


def ising(
    J: Any, h: Any = None, *, time_limit: float | None = None, target: float | None = None, seed: Any = 0,
    **options: Unpack[Options],
) -> LabelledResult:  # fmt: skip
    """Minimise ``sum_{i<j} J_ij s_i s_j + h's`` over spins s in {-1, 1}^n.

    Parameters
    ----------
    J : square matrix, sparse or dense, or mapping from pairs to numbers
        Couplings: of a symmetric matrix every pair counts once; a triangular one and a mapping state each pair once.
        Of another asymmetric matrix both entries of a pair are added up, with a warning. The diagonal is a constant.
    h : array of shape (n,), or mapping from spins to numbers, optional
        Fields; spins that a mapping leaves out have none.
    time_limit, target, seed, **options
        As for `max_cut`; ``x0`` are spins.

    Returns
    -------
    LabelledResult
        ``x`` the spins, -1 or 1; ``sample`` the spins by label; ``fun`` the energy.

    Examples
    --------
    >>> from varopt.discrete import ising
    >>> r = ising({(0, 1): 1.0, (1, 2): 1.0}, h=[0.5, 0.0, 0.0])
    >>> r.x, r.fun
    (array([-1.,  1., -1.]), -2.5)
    """
    started = time.perf_counter()
    if isinstance(J, Mapping) and isinstance(h, Mapping):  # as in Ocean: spins may have a field and no coupling
        J = {**J, **{(spin, spin): 0.0 for spin in h if is_label(spin) and (spin, spin) not in J}}
    given, labels, rounded = _matrix("J", J)
    matrix, share = _couplings("J", given)
    if isinstance(h, Mapping):
        fields, lost = mapping_vector("h", h, labels, matrix.shape[0])
    else:
        fields, lost = _vector("h", h, matrix.shape[0])
    diagonal = np.asarray(matrix.diagonal(), dtype=np.float64)
    energy = Energy.spin_form(matrix, fields, math.fsum(diagonal.tolist()), share)
    energy = replace(energy, rounding=energy.rounding + rounded + lost + added_rounding([diagonal], 2))
    if options.get("x0") is not None:
        spins = as_finite("x0", options["x0"])
        if not np.all(np.abs(spins) == 1.0):
            raise ValueError(f"x0 must be made of the spins -1 and 1; got {spins[np.abs(spins) != 1.0][0]:g}.")
        options["x0"] = (spins + 1.0) / 2.0
    r = _minimized(energy, target, time_limit=time_limit, seed=seed, started=started, **options)
    pool = r.pool and replace(r.pool, x=2.0 * r.pool.x - 1.0)
    return labelled(replace(r, x=2.0 * r.x - 1.0, pool=pool), labels)


def max_sat(
    clauses: Iterable[Sequence[int]], weights: Any = None, variables: int | None = None, *,
    time_limit: float | None = None, target: float | None = None, seed: Any = 0, **options: Unpack[Options],
) -> Result:  # fmt: skip
    """Truth values that satisfy as much weight of clauses as possible.

    Parameters
    ----------
    clauses : iterable of sequences of int
        Literals: variables counted from 1, negative if negated. ``max_sat(*read_cnf(path))`` reads them from a file.
    weights : array, optional
        Nonnegative weights of the clauses; one by default. An infinite weight is a hard clause: it counts nothing in
        `fun` while it is satisfied, and more than all others together, negatively, when it is not.
    variables : int, optional
        Their number, where the last ones occur in no clause; else the largest that occurs.
    time_limit, target, seed, **options
        As for `max_cut`.

    Returns
    -------
    Result
        ``x`` the truth value, 0 or 1, of each variable; ``fun`` the weight satisfied; ``upper`` what no assignment
        exceeds. Its status is INFEASIBLE where it is proved that nothing satisfies all hard clauses.

    Notes
    -----
    A clause is violated where a product of negated literals is one: it stays a product, of any length, and is never
    expanded into monomials nor reduced to pairs. The upper bound is a semidefinite programme of pairs below it.

    Examples
    --------
    >>> from varopt.discrete import max_sat
    >>> r = max_sat([[1, 2], [-1, 2], [1, -2], [-1, -2]])
    >>> r.fun, r.upper, r.status.name
    (3.0, 3.0, 'PROVED')
    """
    started = time.perf_counter()
    listed = checked_clauses(clauses)
    if not listed:
        raise ValueError("clauses must not be empty.")
    given = checked_weights(weights, len(listed))
    energy = _violations(listed, given, variable_count(listed, variables))
    if weights is not None:
        energy = replace(energy, rounding=energy.rounding + lost_by_converting(np.asarray(weights)))
    r = _maximized(energy, target, time_limit=time_limit, seed=seed, started=started, **options)
    # Whoever satisfies the hard clauses has a value of zero at least.
    if np.isinf(given).any() and r.upper < 0.0:
        return replace(r, status=Status.INFEASIBLE)
    return _rounded_once(r, listed, given)


def _rounded_once(r: Result, clauses: Sequence[Sequence[int]], weights: Vector) -> Result:
    """The result with the value of its bits, added up exactly, inside the bracket: energies round more than once."""
    met = [any((r.x[abs(literal) - 1] > 0.5) == (literal > 0) for literal in clause) for clause in clauses]
    if not all(is_met or np.isfinite(w) for is_met, w in zip(met, weights, strict=True)):
        return r
    counted = [w for is_met, w in zip(met, weights.tolist(), strict=True) if is_met and math.isfinite(w)]
    value = math.fsum(counted)
    rest = math.fsum([*counted, -value])  # of the right sign
    below = math.nextafter(value, -math.inf) if rest < 0.0 else value
    above = math.nextafter(value, math.inf) if rest > 0.0 else value
    certificate = replace(r.certificate, lower=min(r.lower, below), upper=max(r.upper, above))
    return replace(r, fun=value, certificate=certificate)


def _minimized(energy: Energy, target: float | None, **options: Any) -> Result:
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise TypeError(f"{unknown[0]!r} is no option; there are {', '.join(Options.__annotations__)}.")
    return minimize_energy(energy, target=target, **options)


def _maximized(energy: Energy, target: float | None, **options: Any) -> Result:
    """Minimise an energy that is minus what the user maximises."""
    target = -target if isinstance(target, (int, float, np.number)) else target
    return _minimized(energy, target, **options).mirrored()


# -- What users hand in -----------------------------------------------------------------------------------------------


def _adjacency(graph: Any, weight: str) -> tuple[Any, None, float]:
    """The matrix of a networkx graph, with every edge above the diagonal, and what it has lost to rounding."""
    place = {node: k for k, node in enumerate(graph.nodes)}
    edges = [(place[a], place[b], _edge_weight(a, b, data.get(weight, 1.0))) for a, b, data in graph.edges(data=True)]
    rows, columns, given = zip(*edges, strict=True) if edges else ((), (), ())
    weights, lost = doubles(given)
    above = np.minimum(rows, columns), np.maximum(rows, columns)
    matrix, _, lost_in_sums = _matrix("graph", sp.coo_array((weights, above), shape=(len(place), len(place))))
    return matrix, None, lost + lost_in_sums


def _edge_weight(a: Any, b: Any, value: Any) -> Any:
    try:
        float(+value)  # a text is no number
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"graph must have numbers for weights; the edge from {a!r} to {b!r} has {value!r}.") from None
    return value


def _matrix(name: str, value: Any) -> tuple[Any, list[Hashable] | None, float]:
    """A finite square matrix, sparse or dense as it came, the labels of its rows, where it has any, and its rounding.

    Rounding is of numbers that double precision does not hold, and of sums of those that stand in one place.
    """
    labels, lost = None, 0.0
    if isinstance(value, Mapping):
        value, labels, lost = mapping_matrix(name, value)
    if sp.issparse(value) and value.ndim == 2:
        lost += lost_by_converting(value)
        matrix, repeated = _stored_once(name, value)
        lost += repeated
    else:
        given = np.asarray(as_finite(name, value))
        lost += lost_by_converting(np.asarray(value))
        matrix = given if given.dtype == np.float32 else given.astype(np.float64, copy=False)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must be a square matrix; got shape {matrix.shape}.")
    if matrix.shape[0] == 0:
        raise ValueError(f"{name} must not be empty.")
    return matrix, labels, lost


def _stored_once(name: str, value: Any) -> tuple[Any, float]:
    """A sparse matrix with one entry in a place, added up in double precision where there are more; its rounding."""
    if value.format == "csr" and value.has_canonical_format:
        matrix = sp.csr_array(value)
        data = as_finite(f"the entries of {name}", matrix.data)
        return sp.csr_array((data, matrix.indices, matrix.indptr), matrix.shape), 0.0
    given = sp.coo_array(value)
    entries: Vector = as_finite(f"the entries of {name}", given.data).astype(np.float64, copy=False)
    matrix = sp.csr_array((entries, given.coords), given.shape)
    once = matrix.nnz == entries.size
    return matrix, 0.0 if once else lost_of_repeated(entries, given.row, given.col, given.shape[1])


def _couplings(name: str, matrix: Any) -> tuple[Any, float]:
    """A matrix, and the share of a pair that each of its two entries states: half where it is symmetric."""
    if _is_symmetric(matrix):
        return matrix, 0.5
    if not _is_triangular(matrix):
        warnings.warn(
            f"{name} is not symmetric: the entries (i, j) and (j, i) of a pair were added up.",
            UserWarning,
            stacklevel=3,
        )
    return matrix, 1.0


def _is_symmetric(matrix: Any) -> bool:
    return bool(abs(matrix - matrix.T).max() == 0.0 if sp.issparse(matrix) else issymmetric(matrix))


def _is_triangular(matrix: Any) -> bool:
    if sp.issparse(matrix):
        return not (sp.tril(matrix, -1).count_nonzero() and sp.triu(matrix, 1).count_nonzero())
    return 0 in bandwidth(matrix)


def _vector(name: str, value: Any, size: int) -> tuple[Vector, float]:
    """The numbers, and what they lose in double precision; without any, zeros."""
    if value is None:
        return np.zeros(size), 0.0
    vector = np.asarray(as_finite(name, value), dtype=np.float64)
    if vector.shape != (size,):
        raise ValueError(f"{name} must have {size} entries; got shape {vector.shape}.")
    return vector, lost_by_converting(np.asarray(value))


def _violations(clauses: list[list[int]], weights: Vector, size: int) -> Energy:
    """The weight of violated clauses as an energy, less the weight of soft clauses in all."""
    soft = np.isfinite(weights)
    total = math.fsum(weights[soft].tolist())
    # More than all soft ones together, in their units: it is not to swallow their digits.
    weights = np.where(soft, weights, 2.0 * total or 1.0)
    by_length: dict[int, list[int]] = {}
    for k, clause in enumerate(clauses):
        if not any(-literal in clause for literal in clause):  # else it is always satisfied
            by_length.setdefault(len(clause), []).append(k)
    linear, constant, matrix, products = np.zeros(size), 0.0, sp.csr_array((size, size)), []
    for length, chosen in by_length.items():
        literals = np.array([clauses[k] for k in chosen])
        weight = weights[chosen]
        at = np.abs(literals) - 1
        # Violated where every literal is false: a factor 1 - x of a plain literal, x of a negated one.
        if length > 2:
            products.append(Products(at + size * np.where(literals > 0, NEGATED, BIT), weight))
            continue
        offset, signs = (literals > 0).astype(np.float64), np.where(literals > 0, -1.0, 1.0)
        constant += math.fsum((weight * offset.prod(axis=1)).tolist())
        for j in range(length):
            others = np.delete(offset, j, axis=1).prod(axis=1)
            linear += np.bincount(at[:, j], weights=weight * signs[:, j] * others, minlength=size)
        if length == 2:
            matrix = matrix + sp.csr_array((weight * signs.prod(axis=1), (at[:, 0], at[:, 1])), shape=matrix.shape)
    energy = Energy.quadratic_form(matrix, linear, constant - total)
    short = [k for length, chosen in by_length.items() if length <= 2 for k in chosen]
    # Each of these is in a constant, two coefficients and a pair, with as many others as its variables occur in.
    occurrences = np.bincount(np.abs([literal for k in short for literal in clauses[k]] or [0])).max()
    lost = added_rounding([weights[short]], int(occurrences) + 8, 8.0) + added_rounding([weights[soft]], 2, 2.0)
    # No weight is negative: nothing satisfies more than all of them.
    return replace(energy, products=tuple(products), floor=-total, rounding=energy.rounding + lost)
