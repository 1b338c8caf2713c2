"""Arrays of PyTorch and JAX stay where they are, and give the bracket of memory. Here on the processor's device."""

import copy
import pickle
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from array_api_compat import array_namespace

import varopt as vo
from varopt import terms
from varopt.optimize import Status
from varopt.optimize.anywhere._device_proof import annihilates, lengths_above  # sums by themselves
from varopt.places import joined

ROWS = 20_000
w, b = vo.Variable(4, name="w"), vo.Variable(name="b")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(8)
    X = rng.standard_normal((ROWS, 4))
    y = X @ [1.0, -2.0, 0.0, 0.5] + rng.standard_t(3, ROWS)
    return {"X": X, "y": y, "t": np.sign(y), "c": rng.random(ROWS)}


@pytest.fixture(autouse=True)
def never_at_once(monkeypatch):
    monkeypatch.setattr("varopt.optimize.anywhere._engine._ALL", 0)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("varopt.optimize.anywhere._device._DEVICE_ENTRIES", 1 << 16)


def torch_columns(data, dtype=None):
    torch = pytest.importorskip("torch")
    X = torch.tensor(data["X"], dtype=dtype or torch.float64)
    first = vo.rows(X, y=torch.tensor(data["y"]), weight=torch.tensor(data["c"]))
    return {"X": first.X, "y": first.y, "c": first.weight, "t": vo.rows(X, y=torch.tensor(data["t"])).y}


OBJECTIVES = {
    "pinball": lambda X, y, t, c: vo.sum(vo.pinball(y - X @ w - b, 0.3)),
    "weights": lambda X, y, t, c: 2.0 * vo.sum(c * vo.pinball(X @ w - y + 1.0, 0.8)),
    "hinge": lambda X, y, t, c: 0.5 * vo.sum_squares(w) + 0.2 * vo.sum(vo.hinge(t * (X @ w + b))),
    "squared hinge": lambda X, y, t, c: 0.5 * vo.sum_squares(w) + vo.sum(vo.squared_hinge(t * (X @ w + b))),
    "Huber": lambda X, y, t, c: vo.sum(c * vo.huber(y - X @ w - b, 1.3)),
    "lasso": lambda X, y, t, c: vo.sum_squares(y - X @ w - b) + 90_000.0 * vo.norm1(w),
    "scaled rows": lambda X, y, t, c: vo.sum(vo.abs(c * (X @ w) - y)),
}


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.usefixtures("small_blocks")
def test_torch_gives_the_bracket_of_memory(name, data):
    far, near = vo.minimize(OBJECTIVES[name](**torch_columns(data))), vo.minimize(OBJECTIVES[name](**data))
    assert far.status is Status.OPTIMAL
    assert far.lower <= near.upper
    assert near.lower <= far.upper
    assert far.gap <= 1e-9 * far.fun
    assert far.fun == pytest.approx(near.fun, rel=1e-10)


def test_results_are_where_the_data_are(data):
    torch = pytest.importorskip("torch")
    r = vo.minimize(OBJECTIVES["pinball"](**torch_columns(data)))
    assert isinstance(r[w], torch.Tensor)
    assert isinstance(r.x, np.ndarray)
    np.testing.assert_array_equal(r[w].numpy(), r.x[r.slices[w]])
    assert isinstance(r[b], float)
    assert "w = [" in str(r)


def test_single_precision_is_certified_in_double(data):
    torch = pytest.importorskip("torch")
    single = {**data, "X": data["X"].astype(np.float32).astype(np.float64)}
    far = vo.minimize(OBJECTIVES["pinball"](**torch_columns(data, torch.float32)))
    near = vo.minimize(OBJECTIVES["pinball"](**single))
    assert far.status is Status.OPTIMAL
    assert far.lower <= near.upper
    assert near.lower <= far.upper


def test_jax_sums_are_those_of_memory(data):
    """One pass: a whole run is most of the time that of JAX's compiler."""
    jax = pytest.importorskip("jax")
    from varopt.optimize.anywhere._device import DeviceRows  # sums by themselves
    from varopt.optimize.anywhere._device_proof import sweep_device  # likewise
    from varopt.optimize.anywhere._problem import Problem  # likewise
    from varopt.optimize.anywhere._sweep import Sweep  # likewise

    X, y, x = data["X"][:5000], data["y"][:5000], np.array([1.0, -2.0, 0.1, 0.4])
    request = Sweep(x, np.eye(4) * 0.01, 1.0, 0.001)
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        table = vo.rows(jax.numpy.asarray(X), y=jax.numpy.asarray(y))
        problem = Problem(vo.sum(vo.abs(table.y - table.X @ w)))
        far = sweep_device(DeviceRows(problem.blocks[0], (w,), problem.table, problem.columns), request)
        part = next(table.X.table.parts(problem.columns, 5000))()
        near = request.of(problem.blocks[0], (w,), part)
    for there, here in ((far.value, near.value), (far.lines.gradient, near.lines.gradient)):
        a, c = there.ball(), here.ball()
        assert np.all(np.abs(a.middle - c.middle) <= a.radius + c.radius)
        assert np.all(a.radius <= 1e-9 * (1.0 + np.abs(a.middle)))
    assert np.array_equal(joined(far.kept).index, near.kept[0].index)


