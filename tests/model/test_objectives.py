"""Objectives: values against NumPy, points, curvature and its explanation."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import varopt.model as vo
from varopt.model.blocks import AffineBlock, ComposedBlock, NormBlock, QuadraticBlock, TermBlock
from varopt.terms import AFFINE, CONCAVE, CONVEX, UNKNOWN

N, P = 7, 4
DATA = np.random.default_rng(2)
X, Y = DATA.normal(size=(N, P)), DATA.normal(size=N)
T = np.where(DATA.random(N) < 0.5, -1.0, 1.0)
W, B = DATA.normal(size=P), -0.4
LEVELS = np.linspace(0.1, 0.9, N)
WEIGHTS = np.linspace(0.0, 2.0, N)
QUADRATIC = DATA.normal(size=(P, P))
Z = np.array([-4.0, -1.5, -1.0, -0.3, 0.0, 0.3, 1.0, 1.5, 4.0])


@pytest.fixture
def w():
    return vo.Variable(P, name="w")


@pytest.fixture
def b():
    return vo.Variable(name="b")


def mcp(z, lam, gamma):
    return np.where(abs(z) <= gamma * lam, lam * abs(z) - z**2 / (2 * gamma), gamma * lam**2 / 2)


def scad(z, lam, a):
    middle = (2 * a * lam * abs(z) - z**2 - lam**2) / (2 * (a - 1))
    return np.where(abs(z) <= lam, lam * abs(z), np.where(abs(z) <= a * lam, middle, lam**2 * (a + 1) / 2))


# Each function of the module, and the formula of its documentation.
FUNCTIONS = {
    "abs": (vo.abs, abs),
    "pos": (vo.pos, lambda z: np.maximum(z, 0)),
    "hinge": (vo.hinge, lambda z: np.maximum(1 - z, 0)),
    "squared_hinge": (vo.squared_hinge, lambda z: np.maximum(1 - z, 0) ** 2),
    "pinball": (lambda e: vo.pinball(e, 0.7), lambda z: np.where(z >= 0, 0.7 * z, -0.3 * z)),
    "pinball by default": (vo.pinball, lambda z: abs(z) / 2),
    "epsilon_insensitive": (lambda e: vo.epsilon_insensitive(e, 0.5), lambda z: np.maximum(abs(z) - 0.5, 0)),
    "epsilon zero": (lambda e: vo.epsilon_insensitive(e, 0.0), abs),
    "huber": (lambda e: vo.huber(e, 0.8), lambda z: np.where(abs(z) <= 0.8, z**2 / 2, 0.8 * abs(z) - 0.32)),
    "step": (vo.step, lambda z: (z >= 0) * 1.0),
    "zero_one": (vo.zero_one, lambda z: (z <= 0) * 1.0),
    "ramp": (vo.ramp, lambda z: np.clip(1 - z, 0, 1)),
    "capped_abs": (lambda e: vo.capped_abs(e, 0.5), lambda z: np.minimum(abs(z), 0.5)),
    "mcp": (lambda e: vo.mcp(e, 0.5, 2.0), lambda z: mcp(z, 0.5, 2.0)),
    "scad": (lambda e: vo.scad(e, 0.5, 3.0), lambda z: scad(z, 0.5, 3.0)),
    "clip": (lambda e: vo.clip(e, -0.5, 2.0), lambda z: np.clip(z, -0.5, 2.0)),
    "dead_zone": (lambda e: vo.dead_zone(e, 0.5), lambda z: z - np.clip(z, -0.5, 0.5)),
    "square": (vo.square, lambda z: z**2),
    "power": (lambda e: e**3, lambda z: z**3),
    "piecewise": (
        lambda e: vo.piecewise(e, [-1.0, 1.0], [[2.0], [0.0, 0.0, 2.0], [1.0, 1.0]]),
        lambda z: np.where(z < -1, 2, np.where(z < 1, 2 * z**2, 1 + z)),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
class TestFunctions:
    def test_entries(self, name):
        write, compute = FUNCTIONS[name]
        z = vo.Variable(Z.size)
        np.testing.assert_allclose(write(z)(Z), compute(Z), rtol=1e-14, atol=1e-14)

    def test_sum_of_an_affine_argument(self, name, w, b):
        write, compute = FUNCTIONS[name]
        f = vo.sum(write(T * (X @ w + b)))
        assert f(W, B) == pytest.approx(compute(T * (X @ W + B)).sum(), rel=1e-13)

    def test_weights(self, name, w):
        write, compute = FUNCTIONS[name]
        expected = WEIGHTS @ compute(Y - X @ W)
        for f in (
            vo.sum(WEIGHTS * write(Y - X @ w)),
            WEIGHTS @ write(Y - X @ w),
            write(Y - X @ w) @ WEIGHTS,
            WEIGHTS.tolist() @ write(Y - X @ w),
            vo.sum(2 * (WEIGHTS / 2 * write(Y - X @ w))),
        ):
            assert f(W) == pytest.approx(expected, rel=1e-13)

    def test_a_scalar_argument(self, name, b):
        write, compute = FUNCTIONS[name]
        assert write(b - 0.5)(0.2) == pytest.approx(float(compute(np.array(0.2 - 0.5))))

    def test_composed_with_itself(self, name, w):
        write, compute = FUNCTIONS[name]
        f = vo.sum(WEIGHTS[:P] * write(write(w) - 0.3))
        assert f(W) == pytest.approx(WEIGHTS[:P] @ compute(compute(W) - 0.3), rel=1e-13)


OBJECTIVES = {
    "lasso": (
        lambda w, b: vo.sum_squares(Y - X @ w) + 0.3 * vo.norm1(w),
        lambda w, b: ((Y - X @ w) ** 2).sum() + 0.3 * abs(w).sum(),
    ),
    "svm": (
        lambda w, b: vo.sum_squares(w) + 2.0 * vo.sum(vo.hinge(T * (X @ w + b))),
        lambda w, b: (w**2).sum() + 2 * np.maximum(1 - T * (X @ w + b), 0).sum(),
    ),
    "quantiles by row": (
        lambda w, b: vo.sum(vo.pinball(Y - X @ w - b, LEVELS)),
        lambda w, b: np.maximum(LEVELS * (Y - X @ w - b), (LEVELS - 1) * (Y - X @ w - b)).sum(),
    ),
    "fused": (
        lambda w, b: vo.norm1(vo.diff(w, 2)) + vo.norm1(w[1:3]),
        lambda w, b: abs(np.diff(w, 2)).sum() + abs(w[1:3]).sum(),
    ),
    "quadratic": (lambda w, b: vo.quad_form(w, QUADRATIC), lambda w, b: w @ QUADRATIC @ w),
    "sparse quadratic": (lambda w, b: vo.quad_form(w, sp.csc_matrix(QUADRATIC)), lambda w, b: w @ QUADRATIC @ w),
    "operator quadratic": (
        lambda w, b: vo.quad_form(X.T @ (X @ w), aslinearoperator(QUADRATIC)),
        lambda w, b: (X.T @ X @ w) @ QUADRATIC @ (X.T @ X @ w),
    ),
    "quadratic of a scalar": (lambda w, b: vo.quad_form(b - 1, [[3.0]]), lambda w, b: 3 * (b - 1) ** 2),
    "norm": (lambda w, b: vo.norm2(X @ w + b), lambda w, b: np.linalg.norm(X @ w + b)),
    "affine": (lambda w, b: vo.sum(X @ w - Y) - b, lambda w, b: (X @ w - Y).sum() - b),
    "affine scalar": (lambda w, b: W @ w + 3 * b, lambda w, b: W @ w + 3 * b),
    "constant added": (lambda w, b: 3 + vo.norm1(w) - 1.5, lambda w, b: abs(w).sum() + 1.5),
    "negative": (
        lambda w, b: -(vo.norm1(w) - 2 * vo.norm1(b - 1)) / 4,
        lambda w, b: -(abs(w).sum() - 2 * abs(b - 1)) / 4,
    ),
    "NumPy factors": (
        lambda w, b: np.float64(0.1) * vo.norm1(w) * np.float32(0.5) + np.float64(1),
        lambda w, b: 0.05 * abs(w).sum() + 1,
    ),
    "python's sum": (
        lambda w, b: sum(vo.abs(w[i]) for i in range(P)) + sum([vo.norm1(w), vo.norm1(b)]),
        lambda w, b: 2 * abs(w).sum() + abs(b),
    ),
    "entries added": (
        lambda w, b: vo.sum(vo.abs(w) + 2 * vo.pos(w) - w + W - 1),
        lambda w, b: (abs(w) + 2 * np.maximum(w, 0) - w + W - 1).sum(),
    ),
    "entries and a scalar": (
        lambda w, b: vo.sum(b + vo.abs(w) - b * W + 3 * b),
        lambda w, b: (abs(w) + 4 * b - b * W).sum(),
    ),
    "entries subtracted": (lambda w, b: vo.sum(1 - vo.abs(w) - vo.square(w)), lambda w, b: (1 - abs(w) - w**2).sum()),
    "entries weighted twice": (
        lambda w, b: vo.sum(W * (W * vo.abs(w) + w + 1)),
        lambda w, b: (W * (W * abs(w) + w + 1)).sum(),
    ),
    "scalar entries": (
        lambda w, b: vo.abs(b) + b - vo.square(b - 1) + vo.norm1(w),
        lambda w, b: abs(b) + b - (b - 1) ** 2 + abs(w).sum(),
    ),
    "penalty on a sum": (
        lambda w, b: vo.abs(vo.sum(w) - 1) + (vo.sum(w) - 2 * b) ** 2,
        lambda w, b: abs(w.sum() - 1) + (w.sum() - 2 * b) ** 2,
    ),
    "composed": (
        lambda w, b: vo.sum(vo.pos(vo.abs(w) - 0.5) ** 2),
        lambda w, b: (np.maximum(abs(w) - 0.5, 0) ** 2).sum(),
    ),
    "zero times": (lambda w, b: 0 * vo.norm1(w) + vo.norm1(b), lambda w, b: abs(b)),
}


@pytest.mark.parametrize("name", OBJECTIVES)
class TestObjectives:
    def test_value_at_every_form_of_point(self, name, w, b):
        write, compute = OBJECTIVES[name]
        f = vo.as_objective(write(w, b))
        expected = pytest.approx(float(compute(W, B)), rel=1e-12)
        values = {w: W, b: B}
        flat = np.concatenate([np.atleast_1d(values[v]) for v in f.variables])
        assert f(flat) == expected
        assert f(flat.tolist()) == expected
        assert f(values) == expected
        assert f(*(values[v] for v in f.variables)) == expected
        assert isinstance(f(flat), float)

    def test_many_points_at_once(self, name, w, b, rng):
        write, compute = OBJECTIVES[name]
        f = vo.as_objective(write(w, b))
        points = rng.normal(size=(2, 3, f.size))

        def value(flat):
            parts = {v: flat[part] if v.dimensions else flat[part][0] for v, part in f.slices.items()}
            return compute(parts.get(w, W), parts.get(b, B))

        np.testing.assert_allclose(f.at(points), np.apply_along_axis(value, -1, points), rtol=1e-11, atol=1e-12)

    def test_curvature_is_true_on_random_segments(self, name, w, b, rng):
        write, _ = OBJECTIVES[name]
        f = vo.as_objective(write(w, b))
        ends = rng.normal(size=(2, 300, f.size)) * rng.choice([0.1, 1.0, 10.0], size=(1, 300, 1))
        middle, mean = f.at(ends.mean(axis=0)), f.at(ends).mean(axis=0)
        slack = 1e-9 * (1 + np.abs(f.at(ends)).max(axis=0))
        if f.curvature.is_convex:
            assert np.all(middle <= mean + slack)
        if f.curvature.is_concave:
            assert np.all(middle >= mean - slack)


def test_variables_come_in_order_of_creation_however_they_are_used():
    first, second, third = vo.Variable(name="first"), vo.Variable(2, name="second"), vo.Binary(3, name="third")
    f = vo.sum(third) + vo.norm1(second) + vo.abs(first) + vo.norm1(second)
    assert f.variables == (first, second, third)
    assert f.size == 6
    assert f.slices == {first: slice(0, 1), second: slice(1, 3), third: slice(3, 6)}
    assert f([1, -2, 3, 0, 1, 1]) == 1 + 2 * 5 + 2


def test_a_point_may_speak_of_more_variables(w, b):
    assert vo.norm1(w)({w: W, b: B}) == pytest.approx(abs(W).sum())


def test_constants_are_objectives():
    f = vo.as_objective(3)
    assert f([]) == f({}) == 3.0
    assert f.curvature is AFFINE
    assert f.variables == ()
    np.testing.assert_array_equal(f.at(np.empty((4, 0))), np.full(4, 3.0))


def test_blocks_are_what_was_written(w, b):
    f = (
        vo.sum_squares(Y - X @ w)
        + 2 * vo.norm2(w, groups=2)
        - vo.quad_form(w, QUADRATIC)
        + b
        + vo.sum(vo.abs(vo.abs(w) + vo.pos(w)))
    )
    kinds = [TermBlock, NormBlock, QuadraticBlock, AffineBlock, ComposedBlock]
    assert [type(block) for block in f.blocks] == kinds
    assert [block.weights for block in f.blocks] == [1.0, 2.0, -1.0, 1.0, 1.0]
    assert f.blocks[0].argument.offset is Y
    assert f.blocks[-1].inner is f.blocks[-1].argument


class TestNorm2:
    GROUPS = (np.array([0, 2]), np.array([1]), np.array([-1, 0, 1]))

    def test_groups(self, w):
        assert vo.norm2(w)(W) == pytest.approx(np.linalg.norm(W))
        assert vo.norm2(w, 2)(W) == pytest.approx(np.linalg.norm(W.reshape(2, 2), axis=1).sum())
        assert vo.norm2(w, np.int64(1))(W) == pytest.approx(abs(W).sum())
        assert vo.norm2(w, P)(W) == pytest.approx(np.linalg.norm(W))
        expected = [np.linalg.norm(W[g]) for g in self.GROUPS]
        assert vo.norm2(w, self.GROUPS)(W) == pytest.approx(sum(expected))
        assert vo.norm2(w, [g.tolist() for g in self.GROUPS])(W) == pytest.approx(sum(expected))

    def test_weights(self, w):
        weights = np.array([1.0, 0.5, 3.0])
        expected = sum(c * np.linalg.norm(W[g]) for c, g in zip(weights, self.GROUPS, strict=True))
        f = vo.norm2(w, self.GROUPS, weights)
        assert f(W) == pytest.approx(expected)
        assert (2 * f)(W) == pytest.approx(2 * expected)
        assert vo.norm2(w, self.GROUPS, 2.0)(W) == pytest.approx(2 * vo.norm2(w, self.GROUPS)(W))
        assert f.curvature is CONVEX
        assert vo.norm2(w, self.GROUPS, [1, -1, 1]).curvature is UNKNOWN

    def test_norms_by_group_and_point(self, w, rng):
        (block,) = vo.norm2(w, self.GROUPS).blocks
        points = rng.normal(size=(5, P))
        expected = np.stack([np.linalg.norm(points[:, g], axis=1) for g in self.GROUPS], axis=-1)
        np.testing.assert_allclose(block.norms(points), expected)
        np.testing.assert_allclose(vo.norm2(w, self.GROUPS).at(points), expected.sum(axis=1))

    @pytest.mark.parametrize("scale", [0.0, 5e-324, 1e-200, 1e200])
    def test_squares_neither_overflow_nor_vanish(self, scale):
        w = vo.Variable(2)
        assert vo.norm2(w)([3 * scale, 4 * scale]) == pytest.approx(5 * scale, rel=1e-15, abs=0)

    def test_many_groups(self):
        w = vo.Variable(200_000)
        assert vo.norm2(w, 2)(np.ones(200_000)) == pytest.approx(100_000 * np.sqrt(2))


# -- Curvature ---------------------------------------------------------------------------------------------------------

INDEFINITE = np.diag([2.0, -1.0, 0.0, 0.0])

CURVATURES = {
    "affine": (lambda w: vo.sum(X @ w), AFFINE),
    "convex": (lambda w: vo.norm1(w) + vo.sum(w), CONVEX),
    "negative": (lambda w: -vo.norm1(w) - vo.sum_squares(w), CONCAVE),
    "mixed": (lambda w: vo.sum_squares(w) - vo.norm1(w), UNKNOWN),
    "weights of one sign": (lambda w: -WEIGHTS @ vo.abs(X @ w), CONCAVE),
    "weights of both signs": (lambda w: T @ vo.abs(X @ w), UNKNOWN),
    "weights of both signs on affine": (lambda w: T @ (X @ w), AFFINE),
    "zero weight": (lambda w: 0 * vo.sum(vo.ramp(w)), AFFINE),
    "zero weights": (lambda w: np.zeros(P) @ vo.ramp(w), AFFINE),
    "ramp": (lambda w: vo.sum(vo.ramp(w)), UNKNOWN),
    "step": (lambda w: vo.sum(vo.step(w)), UNKNOWN),
    "concave piecewise": (lambda w: vo.sum(vo.piecewise(w, [0.0], [[0.0, 1.0], [0.0]])), CONCAVE),
    "cube": (lambda w: vo.sum(w**3), UNKNOWN),
    "fourth power": (lambda w: vo.sum((X @ w) ** 4), CONVEX),
    "semidefinite": (lambda w: vo.quad_form(w, X.T @ X), CONVEX),
    "low rank": (lambda w: vo.quad_form(w, np.outer(W, W)), CONVEX),
    "low rank in float32": (lambda w: vo.quad_form(w, np.outer(W, W).astype(np.float32)), CONVEX),
    "negative semidefinite": (lambda w: vo.quad_form(w, -X.T @ X), CONCAVE),
    "minus negative": (lambda w: -vo.quad_form(w, -X.T @ X), CONVEX),
    "skew": (lambda w: vo.quad_form(w, QUADRATIC - QUADRATIC.T), AFFINE),
    "only the symmetric part matters": (
        lambda w: vo.quad_form(w, np.eye(P) + 9 * np.triu(QUADRATIC, 1) - 9 * np.triu(QUADRATIC, 1).T),
        CONVEX,
    ),
    "indefinite": (lambda w: vo.quad_form(w, INDEFINITE), UNKNOWN),
    "indefinite operator": (lambda w: vo.quad_form(w, aslinearoperator(INDEFINITE)), UNKNOWN),
    "indefinite of integers": (lambda w: vo.quad_form(w, np.diag(np.array([100, 100, -100, 1], np.int8))), UNKNOWN),
    "one by one": (lambda w: vo.quad_form(w[0], [[2.0]]), CONVEX),
    "norm": (lambda w: vo.norm2(X @ w - Y), CONVEX),
    # Compositions: f(g(x)), f first.
    "rising convex of convex": (lambda w: vo.sum(vo.pos(vo.abs(w) - 1)), CONVEX),
    "rising convex of concave": (lambda w: vo.sum(vo.pos(1 - vo.abs(w))), UNKNOWN),
    "falling convex of concave": (lambda w: vo.sum(vo.hinge(1 - vo.abs(w))), CONVEX),
    "falling convex of convex": (lambda w: vo.sum(vo.hinge(vo.abs(w))), UNKNOWN),
    "rising concave of concave": (lambda w: vo.sum(vo.piecewise(-vo.abs(w), [0.0], [[0.0, 1.0], [0.0]])), CONCAVE),
    "falling concave of convex": (lambda w: vo.sum(vo.piecewise(vo.abs(w), [0.0], [[0.0], [0.0, -1.0]])), CONCAVE),
    "affine of convex": (lambda w: vo.sum(vo.piecewise(vo.abs(w), [], [[1.0, 2.0]])), CONVEX),
    "falling affine of convex": (lambda w: vo.sum(vo.piecewise(vo.abs(w), [], [[1.0, -2.0]])), CONCAVE),
    "neither of convex": (lambda w: vo.sum(vo.abs(vo.abs(w) - 1)), UNKNOWN),
    "rising on the range": (lambda w: vo.sum(vo.abs(vo.abs(w))), CONVEX),
    "square of a nonnegative convex": (lambda w: vo.sum(vo.hinge(X @ w) ** 2), CONVEX),
    "square of a weighted sum": (lambda w: vo.sum((WEIGHTS * vo.abs(X @ w) + 2 * vo.pos(X @ w) + 1) ** 2), CONVEX),
    "square of a shifted convex": (lambda w: vo.sum((vo.abs(w) - 0.1) ** 2), UNKNOWN),
    "square of convex plus affine": (lambda w: vo.sum((vo.abs(w) + w) ** 2), UNKNOWN),
    "three deep": (lambda w: vo.sum(vo.pos(vo.square(vo.abs(w)) - 1)), CONVEX),
    "of unknown": (lambda w: vo.sum(vo.pos(vo.ramp(w))), UNKNOWN),
    "jump of convex": (lambda w: vo.sum(vo.step(vo.abs(w))), UNKNOWN),
    "composition with weights of both signs": (lambda w: vo.sum(vo.pos(T * vo.abs(X @ w))), UNKNOWN),
}


@pytest.mark.parametrize("name", CURVATURES)
class TestCurvature:
    def test_rules(self, name, w):
        write, expected = CURVATURES[name]
        assert write(w).curvature is expected

    def test_rules_are_sound(self, name, w, rng):
        write, _ = CURVATURES[name]
        f = vo.as_objective(write(w))
        ends = rng.normal(size=(2, 300, f.size)) * rng.choice([0.1, 1.0, 10.0], size=(1, 300, 1))
        middle, mean = f.at(ends.mean(axis=0)), f.at(ends).mean(axis=0)
        slack = 1e-6 * (1 + np.abs(f.at(ends)).max(axis=0))
        assert not f.curvature.is_convex or np.all(middle <= mean + slack)
        assert not f.curvature.is_concave or np.all(middle >= mean - slack)

    def test_negation_turns_it_around(self, name, w):
        write, expected = CURVATURES[name]
        assert (-vo.as_objective(write(w))).curvature is -expected

    def test_explanation_agrees(self, name, w):
        write, expected = CURVATURES[name]
        text = write(w).explain()
        assert text.startswith(f"{expected.name}: ")
        assert ("Innermost culprit: " in text) == (expected is UNKNOWN)
        assert text.splitlines()[-1].startswith("Rule: ")


def test_curvature_of_vectors_is_that_of_every_entry(w):
    assert vo.abs(w).curvature is CONVEX
    assert (X @ w).curvature is AFFINE
    assert (T * vo.abs(X @ w)).curvature is UNKNOWN
    x = vo.Binary(2)
    cancelling = np.array([1.0, -1.0]) * (x[0] * x[1])  # the sum of the entries is zero, the entries are not affine
    assert cancelling.curvature is UNKNOWN
    assert vo.pos(cancelling).curvature is UNKNOWN
    assert (x[0] * x[0]).curvature is AFFINE


CULPRITS = {
    "ramp": (
        lambda w, x: vo.sum_squares(w) + vo.sum(vo.ramp(X @ w)),
        "sum(ramp(A[7 x 4] @ w)): ramp is neither convex nor concave: its slope falls at 0.",
        "a convex function of an affine argument is convex.",
    ),
    "jump": (
        lambda w, x: vo.sum(vo.zero_one(w)),
        "sum(zero_one(w)): zero_one is neither convex nor concave: it jumps at 0.",
        "affine argument",
    ),
    "negative weight": (
        lambda w, x: vo.sum_squares(w) - 0.5 * vo.norm1(w),
        "-0.5 * sum(abs(w)): it is concave beside sum(square(w)), which is convex.",
        "a sum is convex if every part is",
    ),
    "weights of both signs": (
        lambda w, x: vo.sum(T * vo.abs(X @ w)),
        "weights * sum(abs(A[7 x 4] @ w)): abs is convex and its argument affine; its weights have both signs.",
        "weights that are all nonnegative",
    ),
    "composition": (
        lambda w, x: vo.norm1(w) + vo.sum(vo.abs(vo.abs(w) + vo.pos(w) - 1)),
        "sum(abs(abs(w) + pos(w) - 1)): abs is convex and falls and rises, and its argument abs(w) + pos(w) - 1 is "
        "convex.",
        "f(g(x)) is convex if",
    ),
    "inside a composition": (
        lambda w, x: vo.sum(vo.pos(vo.abs(2 * vo.capped_abs(w, 3.0) + vo.abs(w) - 1))),
        "sum(capped_abs(w, 3)): capped_abs is neither convex nor concave: its slope falls at -3.",
        "a convex function of an affine argument is convex.",
    ),
    "indefinite": (
        lambda w, x: vo.quad_form(w, INDEFINITE),
        "quad_form(w, A[4 x 4]): the matrix of quad_form has eigenvalues from -1 to 2.",
        "no negative eigenvalue",
    ),
    "bits": (
        lambda w, x: vo.norm1(w) + x[0] * x[1] * x[2],
        "x[0] * x[1] * x[2]: a product of 3 variables is neither convex nor concave.",
        "a product of variables is neither convex nor concave.",
    ),
    "bits inside": (
        lambda w, x: vo.sum(vo.pos(x * x[0] - 1)),
        "a product of 2 variables is neither convex nor concave.",
        "a product of variables",
    ),
}


@pytest.mark.parametrize("name", CULPRITS)
def test_explanations_name_the_innermost_culprit_and_the_rule(name, w):
    write, culprit, rule = CULPRITS[name]
    lines = write(w, vo.Binary(3, name="x")).explain().splitlines()
    assert lines[0] == "UNKNOWN: neither convex nor concave, as far as the rules can tell."
    assert lines[-2].startswith("Innermost culprit: ")
    assert culprit in lines[-2]
    assert rule in lines[-1]


def test_explanation_of_a_convex_objective(w):
    f = vo.sum_squares(Y - X @ w) + 0.5 * vo.norm1(w) + 3
    assert f.explain().splitlines() == [
        "CONVEX: every part is convex or affine.",
        "  convex   sum(square(c - A[7 x 4] @ w)): square is convex and its argument affine.",
        "  convex   0.5 * sum(abs(w)): abs is convex and its argument affine.",
        "  affine   3: it is affine.",
        "Rule: a sum is convex if every part is, and a nonnegative multiple of a convex part is convex.",
    ]


class TestLargeQuadratics:
    """Beyond 1500 rows only the ends of the spectrum are computed."""

    n = 1600

    def test_a_laplacian_is_seen_at_once(self):
        laplacian = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(self.n, self.n))
        assert vo.quad_form(vo.Variable(self.n), laplacian).curvature is CONVEX
        assert vo.quad_form(vo.Variable(self.n), -laplacian).curvature is CONCAVE

    def test_low_rank(self, rng):
        factor = rng.normal(size=(self.n, 3))
        operator = LinearOperator(
            (self.n, self.n), lambda x: factor @ (factor.T @ x), lambda x: factor @ (factor.T @ x), dtype=float
        )
        assert vo.quad_form(vo.Variable(self.n), operator).curvature is CONVEX
        assert vo.quad_form(vo.Variable(self.n), factor @ factor.T).curvature is CONVEX

    def test_a_kernel_of_many_ranks_has_its_zeros_in_a_cluster(self, rng):
        factor = rng.normal(size=(self.n, 100))
        assert vo.quad_form(vo.Variable(self.n), factor @ factor.T).curvature is CONVEX

    def test_one_negative_direction(self, rng):
        factor = rng.normal(size=(self.n, 2))
        matrix = np.outer(factor[:, 0], factor[:, 0]) - 1e-3 * np.outer(factor[:, 1], factor[:, 1])
        f = vo.quad_form(vo.Variable(self.n), matrix)
        assert f.curvature is UNKNOWN
        upper = np.linalg.qr(factor, mode="r")
        exact = np.linalg.eigvalsh(upper @ np.diag([1.0, -1e-3]) @ upper.T)
        np.testing.assert_allclose(f.blocks[0].spectrum, exact, rtol=1e-5)

    def test_a_diagonal(self):
        matrix = sp.diags_array(np.linspace(-1.0, 3.0, self.n))
        low, high = (
            vo.quad_form(vo.Variable(self.n), matrix + sp.diags_array([1e-3], offsets=[1], shape=matrix.shape))
            .blocks[0]
            .spectrum
        )
        assert low == pytest.approx(-1.0, abs=1e-3)
        assert high == pytest.approx(3.0, abs=1e-3)


@given(st.data())
def test_random_compositions_are_judged_soundly(data):
    """Whatever the rules claim holds on random segments."""
    w = vo.Variable(3)
    terms = [
        vo.abs,
        vo.pos,
        vo.hinge,
        vo.square,
        vo.ramp,
        vo.huber,
        vo.squared_hinge,
        lambda e: -vo.abs(e),
        lambda e: -vo.pos(-e),
    ]
    expression = np.array([[1.0, -1.0, 0.5], [0.0, 2.0, 1.0], [1.0, 1.0, 1.0]]) @ w - [0.5, 0.0, -1.0]
    for _ in range(data.draw(st.integers(1, 4))):
        expression = data.draw(st.sampled_from(terms))(expression)
        expression = data.draw(st.sampled_from([-1.0, 0.0, 0.5, 2.0])) * expression + data.draw(
            st.sampled_from([-1.0, 0.0, 1.0])
        )
    f = vo.sum(expression)
    ends = np.random.default_rng(0).normal(size=(2, 200, 3)) * 2
    middle, mean = f.at(ends.mean(axis=0)), f.at(ends).mean(axis=0)
    slack = 1e-9 * (1 + np.abs(f.at(ends)).max(axis=0))
    assert not f.curvature.is_convex or np.all(middle <= mean + slack)
    assert not f.curvature.is_concave or np.all(middle >= mean - slack)


@pytest.mark.parametrize("factor", [1.0, -1.0, 0.0, 1e-20, 1e200])
def test_a_large_multiple_of_the_identity_has_its_curvature(factor):
    operator = aslinearoperator(factor * sp.eye_array(2000))
    expected = "AFFINE" if factor == 0.0 else "CONVEX" if factor > 0 else "CONCAVE"
    assert vo.quad_form(vo.Variable(2000), operator).curvature == expected


def test_where_the_eigensolver_fails_nothing_is_claimed(monkeypatch):
    import scipy.sparse.linalg

    def fail(*args, **kwargs):
        raise scipy.sparse.linalg.ArpackNoConvergence("no convergence", np.empty(0), np.empty((0, 0)))

    monkeypatch.setattr(scipy.sparse.linalg, "eigsh", fail)
    diagonal = np.ones(2000)
    diagonal[0] = -5.0
    f = vo.quad_form(vo.Variable(2000), aslinearoperator(sp.diags_array(diagonal)))
    assert f.curvature == "UNKNOWN"


def test_what_was_built_cannot_be_assigned_to():
    w = vo.Variable(2)
    f = vo.norm1(w) + vo.sum_squares(w)
    for built, name in ((w, "size"), (w + 1.0, "shape"), (vo.abs(w), "parts"), (f, "variables"), (f, "blocks")):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(built, name, ())
    assert f([1.0, -1.0]) == 4.0
