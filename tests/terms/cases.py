"""The terms that the tests of this folder run on: each declaration of the registry, with parameters of its domains."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np

from varopt import terms
from varopt.terms import REGISTRY, Declaration, PiecewisePolynomial


def _exact(term: PiecewisePolynomial) -> bool:
    """Whether the jumps are those of the declaration in exact arithmetic.

    A penalty with 1/6 as a coefficient is continuously differentiable on paper but not in floating point, and a
    reference with 50 digits would see the difference.
    """
    for j, knot in enumerate(term.knots):
        left, right = (
            _moved([Fraction(c) for c in term.pieces[i]], Fraction(knot) - Fraction(term.centres[i]))
            for i in (j, j + 1)
        )
        differences = [b - a for a, b in itertools.zip_longest(left, right, fillvalue=Fraction(0))]
        if differences != [Fraction(d) for d in term.jumps[j]]:
            return False
    return True


def _moved(polynomial: list[Fraction], offset: Fraction) -> list[Fraction]:
    moved = list(polynomial)
    for start in range(len(moved) - 1):
        for m in range(len(moved) - 2, start - 1, -1):
            moved[m] += offset * moved[m + 1]
    return moved


def _built(declaration: Declaration, values: dict[str, float]) -> PiecewisePolynomial | None:
    try:
        return declaration.build(**values)
    except ValueError:  # a pair of parameters that each lie in their domain need not fit together
        return None


def drawn(declaration: Declaration, count: int = 3) -> list[PiecewisePolynomial]:
    """`count` terms with multiples of 1/4 from the typical range of every parameter, spread over all that are exact."""
    grids = []
    for domain in declaration.parameters.values():
        low, high = (int(np.ceil(4 * domain.typical[0])), int(np.floor(4 * domain.typical[1])))
        grids.append([v / 4 for v in range(low, high + 1) if domain.contains(np.asarray(v / 4))])
    built = [
        _built(declaration, dict(zip(declaration.parameters, values, strict=True)))
        for values in itertools.product(*grids)
    ]
    usable = [term for term in built if term is not None and _exact(term)]
    if not usable:
        raise LookupError(f"no parameters of {declaration.name} on the grid give an exact term.")
    picked = np.unique(np.linspace(0, len(usable) - 1, count).astype(int))
    return [usable[i] for i in picked]


def by_row(declaration: Declaration, count: int = 5) -> tuple[PiecewisePolynomial, list[PiecewisePolynomial]]:
    """One term whose parameters differ by row, and the terms that are its rows."""
    singles = drawn(declaration, count)
    singles = [term for term in singles if len(term.knots) == len(singles[-1].knots)]
    return declaration.build(
        **{n: np.array([t.parameters[n] for t in singles]) for n in declaration.parameters}
    ), singles


PARAMETRIC = [declaration for declaration in REGISTRY.values() if declaration.parameters]
NAMED = [term for declaration in REGISTRY.values() for term in drawn(declaration)]

# Shapes that no name covers: concave, affine, discontinuous with slopes, several degrees at once.
DECLARED = [
    terms.piecewise([0.0], [[0.0, 1.0], [0.0, -1.0]], name="minus_abs"),
    terms.piecewise([], [[1.0, -2.0]], name="line"),
    terms.piecewise([-1.0, 2.0], [[0.0, -1.0], [3.0, 0.5], [-1.0, 0.25]], name="broken"),
    terms.piecewise([0.0, 1.0], [[0.0], [0.0, 0.0, 1.0], [-1.0, 2.0]], name="half_huber"),
    terms.piecewise([-0.5, 0.5, 4.0], [[1.0], [0.0, 1.0, -1.0], [0.25, 0.0, 0.125], [0.0, 2.0]], name="mixed"),
]


def polynomial_terms(degree: int) -> list[PiecewisePolynomial]:
    """Terms with pieces of a high degree: whole polynomials on each side, several knots, a power, a bump."""
    rng = np.random.default_rng(degree)

    def piece() -> list[float]:
        return [float(c) for c in rng.integers(-4, 5, degree + 1)]

    half = np.polynomial.polynomial.polypow([1.0, 0.0, -1.0], degree // 2)
    return [
        terms.piecewise([0.0], [piece(), piece()], name=f"two_pieces_{degree}"),
        terms.piecewise([-1.0, 0.5, 2.0], [piece(), piece(), piece(), piece()], name=f"four_pieces_{degree}"),
        terms.piecewise([0.0], [[0.0], [0.0] * degree + [1.0]], name=f"power_{degree}"),
        terms.piecewise([-1.0, 1.0], [[0.0], list(half), [0.0]], name=f"bump_{degree}"),
    ]


def label(term: PiecewisePolynomial) -> str:
    return repr(term)
