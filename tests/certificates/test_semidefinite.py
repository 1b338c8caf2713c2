"""Convexity is proved, refuted or unknown, never guessed."""

import numpy as np
import pytest
import scipy.sparse as sp

from varopt._verified import (  # its arithmetic is checked against rational numbers
    Definiteness,
    definiteness,
    smallest_eigenvalue_bound,
)

POSITIVE, INDEFINITE, UNKNOWN = Definiteness.POSITIVE, Definiteness.INDEFINITE, Definiteness.UNKNOWN


def chain(n):
    """The Laplacian of a chain: singular, and dominated by its diagonal with equality."""
    d = np.r_[1.0, np.full(n - 2, 2.0), 1.0]
    return sp.diags_array([d, -np.ones(n - 1), -np.ones(n - 1)], offsets=[0, 1, -1]).tocsr()


ATTACKS = {
    "negative diagonal": np.diag([1e8, -1e-7]),
    "negative by 1e-12": np.array([[1.0, 1.0], [1.0, 1.0 - 1e-12]]),
    "sparse": sp.diags_array([1e6, 1.0, -1e-9]).tocsr(),
    "zero diagonal": np.array([[0.0, 1e-30], [1e-30, 1.0]]),
    "long chain less a little": chain(4000) - 1e-6 * sp.eye_array(4000),
}


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_what_is_not_convex_is_refuted(name, scale):
    assert definiteness(ATTACKS[name] * scale) is INDEFINITE


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
@pytest.mark.parametrize("sparse", [False, True])
def test_what_is_definite_is_proved(rng, scale, sparse):
    units = 10.0 ** rng.integers(-12, 12, 30)
    X = rng.standard_normal((60, 30))
    gram = units[:, None] * (X.T @ X) * units * scale
    assert definiteness(sp.csr_array(gram) if sparse else gram) is POSITIVE


def test_singular_matrices_are_proved_where_they_can_be(rng):
    whole = rng.integers(-3, 4, (5, 20))
    assert definiteness(whole.T @ whole) is POSITIVE  # exact, by rational arithmetic
    assert definiteness(np.ones((5, 5)) * 0.1) is POSITIVE
    assert definiteness(chain(10_000)) is POSITIVE  # by its diagonal
    assert definiteness(np.zeros((3, 3))) is POSITIVE


def test_what_rounding_hides_is_unknown(rng):
    X = rng.standard_normal((5, 40))
    assert definiteness(X.T @ X) is UNKNOWN
    assert definiteness(np.array([[1.0, 1.0], [1.0, 1.0 - 2.0**-53]])) is UNKNOWN


@pytest.mark.parametrize("seed", range(60))
def test_never_wrong(seed):
    """Against the exact inertia of small matrices that are barely definite, singular, or barely not."""
    from fractions import Fraction

    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    X = np.round(rng.standard_normal((int(rng.integers(1, n + 2)), n)), 2)
    matrix = X.T @ X + float(rng.choice([0.0, 1e-18, -1e-18, 1e-15, -1e-15, 1e-12, -1e-12])) * np.eye(n)
    matrix *= 10.0 ** rng.integers(-12, 13)
    minors = [_determinant([[Fraction(float(e)) for e in row[:k]] for row in matrix[:k]]) for k in range(1, n + 1)]
    found = definiteness(matrix)
    if all(m > 0 for m in minors):
        assert found is not INDEFINITE
    if any(m < 0 for m in minors):
        assert found is not POSITIVE


def _determinant(rows):
    rows, value = [list(r) for r in rows], 1
    for k in range(len(rows)):
        pivot = next((i for i in range(k, len(rows)) if rows[i][k]), None)
        if pivot is None:
            return 0
        if pivot != k:
            rows[k], rows[pivot], value = rows[pivot], rows[k], -value
        value *= rows[k][k]
        for i in range(k + 1, len(rows)):
            share = rows[i][k] / rows[k][k]
            rows[i] = [a - share * b for a, b in zip(rows[i], rows[k], strict=True)]
    return value


def test_matrices_that_are_not_symmetric_count_by_their_symmetric_part():
    assert definiteness(np.array([[1.0, 2.0], [0.0, 1.0 + 1e-9]])) is POSITIVE
    assert definiteness(np.array([[1.0, 2.0], [0.0, 1.0 - 1e-9]])) is INDEFINITE


def test_eigenvalue_bound_is_below_the_smallest(rng):
    for n in (3, 20, 80):
        X = rng.standard_normal((2 * n, n))
        gram = X.T @ X
        assert 0.0 < smallest_eigenvalue_bound(gram) <= np.linalg.eigvalsh(gram)[0]
    assert smallest_eigenvalue_bound(np.array([[1.0, 2.0], [2.0, 1.0]])) == -np.inf
