"""Small problems of every kind, with all their states."""

import itertools

import numpy as np
import scipy.sparse as sp

import varopt as vo
from varopt.solvers.discrete import BIT, NEGATED, SPIN, Energy, Products, energy_of


def states(energy):
    """All points, as columns."""
    blocks = [[(0.0,), (1.0,)] if w == 1 else [tuple(row) for row in np.eye(w)] for w in np.bincount(energy.site)]
    return np.array([sum(chosen, ()) for chosen in itertools.product(*blocks)]).T


def integer_quadratic(rng, n=9):
    return Energy.quadratic_form(rng.integers(-5, 6, (n, n)), rng.integers(-5, 6, n), 3.0)


def real_quadratic(rng, n=9):
    return Energy.quadratic_form(rng.standard_normal((n, n)), rng.standard_normal(n))


def sparse_quadratic(rng, n=10):
    matrix = sp.random_array((n, n), density=0.2, rng=rng, format="coo", data_sampler=rng.standard_normal)
    return Energy.quadratic_form(matrix, rng.standard_normal(n))


def cut(rng, n=10):
    weights = np.triu(rng.integers(-2, 3, (n, n)), 1)
    weights = weights + weights.T
    return Energy.quadratic_form(weights, -weights.sum(axis=1))


def ferromagnet(rng, n=9):
    """Dense, and all couplings of one sign: synchronous updates would oscillate."""
    weights = 1.0 - np.eye(n)
    return Energy.quadratic_form(weights, -weights.sum(axis=1))


def cubic(rng, n=8):
    products = []
    for degree, count in ((3, 12), (4, 6)):
        sites = np.array([rng.permutation(n)[:degree] for _ in range(count)])
        kinds = rng.choice([BIT, NEGATED, SPIN], size=sites.shape)
        products.append(Products(sites + n * kinds, rng.standard_normal(count)))
    quadratic = Energy.quadratic_form(rng.standard_normal((n, n)), rng.standard_normal(n))
    return Energy(quadratic.constant, quadratic.linear, quadratic.quadratic, tuple(products))


def clauses(rng, n=8):
    sites = np.array([rng.permutation(n)[:3] for _ in range(40)])
    codes = sites + n * rng.choice([BIT, NEGATED], size=sites.shape)
    return Energy(0.0, np.zeros(n), sp.csr_array((n, n)), (Products(codes, np.ones(40)),))


def correlations(rng, n=7):
    s = 1.0 - 2.0 * vo.Binary(n)
    return energy_of(sum((vo.sum(s[: n - k] * s[k:]) ** 2 for k in range(1, n)), start=0.0 * vo.sum(s)).total())


def choices(rng):
    widths = np.array([1, 3, 2, 1, 4, 2])
    n = widths.sum()
    return Energy.quadratic_form(rng.standard_normal((n, n)), rng.standard_normal(n), 0.5, widths)


def choices_cubic(rng):
    c, x = vo.Categorical(3, 3), vo.Binary(2)
    terms = vo.sum(c[0] * c[1] * c[2]) - 2.0 * c[0, 1] * c[2, 0] * x[1] + 0.5 * c[1, 2]
    return energy_of(vo.sum_squares(rng.standard_normal((4, 9)) @ c + rng.standard_normal((4, 2)) @ x) + terms)


ENERGIES = [
    integer_quadratic, real_quadratic, sparse_quadratic, cut, ferromagnet, cubic, clauses, correlations, choices,
    choices_cubic,
]  # fmt: skip
