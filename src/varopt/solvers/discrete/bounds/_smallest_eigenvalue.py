"""Lower bounds on the smallest eigenvalue: proved by a Cholesky factorisation, or by Lanczos with high probability.

With u the unit roundoff, a factorisation of B = A - s I in floating point that runs to completion [Rump06] has

    L L' = B + D,    |D| <= gamma |L| |L'|,    gamma = (n + 1) u / (1 - (n + 1) u),                                  (1)

so that D is no larger than gamma trace(LL'), and with as much again for the rounding of the shift

    lambda_min(A)  >=  s - 2 (n + 3) u (sum_i |B_ii| + n |s|).                                                       (2)

KW92: J. Kuczynski and H. Wozniakowski, *Estimating the largest eigenvalue by the power and Lanczos algorithms with a
random start*, SIAM Journal on Matrix Analysis and Applications 13(4), 1992. Rump06: S. Rump, *Verification of positive
definiteness*, BIT Numerical Mathematics 46, 2006.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal

from varopt._linalg import cholesky
from varopt.solvers.discrete._matrices import as_dense, count_nonzero, product, row_sizes

__all__ = ["FAILURE", "cholesky_lower_bound", "extreme_eigenvalues", "factorisation_seconds", "verified_lower_bound"]

Vector = NDArray[np.float64]

FAILURE = 1e-10  # probability that the bound of a large matrix is wrong
_FACTORED_ORDER = 4500  # order up to which a dense factorisation is affordable
_FACTORED_PER_SECOND = 5e10  # cubes of orders, with a second try: none is begun that would take longer than is left
_LANCZOS_STEPS = 300  # at most; where a factorisation proves what they guess,
_GUESSING_STEPS = 100  # so many
_LANCZOS_NUMBERS = 6_000_000  # numbers of its basis, at most
_UNIT_ROUNDOFF = float(np.finfo(np.float64).eps) / 2


def verified_lower_bound(
    matrix: Any, rng: np.random.Generator, expired: Callable[[], bool] = lambda: False
) -> tuple[float, str]:
    """A number not above the smallest eigenvalue of a symmetric matrix, sparse or dense, and what that rests on.

    Up to order 4500 a Cholesky factorisation that runs to completion proves it, its rounding errors accounted for
    [Rump06]: nothing is assumed. Beyond, it is Lanczos' method from a random start with the worst-case distribution of
    its error [KW92]: wrong with a probability of at most 1e-10. Memory: n^2 up to order 4500, else n times 300 up to
    n = 20,000, and 48 MB from there on. Once `expired`, it is what is known by then: by few steps of Lanczos' method,
    or by the sizes of the entries. Where ``expired.left()`` says how many seconds there are, no factorisation is begun
    that would take longer.
    """
    n = matrix.shape[0]
    if count_nonzero(matrix) == 0:
        return 0.0, ""
    left = getattr(expired, "left", lambda: math.inf)()
    factored = factorisation_seconds(n) < left
    most = _GUESSING_STEPS if factored else _LANCZOS_STEPS
    smallest, largest, steps = extreme_eigenvalues(lambda v: product(matrix, v), n, rng, expired, most)
    if factored:
        proved = cholesky_lower_bound(matrix, smallest, expired)
        if proved > -float(row_sizes(matrix).max()):
            return proved, ""
    # Of a positive semidefinite B with largest eigenvalue b, k steps find xi with
    # P(xi < (1 - eps) b) <= 1.648 sqrt(n) exp(-sqrt(eps) (2k - 1)) [KW92, theorem 4.2].
    # Here B = A + radius I, then B = top I - A: half of the probability for each.
    eps = (math.log(1.648 * math.sqrt(n) / (0.5 * FAILURE)) / (2 * steps - 1)) ** 2
    radius = float(row_sizes(matrix).max())
    if eps >= 0.5:
        return -radius, ""
    # lambda_max <= top, as xi = largest + radius; then lambda_min >= top - (top - smallest) / (1 - eps)
    top = min(radius, (largest + radius) / (1.0 - eps) - radius)
    bound = max(-radius, top - (top - smallest) / (1.0 - eps) - 1e-10 * radius)
    return bound, f"Lanczos' random start was not one of the {FAILURE:g} that mislead it [KW92]"


def factorisation_seconds(n: int) -> float:
    """About what a proof by factorisation takes; infinite where none is tried."""
    return n**3 / _FACTORED_PER_SECOND if n <= _FACTORED_ORDER else math.inf


def extreme_eigenvalues(
    apply: Callable[[Vector], Vector], n: int, rng: np.random.Generator, expired: Callable[[], bool] = lambda: False,
    most: int = _LANCZOS_STEPS,
) -> tuple[float, float, int]:  # fmt: skip
    """The ends of the spectrum, from inside, by Lanczos' method, kept orthogonal, and the steps it took."""
    steps = max(2, min(n, most, _LANCZOS_NUMBERS // n))
    basis = np.empty((steps, n))
    diagonal, off = np.zeros(steps), np.zeros(max(0, steps - 1))
    v = rng.standard_normal(n)
    v /= np.linalg.norm(v)
    taken = steps
    for k in range(steps):
        basis[k] = v
        w = apply(v)
        diagonal[k] = float(v @ w)  # alpha_k = v_k'A v_k
        for _ in range(2):  # w = A v_k - alpha_k v_k - beta_(k-1) v_(k-1), against all of the basis: twice is enough
            w = w - basis[: k + 1].T @ (basis[: k + 1] @ w)
        length = float(np.linalg.norm(w))
        if k + 1 == steps or expired():
            taken = steps = k + 1
            break
        off[k] = length  # beta_k = |w|, v_(k+1) = w / beta_k
        if length <= 1e-12 * max(float(np.abs(diagonal[: k + 1]).max()), float(off[:k].max(initial=0.0))):
            taken = k + 1
            break
        v = w / length
    values = eigvalsh_tridiagonal(diagonal[:taken], off[: taken - 1])
    return float(values[0]), float(values[-1]), steps  # a smaller invariant space is as good as all steps


def cholesky_lower_bound(
    matrix: Any, estimate: float | None = None, expired: Callable[[], bool] = lambda: False
) -> float:
    """A number not above the smallest eigenvalue of a symmetric matrix, proved by a factorisation [Rump06].

    The largest shift tried that leaves the matrix positive definite, beyond rounding; the first is close to the
    estimate. Cost: a few factorisations, and the eigenvalues where no estimate is given.
    """
    n = matrix.shape[0]
    dense = as_dense(matrix)
    radius = float(np.abs(dense).sum(axis=1).max(initial=0.0))
    exact = estimate is None
    estimate = float(np.linalg.eigvalsh(dense)[0]) if estimate is None else estimate
    margin = (1e-12 if exact else 1e-5) * radius
    while margin < 4.0 * radius and not expired():
        shift = estimate - margin
        shifted = dense.copy()
        shifted[np.diag_indices(n)] -= shift
        trace = float(np.abs(np.diagonal(shifted)).sum())
        try:
            cholesky(shifted, overwrite=True)
        except np.linalg.LinAlgError:
            margin *= 30.0 if exact else 3.0
            continue
        return float(shift - 2.0 * (n + 3) * _UNIT_ROUNDOFF * (trace + n * abs(shift)))  # (2)
    return -radius  # Gershgorin