def test_jax_in_single_precision_is_told(data):
    jax = pytest.importorskip("jax")
    if jax.config.jax_enable_x64:
        pytest.skip("double precision is on")
    with pytest.raises(ValueError, match="jax_enable_x64"):
        vo.rows(jax.numpy.asarray(data["X"][:10]))


def test_arrays_that_are_no_data_get_a_sentence(data):
    torch = pytest.importorskip("torch", reason="needs PyTorch: make test-nn installs it")
    with pytest.raises(ValueError, match=r"y must hold real numbers; got torch.complex128"):
        vo.rows(torch.tensor(data["X"]), y=torch.tensor(data["y"] * 1j))
    with pytest.raises(ValueError, match="meta has no entries"):
        vo.rows(torch.empty((10, 4), device="meta"))
    table = vo.rows(torch.tensor(data["X"], requires_grad=True), y=torch.tensor(data["y"]))
    assert not table.X.array.requires_grad


@pytest.mark.parametrize("kind", ["codes", "twice"])
def test_columns_that_depend_on_each_other_on_a_device(kind, data):
    torch = pytest.importorskip("torch", reason="needs PyTorch: make test-nn installs it")
    more = {"codes": np.eye(3)[np.arange(ROWS) % 3], "twice": data["X"][:, :1]}[kind]
    X = np.hstack([data["X"], more])
    table, v = vo.rows(torch.tensor(X), y=torch.tensor(data["y"])), vo.Variable(X.shape[1])
    far = vo.minimize(vo.sum(vo.pinball(table.y - table.X @ v - b, 0.3)))
    near = vo.minimize(vo.sum(vo.pinball(data["y"] - X @ v - b, 0.3)))
    assert far.status is Status.OPTIMAL
    assert far.lower <= near.upper
    assert near.lower <= far.upper


def test_bad_rows_on_a_device_are_named(data):
    torch = pytest.importorskip("torch")
    y = data["y"].copy()
    y[11_415] = np.nan
    table = vo.rows(torch.tensor(data["X"]), y=torch.tensor(y))
    with pytest.raises(ValueError, match="y must be finite; got nan in row 11415"):
        vo.minimize(vo.sum(vo.abs(table.y - table.X @ w)))
    with pytest.raises(ValueError, match="one number of rows"):
        vo.rows(torch.tensor(data["X"]), y=torch.ones(3))
    table = vo.rows(torch.tensor(data["X"]), y=torch.tensor(data["y"]))
    twice = vo.sum(vo.abs(table.y - table.X @ w - data["X"] @ w[[0, 1, 2, 3]]))
    with pytest.raises(ValueError, match=r"on a device rows are t \* \(X @ w \+ b\) \+ d"):
        vo.minimize(twice)


