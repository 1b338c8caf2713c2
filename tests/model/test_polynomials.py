"""Polynomials in bits and one-hot choices: against direct evaluation on every point."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator

import varopt.model as vo
from varopt.model import as_polynomial
from varopt.model.blocks import PolynomialBlock

N = 4
DATA = np.random.default_rng(3)
A, C = DATA.normal(size=(N, N)), DATA.normal(size=N)
BITS = np.array(list(itertools.product([0.0, 1.0], repeat=N)))
ONE_HOT = np.array(
    [np.eye(3)[list(c)] for c in itertools.product(range(3), repeat=2)]
)  # all of two choices among three


@pytest.fixture
def x():
    return vo.Binary(N, name="x")


def spins(z):
    return 2 * z - 1


EXPRESSIONS = {
    "one bit": (lambda x: x[0] * x[0], lambda z: z[0]),
    "two": (lambda x: x[0] * x[1], lambda z: z[0] * z[1]),
    "all": (lambda x: x[0] * x[1] * x[2] * x[3], lambda z: z.prod()),
    "cube": (lambda x: x[2] ** 3, lambda z: z[2]),
    "power of a sum": (lambda x: (x[0] + 2 * x[1] - x[3] - 0.5) ** 5, lambda z: (z[0] + 2 * z[1] - z[3] - 0.5) ** 5),
    "affine times affine": (lambda x: (1 - x[0]) * (2 + x[1] - x[2]), lambda z: (1 - z[0]) * (2 + z[1] - z[2])),
    "clause": (lambda x: (1 - x[0]) * x[1] * (1 - x[2]), lambda z: (1 - z[0]) * z[1] * (1 - z[2])),
    "quadratic": (lambda x: x @ (A @ x), lambda z: z @ A @ z),
    "sparse quadratic": (lambda x: x @ (sp.csr_matrix(A) @ x), lambda z: z @ A @ z),
    "operator quadratic": (lambda x: x @ (aslinearoperator(A) @ x), lambda z: z @ A @ z),
    "quadratic from the left": (lambda x: (x @ A) @ x, lambda z: z @ A @ z),
    "quadratic of affine": (lambda x: (A @ x - 1) @ (x + C), lambda z: (A @ z - 1) @ (z + C)),
    "spins": (lambda x: (2 * x - 1) @ (A @ (2 * x - 1)), lambda z: spins(z) @ A @ spins(z)),
    "sum of squares": (lambda x: vo.sum((A @ x - 1) ** 2), lambda z: ((A @ z - 1) ** 2).sum()),
    "square of a sum": (lambda x: (vo.sum(x) - 2) ** 2, lambda z: (z.sum() - 2) ** 2),
    "product of sums": (lambda x: vo.sum(x) * (C @ x - 1), lambda z: z.sum() * (C @ z - 1)),
    "product of objectives": (
        lambda x: (vo.sum(x) + 1) * vo.quad_form(x, A) * (C @ x),
        lambda z: (z.sum() + 1) * (z @ A @ z) * (C @ z),
    ),
    "weighted entries": (lambda x: C @ (x * (A @ x)), lambda z: C @ (z * (A @ z))),
    "entries weighted from the right": (lambda x: (x * (A @ x)) @ C, lambda z: C @ (z * (A @ z))),
    "matrix of entries": (lambda x: x @ (A @ (x * (A @ x))), lambda z: z @ (A @ (z * (A @ z)))),
    "entries times entries": (lambda x: (x * (A @ x)) @ (x - C), lambda z: (z * (A @ z)) @ (z - C)),
    "scalar times vector": (
        lambda x: vo.sum(x[0] * x + (x[1] * x[2]) * C),
        lambda z: (z[0] * z + z[1] * z[2] * C).sum(),
    ),
    "entries divided": (
        lambda x: vo.sum(x * x[::-1] / np.arange(1, 5)),
        lambda z: (z * z[::-1] / np.arange(1, 5)).sum(),
    ),
    "entries minus entries": (lambda x: vo.sum((1 - x * x[0]) - x / 2 - C), lambda z: (1 - z * z[0] - z / 2 - C).sum()),
    "indexed": (lambda x: (x * (A @ x))[1:][-1] + 1, lambda z: (z * (A @ z))[3] + 1),
    "indexed by a list": (lambda x: vo.sum((x * (A @ x))[[0, 0, 2]]), lambda z: (z * (A @ z))[[0, 0, 2]].sum()),
    "square function": (lambda x: vo.sum(vo.square(x * x[0] - 0.5)), lambda z: ((z * z[0] - 0.5) ** 2).sum()),
    "square of bits times a bit": (
        lambda x: vo.sum_squares(A @ x - C) * x[1],
        lambda z: ((A @ z - C) ** 2).sum() * z[1],
    ),
    "weighted squares times bits": (
        lambda x: (C * vo.square(A @ x) + x - 1) @ x,
        lambda z: (C * (A @ z) ** 2 + z - 1) @ z,
    ),
    "squares of squares": (lambda x: vo.sum_squares(vo.square(A @ x)) * x[0], lambda z: ((A @ z) ** 4).sum() * z[0]),
    "cancelling": (lambda x: x[0] * x[1] - x[1] * x[0], lambda z: 0.0),
    "python's sum": (
        lambda x: sum(x[i] * x[j] for i in range(N) for j in range(i)),
        lambda z: (z.sum() ** 2 - z.sum()) / 2,
    ),
    "merit factor": (
        lambda x: sum(((2 * x - 1)[:-k] @ (2 * x - 1)[k:]) ** 2 for k in range(1, N)),
        lambda z: sum((spins(z)[:-k] @ spins(z)[k:]) ** 2 for k in range(1, N)),
    ),
    "beside terms": (
        lambda x: x[0] * x[1] + vo.norm1(x - 0.25) - C @ x,
        lambda z: z[0] * z[1] + abs(z - 0.25).sum() - C @ z,
    ),
    "terms first": (lambda x: vo.abs(x[0] - 0.5) - x[0] * x[1], lambda z: abs(z[0] - 0.5) - z[0] * z[1]),
    "inside a term": (lambda x: vo.sum(vo.abs(x * x[0] - C)), lambda z: abs(z * z[0] - C).sum()),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
class TestBits:
    def test_equal_to_direct_evaluation_everywhere(self, name, x):
        write, compute = EXPRESSIONS[name]
        f = vo.as_objective(write(x))
        for z in BITS:
            assert f(z) == pytest.approx(float(compute(z)), rel=1e-11, abs=1e-11)
        np.testing.assert_allclose(f.at(BITS), [compute(z) for z in BITS], rtol=1e-11, atol=1e-11)

    def test_monomials_are_reduced_sorted_and_distinct(self, name, x):
        write, _ = EXPRESSIONS[name]
        for block in vo.as_objective(write(x)).blocks:
            if isinstance(block, PolynomialBlock):
                for degree, (coordinates, coefficients) in block.monomials.items():
                    assert coordinates.shape == (len(coefficients), degree)
                    assert degree >= 1
                    assert np.all(np.diff(coordinates, axis=1) > 0)
                    assert len(np.unique(coordinates, axis=0)) == len(coordinates)
                    assert np.all(coefficients != 0.0)


def test_the_extension_between_the_corners_is_the_expectation(x, rng):
    """At probabilities, the multilinear extension is the mean over independent bits."""
    f = vo.as_objective((A @ x - 0.3) @ (x * x[0]) + x[1] * x[2] * x[3] - 2)
    p = rng.uniform(size=N)
    chance = np.prod(np.where(BITS == 1.0, p, 1 - p), axis=1)
    assert f(p) == pytest.approx(chance @ f.at(BITS))


def test_gradient_and_hessian_of_the_extension(x, rng):
    f = 3 * ((C @ x - 1) ** 4 + 5 + x @ (A @ x))
    (block,) = f.blocks
    p = rng.uniform(size=N)
    eye = np.eye(N)
    # Multilinear: differences between the faces of the cube are exact.
    at = {value: p + eye * (value - p) for value in (0.0, 1.0)}
    np.testing.assert_allclose(block.multilinear_gradient(p), f.at(at[1.0]) - f.at(at[0.0]), rtol=1e-10, atol=1e-10)
    hessian = block.multilinear_hessian(p)
    np.testing.assert_allclose(hessian, hessian.T)
    np.testing.assert_array_equal(np.diag(hessian), 0.0)
    for i in range(N):
        slope = [block.multilinear_gradient(at[value][i]) for value in (1.0, 0.0)]
        np.testing.assert_allclose(hessian[i], slope[0] - slope[1], rtol=1e-10, atol=1e-10)


def test_a_polynomial_without_monomials(x):
    f = vo.as_objective(x[0] * x[1] - x[1] * x[0] + 2)
    (block,) = f.blocks
    assert block.degree == 0
    np.testing.assert_array_equal(f.at(BITS), 2.0)
    np.testing.assert_array_equal(block.multilinear_gradient(BITS[0]), 0.0)
    np.testing.assert_array_equal(block.multilinear_hessian(BITS[0]), 0.0)


def test_vectors_of_polynomials_have_values(x):
    z = BITS[-3]
    vector = x * (A @ x) - C
    assert vector.shape == (N,)
    np.testing.assert_allclose(vector(z), z * (A @ z) - C)
    np.testing.assert_allclose(vector[1:3](z), (z * (A @ z) - C)[1:3])
    np.testing.assert_allclose((A @ vector)(z), A @ (z * (A @ z) - C))
    np.testing.assert_allclose((x[0] * x[1] + 3)(z), z[0] * z[1] + 3)
    np.testing.assert_allclose(vector.values({x: BITS}), BITS * (BITS @ A.T) - C, atol=1e-12)


class TestSeveralVariables:
    def test_in_any_order(self):
        x, y, z = vo.Binary(2, name="x"), vo.Binary(name="y"), vo.Binary(3, name="z")
        for f in ((z[2] * x[0] + y) * (x[1] - z[0]) * y, y * (x[1] - z[0]) * (y + x[0] * z[2])):
            g = vo.as_objective(f)
            assert g.variables == (x, y, z)
            for point in itertools.product([0.0, 1.0], repeat=6):
                a, b, c = np.array(point[:2]), point[2], np.array(point[3:])
                assert g(point) == (c[2] * a[0] + b) * (a[1] - c[0]) * b
                assert g({z: c, x: a, y: b}) == g(point)

    def test_inner_products(self):
        x, y = vo.Binary(N), vo.Binary(N)
        f = x @ (A @ y)
        for a, b in itertools.product(BITS, BITS):
            assert f(a, b) == pytest.approx(a @ A @ b)

    def test_beside_real_variables(self, x):
        w = vo.Variable(2, name="w")
        f = x[0] * x[1] + vo.norm1(w) + x[2] * x[3] * x[0]
        assert f({x: BITS[-1], w: [1.0, -2.0]}) == 5.0

    def test_bits_and_choices(self):
        x, c = vo.Binary(2, name="x"), vo.Categorical(2, 3, name="c")
        f = vo.as_objective((x[0] * c[0, 1] + c[1] @ [1, 2, 3]) * (x[1] - c[0, 2]))
        for bits in itertools.product([0.0, 1.0], repeat=2):
            for table in ONE_HOT:
                expected = (bits[0] * table[0, 1] + table[1] @ [1, 2, 3]) * (bits[1] - table[0, 2])
                assert f({x: bits, c: table}) == pytest.approx(expected)


class TestChoices:
    def test_categories_of_one_choice_exclude_each_other(self):
        c = vo.Categorical(2, 3)
        assert vo.as_objective(c[0, 0] * c[0, 1]).blocks[0].degree == 0
        assert vo.as_objective(c[0, 0] * c[1, 1] * c[0, 2]).blocks[0].degree == 0
        assert vo.as_objective(c[0, 0] * c[1, 1] * c[0, 0]).blocks[0].degree == 2

    def test_equal_to_direct_evaluation_everywhere(self):
        c = vo.Categorical(2, 3)
        cost, table = DATA.normal(size=6), DATA.normal(size=(6, 6))
        f = vo.as_objective(c[0] @ c[1] + (cost @ c - 1) ** 3 + c @ (table @ c))
        for z in ONE_HOT:
            v = z.ravel()
            assert f(z) == pytest.approx(z[0] @ z[1] + (cost @ v - 1) ** 3 + v @ table @ v)

    def test_colouring(self):
        colour = vo.Categorical(3, 2, name="colour")
        clashes = colour[0] @ colour[1] + colour[1] @ colour[2] + colour[0] @ colour[2]
        best = min(clashes(np.eye(2)[list(c)]) for c in itertools.product(range(2), repeat=3))
        assert best == 1.0


@given(st.data())
def test_random_expressions_match_direct_evaluation(data):
    """Sums and products of bits and of other such expressions, to any depth."""
    x, y = vo.Binary(3), vo.Binary()
    points = np.array(list(itertools.product([0.0, 1.0], repeat=4)))
    pool = [(x[i], points[:, i]) for i in range(3)] + [(y, points[:, 3]), (1 - y, 1 - points[:, 3])]
    operations = {
        "add": lambda e, f: e + f,
        "subtract": lambda e, f: e - f,
        "multiply": lambda e, f: e * f,
        "square": lambda e, f: e**2 - f,
        "scale": lambda e, f: -2.0 * e + 1 - f / 4,
    }
    for _ in range(data.draw(st.integers(1, 8))):
        (left, a), (right, b) = (data.draw(st.sampled_from(pool)) for _ in range(2))
        apply = operations[data.draw(st.sampled_from(sorted(operations)))]
        left = vo.sum(left) if data.draw(st.booleans()) else left  # the same, as an objective
        pool.append((apply(left, right), apply(a, b)))
    expression, expected = pool[-1]
    f = vo.as_objective(expression)
    for z, value in zip(points, expected, strict=True):
        assert f({x: z[:3], y: z[3]}) == pytest.approx(value, rel=1e-9, abs=1e-9)


def test_what_is_no_polynomial():
    w, x = vo.Variable(2), vo.Binary(2)
    for expression in (
        w,
        w[0] + x[0],
        vo.abs(x),
        vo.norm2(x),
        vo.norm1(x),
        vo.sum_squares(w),
        vo.quad_form(w, np.eye(2)),
        3.0,
    ):
        assert as_polynomial(expression) is None


class TestSize:
    def test_low_autocorrelation_binary_sequences(self):
        """Degree 4 in thirty spins, written natively."""
        n = 30
        s = 2 * vo.Binary(n) - 1
        f = vo.as_objective(sum((s[:-k] @ s[k:]) ** 2 for k in range(1, n)))
        (block,) = f.blocks
        assert block.degree == 4
        assert sum(len(c) for _, c in block.monomials.values()) < 10_000
        z = np.array([1.0, 0.0, 1.0] * 10)
        assert f(z) == sum((spins(z)[:-k] @ spins(z)[k:]) ** 2 for k in range(1, n))

    def test_a_large_sparse_quadratic(self):
        n = 20_000
        matrix = sp.random_array((n, n), density=5e-4 / 2, format="csr", rng=0)
        x = vo.Binary(n)
        f = x @ (matrix @ x)
        z = (np.arange(n) % 3 == 0).astype(float)
        assert f(z) == pytest.approx(z @ (matrix @ z))

    def test_sums_of_many_are_one_block(self):
        """Python's sum over clauses and edges, and the same by arrays of indices."""
        n, m = 40, 600
        literals = DATA.integers(0, n, size=(m, 3))
        x, z = vo.Binary(n), DATA.integers(0, 2, size=n)
        i, j, k = literals.T
        expected = ((1 - z[i]) * z[j] * (1 - z[k])).sum()
        f = vo.as_objective(sum((1 - x[int(a)]) * x[int(b)] * (1 - x[int(c)]) for a, b, c in literals))
        g = vo.sum((1 - x[i]) * x[j] * (1 - x[k]))
        assert f(z) == g(z) == expected
        for degree, (coordinates, coefficients) in g.blocks[0].monomials.items():
            np.testing.assert_array_equal(f.blocks[0].monomials[degree][0], coordinates)
            np.testing.assert_allclose(f.blocks[0].monomials[degree][1], coefficients)
        colour, table = vo.Categorical(n, 3), np.eye(3)[DATA.integers(0, 3, size=n)]
        clashes = sum(colour[int(a)] @ colour[int(b)] for a, b, _ in literals)
        assert len(clashes.blocks) == 1
        assert clashes(table) == (table[i] * table[j]).sum()

    def test_more_coordinates_than_one_number_can_tell_apart(self):
        x = vo.Binary(100_000)
        f = vo.as_objective(x[0] * x[99_999] * x[5] * x[7] + 2 * x[7] * x[5] * x[99_999] * x[0])
        (coordinates, coefficients) = f.blocks[0].monomials[4]
        np.testing.assert_array_equal(coordinates, [[0, 5, 7, 99_999]])
        np.testing.assert_array_equal(coefficients, [3.0])


