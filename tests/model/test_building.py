"""Building objectives: data stay where they are, nothing is changed, and what is built can be printed and sent."""

import copy
import inspect
import pickle
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import varopt.model as vo

N, P = 5, 3
DATA = np.random.default_rng(4)
X, Y = DATA.normal(size=(N, P)), DATA.normal(size=N)
T = np.array([1.0, -1.0, 1.0, 1.0, -1.0])
W, B = DATA.normal(size=P), 0.25


@pytest.fixture
def w():
    return vo.Variable(P, name="w")


@pytest.fixture
def b():
    return vo.Variable(name="b")


# -- Memory -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large():
    rng = np.random.default_rng(0)
    return rng.random((100_000, 100)), rng.random(100_000), np.where(rng.random(100_000) < 0.5, -1, 1)


LARGE = {
    "lasso": lambda X, y, t, w, b: vo.sum_squares(y - X @ w) + 0.1 * vo.norm1(w),
    "lasso the other way round": lambda X, y, t, w, b: 0.5 * vo.sum_squares(X @ w - y) + 0.1 * vo.norm1(w),
    "svm": lambda X, y, t, w, b: vo.sum_squares(w) + 2.0 * vo.sum(vo.hinge(t * (X @ w + b))),
    "svm with float labels": lambda X, y, t, w, b: vo.sum(vo.hinge(y * (X @ w + b))),
    "quantiles": lambda X, y, t, w, b: vo.sum(vo.pinball(y - X @ w - b, 0.7)) + vo.norm1(vo.diff(w)),
    "weights": lambda X, y, t, w, b: vo.sum(y * vo.abs(X @ w - b)),
    "first rows": lambda X, y, t, w, b: vo.norm1((X @ w - y)[10:90_000]),
    "normal equations": lambda X, y, t, w, b: vo.sum_squares(X.T @ (X @ w)),
}


@pytest.mark.parametrize("name", LARGE)
def test_building_allocates_under_one_percent_of_the_data(name, large):
    X, y, t = large
    w, b = vo.Variable(100), vo.Variable()
    LARGE[name](X, y, t, w, b)  # what imports and caches allocate once
    tracemalloc.start()
    f = LARGE[name](X, y, t, w, b)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.01 * X.nbytes
    assert f.size in (100, 101)


def test_the_data_are_held_by_reference(w, b):
    f = vo.sum_squares(Y - X @ w) + vo.sum(vo.hinge(T * (X @ w + b))) + T @ vo.abs(Y - X @ w)
    squares, hinges, weighted = f.blocks
    assert squares.argument.offset is Y
    assert squares.argument.maps[w].inner.array is X
    assert hinges.argument.maps[w].scale is T
    assert hinges.argument.maps[w].inner.array is X
    assert weighted.weights is T


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_array, sp.csr_matrix, sp.csc_matrix])
def test_sparse_data_are_held_by_reference(make, w):
    given = make(X)
    held = (given @ w).maps[w].array
    for part in ("data", "indices", "indptr"):
        assert np.shares_memory(getattr(held, part), getattr(given, part))


def test_float32_data_are_not_copied_by_a_product():
    X = np.ones((20_000, 100), dtype=np.float32)
    w = vo.Variable(100)
    f = vo.sum_squares(X @ w)
    f(np.ones(100))
    tracemalloc.start()
    f(np.ones(100))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * X.nbytes


# -- Immutability -----------------------------------------------------------------------------------------------------

EXPRESSIONS = {
    "variable": lambda w, b, x: w,
    "affine": lambda w, b, x: X.T @ (X @ w - Y) + b,
    "scalar": lambda w, b, x: 2 * b - 1,
    "elementwise": lambda w, b, x: W * vo.abs(w) + w - 1,
    "objective": lambda w, b, x: vo.sum_squares(Y - X @ w) + vo.norm1(w) + vo.norm2(w) - vo.quad_form(w, X.T @ X) + b,
    "composed": lambda w, b, x: vo.sum(vo.pos(vo.abs(w) - 1)),
    "polynomial": lambda w, b, x: x[0] * x[1] + x[2],
    "polynomials": lambda w, b, x: x * x[::-1],
    "polynomial objective": lambda w, b, x: x @ (np.eye(3) @ x) + vo.sum(x) + x[0] * x[2],
    "per-row terms": lambda w, b, x: vo.sum(vo.pinball(Y - X @ w, np.linspace(0.1, 0.9, N))),
}


@pytest.fixture(params=EXPRESSIONS)
def expression(request, w, b):
    return EXPRESSIONS[request.param](w, b, vo.Binary(3, name="x"))