@pytest.mark.parametrize("term", [terms.abs_(), terms.hinge(), terms.pos(), terms.pinball(0.7)])
def test_steps_on_tensors_are_those_of_the_general_formulas(term):
    """In few calls of PyTorch, and by the general formulas elsewhere; what smoothing adds keeps its digits."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: make test-nn installs it")
    distance = torch.linspace(-4.0, 4.0, 801, dtype=torch.float64)
    z = distance + term.knots[0]
    for sigma in (1e-3, 0.3, 50.0):
        wide = torch.full_like(z, sigma)
        general = term.gap(z, wide), *term.derivatives(z, wide)[1:]
        for found in (term.steps_around(distance, sigma), term.steps_around(distance.numpy(), sigma)):
            for ours, theirs in zip(found, general, strict=True):
                size = max(1.0, float(theirs.abs().max()), 1.0 / sigma)  # places around a knot of one are rounded
                assert float(abs(torch.asarray(ours) - theirs).max()) <= 1e-14 * size


def test_only_kinks_have_steps_of_kinks():
    with pytest.raises(ValueError, match="not two lines that meet"):
        terms.huber(1.0).steps_around(np.zeros(3), 1.0)


@pytest.mark.parametrize("unit", [1.0, 1e-100, 1e-170, 1e-300])
def test_lengths_of_columns_are_bounded_where_their_squares_vanish(unit):
    """A private formula: all that is charged for rounding on a device rests on it."""
    X = unit * np.random.default_rng(0).standard_normal((500, 3))
    exact = [sum(Fraction(v) ** 2 for v in column) for column in X.T.tolist()]
    bounds = lengths_above(np.linalg.norm(X, axis=0), len(X))
    assert all(Fraction(bound) ** 2 >= square for bound, square in zip(bounds.tolist(), exact, strict=True))
    if unit >= 1e-100:
        np.testing.assert_allclose(bounds, np.linalg.norm(X, axis=0), rtol=1e-5)


def test_a_relation_that_rounding_feigns_does_not_hold():
    """The products are -1 together, and zero once they are rounded."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: make test-nn installs it")
    factor = 2.0**21 + 1.0
    X = torch.tensor([[factor - 1.0, 2.0**32, 2.0**32 - 1.0]], dtype=torch.float64)
    rows = SimpleNamespace(xp=array_namespace(X), features=slice(0, 3), intercepts=[], alpha=1.0)
    assert not annihilates(rows, X, np.array([1.0, -factor, factor]))


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_arrays_on_the_processor_give_arrays_of_their_library(library):
    xp = pytest.importorskip(library)
    rng = np.random.default_rng(3)
    X = rng.standard_normal((80, 4)).astype(np.float32)
    y = X @ np.ones(4, dtype=np.float32) + rng.standard_normal(80).astype(np.float32)
    there, target = xp.asarray(X), xp.asarray(y)
    near = vo.minimize(vo.sum(vo.abs(y - X @ w - b)) + vo.norm1(w))
    f = vo.sum(vo.abs(target - there @ w - b)) + vo.norm1(w)
    for r in (vo.minimize(f), vo.minimize(f, subject_to=[w <= 10.0])):
        assert type(r[w]) is type(there)
        np.testing.assert_allclose(np.asarray(r[w]), near[w], rtol=1e-5)
        assert isinstance(r.x, np.ndarray)
        assert isinstance(r[b], float)
    again = pickle.loads(pickle.dumps(vo.minimize(f)))  # where there may be no such library
    assert type(again[w]) is np.ndarray
    assert type(copy.deepcopy(vo.minimize(f))[w]) is type(there)
    t = vo.Parameter("t")
    assert type(vo.path(f + t * vo.norm1(w), t, [1.0, 2.0])[w]) is type(there)


def test_tensors_with_gradients_are_data(data):
    torch = pytest.importorskip("torch")
    X, y = torch.tensor(data["X"][:50], requires_grad=True), torch.tensor(data["y"][:50])
    assert not vo.minimize(vo.sum(vo.abs(y - X @ w)))[w].requires_grad


def test_tensors_of_half_the_digits_are_data():
    torch = pytest.importorskip("torch")
    X, y = torch.tensor([[1.0, 0.0], [0.5, 2.0]], dtype=torch.bfloat16), torch.tensor([1.0, -1.5])
    v = vo.Variable(2)
    np.testing.assert_allclose(vo.minimize(vo.sum_squares(y - X @ v))[v].numpy(), [1.0, -1.0], atol=1e-6)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("name", ["pinball", "weighted pinball", "hinge", "tube", "huber"])