def test_a_sum_used_on_the_way_stays_right(x):
    """Sums are expanded when first used; using one early must not change what is added later."""
    f, expected, z = 0, 0.0, BITS[13]
    for i, j in itertools.product(range(N), range(N)):
        f = f + A[i, j] * (x[i] * x[j])
        expected += A[i, j] * z[i] * z[j]
        assert f(z) == pytest.approx(expected)
    g = f + x  # a scalar among vectors
    np.testing.assert_allclose(g(z), expected + z)
    np.testing.assert_allclose((g + g)(z), 2 * (expected + z))


def test_zero_factors_drop_monomials(x):
    assert (0 * (x[0] * x[1])).degree == 0
    assert (np.zeros(N) * (x * x[0])).degree == 0
    half = np.array([1.0, 0.0, 1.0, 0.0]) * (x * x[0])
    np.testing.assert_allclose(half(BITS[-1]), [1, 0, 1, 0])


def test_weights_of_small_integers_do_not_overflow(x):
    weights = np.full(N, 100, dtype=np.int8)
    assert vo.sum(weights * (weights * vo.abs(x)))(BITS[-1]) == N * 10_000
    assert vo.sum(weights * (weights * (x * x)))(BITS[-1]) == N * 10_000
    assert vo.sum(weights * (weights * (x + weights)))(BITS[-1]) == N * (10_000 + 1_000_000)