def point_of(expression):
    values = {"real": DATA.normal, "binary": lambda size: DATA.integers(0, 2, size=size)}
    return {v: values[v.kind](size=v.dimensions) for v in expression.variables}


def test_operators_change_neither_operand_nor_data(expression, w, b):
    point = point_of(expression)
    before = expression(point)
    text = repr(expression)
    data = [X.copy(), Y.copy(), T.copy(), W.copy()]
    length = expression.rows
    operations = [lambda: +expression, lambda: -expression, lambda: 2 * expression + 3, lambda: 1 - expression / 2]
    operations += [lambda: expression + expression, lambda: expression - expression, lambda: vo.sum(expression)]
    if expression.shape:
        operations += [lambda: np.ones(length) * expression + np.ones(length), lambda: np.ones(length) @ expression]
    for operation in operations:
        operation()(point)
        operation().explain()
    np.testing.assert_array_equal(expression(point), before)
    assert repr(expression) == text
    for array, kept in zip((X, Y, T, W), data, strict=True):
        np.testing.assert_array_equal(array, kept)


def test_augmented_assignment_makes_a_new_expression(w):
    f = g = vo.norm1(w)
    g += 1
    g *= 2
    assert f(W) == pytest.approx(abs(W).sum())
    assert g(W) == pytest.approx(2 * abs(W).sum() + 2)


# -- Copies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))])
def test_copies_speak_of_the_same_variables(expression, duplicate):
    twin = duplicate(expression)
    assert twin.variables == expression.variables
    point = point_of(expression)
    np.testing.assert_allclose(twin(point), expression(point), rtol=1e-15)
    assert repr(twin) == repr(expression)
    assert twin.curvature is expression.curvature
    np.testing.assert_allclose((twin + expression)(point), 2 * np.asarray(expression(point)))


def test_a_used_objective_can_be_sent(w):
    f = vo.sum_squares(Y - X @ w) + vo.norm1(w)
    assert f.curvature.is_convex
    f(W)
    assert pickle.loads(pickle.dumps(f))(W) == f(W)


def test_sparse_data_and_operators_can_be_sent(w):
    f = vo.sum_squares(sp.csr_matrix(X) @ w) + vo.norm1(aslinearoperator(X) @ w)
    assert pickle.loads(pickle.dumps(f))(W) == pytest.approx(f(W))


CHILD = """
import pickle, sys
import varopt.model as vo
early = vo.Binary(2, name="early")
f = pickle.load(sys.stdin.buffer)
late = vo.Binary(2, name="late")
assert [v.name for v in f.variables] == ["x", "y"], f.variables
assert f([0, 1, 1, 1, 0]) == 1 + 1, f
g = f * early[0] * late[1]
assert g.variables[-1] is late
point = {v: [1] * v.size for v in g.variables}
assert g(point) == f({v: point[v] for v in f.variables})
assert g({**point, early: [0, 1]}) == 0.0   # as many variables here as there: they must not be taken for one another
pickle.dump((f, early), sys.stdout.buffer)
"""


def test_an_objective_survives_the_trip_to_another_process_and_back():
    x, y = vo.Binary(2, name="x"), vo.Binary(3, name="y")
    f = vo.as_objective(x[1] * y[0] + x[0] * y[2] + x[1] * y[1])
    child = subprocess.run([sys.executable, "-c", CHILD], input=pickle.dumps(f), capture_output=True, check=False)
    assert child.returncode == 0, child.stderr.decode()
    back, early = pickle.loads(child.stdout)
    assert back.variables == (x, y)
    assert back({x: [0, 1], y: [1, 1, 0]}) == 2.0
    assert early not in (x, y)
    assert vo.Binary(2).order > early.order


# -- Texts ------------------------------------------------------------------------------------------------------------