def test_sums_on_a_device_lie_within_their_radius(name, offset):
    """In fractions: the value at a point, and the lines of the rows that are not kept."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: make test-nn installs it")
    from varopt.optimize.anywhere._device import DeviceRows  # one pass, whose parts a result no longer tells
    from varopt.optimize.anywhere._device_proof import sweep_device  # the pass that proves
    from varopt.optimize.anywhere._problem import Problem  # what a pass is of
    from varopt.optimize.anywhere._sweep import Sweep  # the same pass in NumPy

    rng = np.random.default_rng(5)
    X, x = rng.standard_normal((4500, 4)) * [1.0, 1e3, 1e-3, 1.0], np.array([0.3, 0.007, 100.0, offset, 0.2])
    X[:, 3] = 1.0
    y = X @ x[:4] + rng.standard_t(2, 4500)
    t, c = np.where(y > offset, 1.0, -1.0), rng.random(4500)
    there = vo.rows(torch.tensor(X), y=torch.tensor(y), weight=torch.tensor(c))
    signs = vo.rows(torch.tensor(X), y=torch.tensor(t)).y
    term, objective = {
        "pinball": (terms.pinball(0.7), lambda: vo.sum(vo.pinball(there.y - there.X @ w - b, 0.7))),
        "weighted pinball": (terms.pinball(0.7), lambda: vo.sum(there.weight * vo.pinball(there.y - there.X @ w, 0.7))),
        "hinge": (terms.hinge(), lambda: 0.3 * vo.sum(vo.hinge(signs * (there.X @ w + b)))),
        "tube": (terms.epsilon_insensitive(0.1), lambda: vo.sum(vo.epsilon_insensitive(there.y - there.X @ w, 0.1))),
        "huber": (terms.huber(1.5), lambda: vo.sum(there.weight * vo.huber(there.y - there.X @ w - b, 1.5))),
    }[name]
    problem = Problem(objective())
    x = x[: problem.size]
    device = DeviceRows(problem.blocks[0], problem.variables, problem.table, problem.columns)
    swept = sweep_device(device, Sweep(x, np.zeros((problem.size, 1)), 0.1, 0.05))
    assert sum(part.count for part in swept.kept) in range(0 if name == "hinge" and offset else 1, 1000)
    place = {v: problem.objective.slices[v].start for v in problem.variables}
    weights = c if "weighted" in name or name == "huber" else np.full(4500, 0.3 if name == "hinge" else 1.0)
    value, constant, gradient = Fraction(0), Fraction(0), [Fraction(0)] * problem.size
    kept = {int(i) for part in swept.kept for i in part.index}
    coefficients = [Fraction(v) for v in x.tolist()]
    for i in range(4500):
        row = [Fraction(0)] * problem.size
        for j in range(4):
            row[place[w] + j] = Fraction(float(X[i, j]))
        if b in place:
            row[place[b]] = Fraction(1)
        sign, d = (Fraction(float(t[i])), Fraction(0)) if name == "hinge" else (Fraction(-1), Fraction(float(y[i])))
        row = [sign * a for a in row]
        z = sum((a * v for a, v in zip(row, coefficients, strict=True)), d)
        weight = Fraction(float(weights[i]))
        value += weight * exactly(term, z)[0]
        if i not in kept:
            level, slope = exactly(term, z)
            gradient = [g + weight * slope * a for g, a in zip(gradient, row, strict=True)]
            constant += weight * (slope * d + level - slope * z)
    found, lines, base = swept.value.ball(), swept.lines.gradient.ball(), swept.lines.constant.ball()
    assert abs(Fraction(float(found.middle)) - value) <= Fraction(float(found.radius))
    assert float(found.radius) <= 1e-9 * float(value) + 1e-14 * 4500 * offset
    if term.degree > 1:  # the slope is that of a position that is rounded: below the rows, and hardly
        below = constant - Fraction(float(base.middle))
        reach = Fraction(float(base.radius))
        for middle, radius, exact, v in zip(lines.middle, lines.radius, gradient, coefficients, strict=True):
            below += (exact - Fraction(float(middle))) * v
            reach += Fraction(float(radius)) * abs(v)
        assert -reach <= below <= reach + value / 10**9
        return
    for middle, radius, exact in zip(lines.middle, lines.radius, gradient, strict=True):
        assert abs(Fraction(float(middle)) - exact) <= Fraction(float(radius)) <= 10**-3
    assert abs(Fraction(float(base.middle)) - constant) <= Fraction(float(base.radius))


def exactly(term, z):
    """Value and slope of a term in fractions."""
    piece = sum(z >= Fraction(float(knot)) for knot in term.knots)
    u = z - Fraction(float(term.centres[piece]))
    coefficients = [Fraction(float(v)) for v in term.pieces[piece]]
    slope = sum((k * v * u ** (k - 1) for k, v in enumerate(coefficients) if k), Fraction(0))
    return sum((v * u**k for k, v in enumerate(coefficients)), Fraction(0)), slope


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_matrices_of_variables_come_back_where_the_data_are(library):
    xp = pytest.importorskip(library)
    rng = np.random.default_rng(4)
    X, Y, W = rng.standard_normal((60, 3)), rng.standard_normal((60, 2)), vo.Variable((3, 2))
    there = xp.asarray(X)
    near = vo.minimize(vo.sum_squares(Y - np.asarray(there) @ W))
    for product in (there @ W, (W.T @ there.T).T):
        found = vo.minimize(vo.sum_squares(Y - product))[W]
        assert type(found) is type(there)
        np.testing.assert_allclose(np.asarray(found), near[W], rtol=1e-6)