TEXTS = {
    "w": lambda w, b, x: w,
    "Variable(2)": lambda w, b, x: vo.Variable(2),
    "Variable()": lambda w, b, x: vo.Variable(),
    "Categorical(3, 2)": lambda w, b, x: vo.Categorical(3, 2),
    "A[5 x 3] @ w - 1": lambda w, b, x: X @ w - 1,
    "c - A[5 x 3] @ w": lambda w, b, x: Y - X @ w,
    "A[5 x 3] @ w - c": lambda w, b, x: X @ w - Y,
    "A[5 x 3] @ w + b": lambda w, b, x: X @ w + b,
    "A[5 x 3] @ w + 2 * b - 0.5": lambda w, b, x: X @ w + 2 * b - 0.5,
    "t * (A[5 x 3] @ w) + t * b": lambda w, b, x: T * (X @ w + b),
    "S[5 x 3] @ w": lambda w, b, x: sp.csr_array(X) @ w,
    "L[5 x 3] @ w": lambda w, b, x: aslinearoperator(X) @ w,
    "w[1:3]": lambda w, b, x: w[1:],
    "w[0:3:2]": lambda w, b, x: w[::2],
    "w[0]": lambda w, b, x: w[0],
    "w[2 entries]": lambda w, b, x: w[[2, 0]],
    "c @ w": lambda w, b, x: W @ w,
    "diff(w)": lambda w, b, x: vo.diff(w),
    "A[3 x 5] @ (A[5 x 3] @ w) - w": lambda w, b, x: X.T @ (X @ w) - w,
    "sum(square(c - A[5 x 3] @ w)) + 0.1 * sum(abs(w))": lambda w, b, x: vo.sum_squares(Y - X @ w) + 0.1 * vo.norm1(w),
    "sum(square(w)) - 2 * sum(hinge(w + b))": lambda w, b, x: vo.sum_squares(w) - 2 * vo.sum(vo.hinge(w + b)),
    "weights * sum(pinball(w, 0.7))": lambda w, b, x: W @ vo.pinball(w, 0.7),
    "sum(pinball(A[5 x 3] @ w, ...))": lambda w, b, x: vo.sum(vo.pinball(X @ w, np.linspace(0.1, 0.9, N))),
    "abs(w) - 1": lambda w, b, x: vo.abs(w) - 1,
    "-abs(w) + w": lambda w, b, x: w - vo.abs(w),
    "sum(w) - 3": lambda w, b, x: vo.sum(w) - 3,
    "norm2(w) - norm2(w, 3 groups) + 1": lambda w, b, x: vo.norm2(w) - vo.norm2(w, 1) + 1,
    "quad_form(w - 1, A[3 x 3])": lambda w, b, x: vo.quad_form(w - 1, np.eye(3)),
    "sum(pos(2 * abs(w) - 1))": lambda w, b, x: vo.sum(vo.pos(2 * vo.abs(w) - 1)),
    "x[2] + x[0] * x[1] - 1": lambda w, b, x: x[0] * x[1] + x[2] - 1,
    "polynomial(degree 2, 6 monomials in x)": lambda w, b, x: x @ (np.ones((3, 3)) @ x),
    "polynomials(degree 2 in x)": lambda w, b, x: x * x[::-1],
    "0": lambda w, b, x: vo.as_objective(0),
}


@pytest.mark.parametrize("text", TEXTS)
def test_expressions_read_as_they_were_written(text, w, b):
    expression = TEXTS[text](w, b, vo.Binary(3, name="x"))
    assert str(expression) == text
    assert text in repr(expression) or repr(expression) == repr(w)


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda w: w, "Variable(3, name='w')"),
        (lambda w: vo.Binary(), "Binary()"),
        (lambda w: vo.Categorical(3, 2, name="c"), "Categorical(3, 2, name='c')"),
        (lambda w: w - 1, "<affine expression of shape (3,): w - 1>"),
        (vo.abs, "<elementwise expression of shape (3,): abs(w)>"),
        (vo.norm1, "<objective of Variable(3, name='w'): sum(abs(w))>"),
        (lambda w: vo.as_objective(2.0), "<objective of no variables: 2>"),
    ],
)
def test_reprs(write, text, w):
    assert repr(write(w)) == text


# -- The door ---------------------------------------------------------------------------------------------------------


def test_the_module_exports_what_it_says():
    assert sorted(vo.__all__) == list(vo.__all__)
    for name in vo.__all__:
        assert getattr(vo, name).__doc__, name


def test_every_function_has_the_term_it_is_named_for():
    from varopt.terms import REGISTRY

    for name, declaration in REGISTRY.items():
        function = getattr(vo, name)
        parameters = list(inspect.signature(function).parameters.values())[1:]
        assert {p.name: p.default for p in parameters} == dict(declaration.defaults), name
        assert function(vo.Variable(2)).parts[0].term.name == name


def test_operators_of_scipy_keep_their_own_products():
    operator = aslinearoperator(X)
    np.testing.assert_allclose(operator @ W, X @ W)
    assert isinstance(operator @ aslinearoperator(np.eye(P)), LinearOperator)
    with pytest.raises(ValueError, match="dimension mismatch"):
        operator @ Y
