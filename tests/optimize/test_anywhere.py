"""Rows that are not in memory: the same optimum and the same certificate as where they are."""

import tracemalloc

import numpy as np
import pytest

import varopt as vo
from varopt.optimize import Status
from varopt.places import at, columns_in, table_of

ROWS, FEATURES = 20_000, 5


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((ROWS, FEATURES))
    y = X @ [1.0, -2.0, 0.0, 0.0, 0.5] + rng.standard_t(2, ROWS)
    return {"X": X, "y": y, "t": np.sign(y), "c": rng.random(ROWS)}


@pytest.fixture(scope="module")
def stored(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("arrays")
    for name, array in data.items():
        np.save(folder / f"{name}.npy", array)
    first = vo.rows(folder / "X.npy", y=folder / "y.npy", weight=folder / "c.npy")
    second = vo.rows(folder / "X.npy", y=folder / "t.npy")
    return {"X": first.X, "y": first.y, "t": second.y, "c": first.weight}


@pytest.fixture(autouse=True)
def never_at_once(monkeypatch):
    monkeypatch.setattr("varopt.optimize.anywhere._engine._ALL", 0)
    monkeypatch.setattr("varopt.optimize.anywhere._engine._PART", 1 << 18)


w, b = vo.Variable(FEATURES, name="w"), vo.Variable(name="b")
OBJECTIVES = {
    "pinball": lambda X, y, t, c: vo.sum(vo.pinball(y - X @ w - b, 0.3)),
    "extreme level": lambda X, y, t, c: vo.sum(vo.pinball(y - X @ w - b, 0.99)) / ROWS,
    "weights": lambda X, y, t, c: vo.sum(c * vo.pinball(y - X @ w - b, 0.7)) * 3.0,
    "pinball and L1": lambda X, y, t, c: vo.sum(vo.pinball(y - X @ w, 0.3)) + 3000.0 * vo.norm1(w),
    "absolute, scaled rows": lambda X, y, t, c: vo.sum(vo.abs(c * (X @ w) - y)),
    "tube": lambda X, y, t, c: 0.5 * vo.sum_squares(w) + vo.sum(vo.epsilon_insensitive(X @ w + b - y, 0.5)),
    "hinge": lambda X, y, t, c: 0.5 * vo.sum_squares(w) + 0.2 * vo.sum(vo.hinge(t * (X @ w + b))),
    "squared hinge": lambda X, y, t, c: 0.5 * vo.sum_squares(w) + vo.sum(vo.squared_hinge(t * (X @ w + b))),
    "Huber": lambda X, y, t, c: vo.sum(c * vo.huber(y - X @ w - b, 1.3)),
    "lasso": lambda X, y, t, c: vo.sum_squares(y - X @ w - b) + 90_000.0 * vo.norm1(w),
    "elastic net": lambda X, y, t, c: vo.sum_squares(y - X @ w) + 9000.0 * vo.norm1(w) + 100.0 * vo.sum_squares(w),
    "two losses": lambda X, y, t, c: vo.sum(vo.abs(y - X @ w)) + 0.3 * vo.sum(vo.hinge(t * (X @ w))),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_bracket_is_that_of_memory(name, data, stored):
    far, near = vo.minimize(OBJECTIVES[name](**stored)), vo.minimize(OBJECTIVES[name](**data))
    assert far.status is Status.OPTIMAL
    assert near.status is Status.OPTIMAL
    assert far.method == "freezing"
    assert 1 <= far.passes <= 4
    assert far.lower <= near.upper
    assert near.lower <= far.upper
    assert far.gap <= 1e-9 * far.fun
    assert far.fun == pytest.approx(near.fun, rel=1e-11)
    assert far.lower <= far.fun <= far.upper
    exact = sum_of(OBJECTIVES[name](**data), far.x)
    assert exact <= far.upper
    assert far.fun == pytest.approx(exact, rel=1e-12)


def sum_of(objective, x):
    """The objective in extended precision, block by block."""
    total = np.longdouble(0.0)
    points = {v: x[part].astype(np.longdouble) for v, part in objective.slices.items()}
    for block in objective.blocks:
        z = sum(
            (m.dense().astype(np.longdouble) @ points[v] for v, m in block.argument.maps.items()), np.longdouble(0.0)
        )
        z = np.asarray(z + block.argument.offset, dtype=np.longdouble)
        value = polynomial(block.term, 0, z)
        for i, knot in enumerate(block.term.knots):
            value = np.where(z >= knot, polynomial(block.term, i + 1, z), value)
        total += np.sum(block.weights * value)
    return float(total)


def polynomial(term, i, z):
    return sum(np.longdouble(c) * (z - np.longdouble(term.centres[i])) ** k for k, c in enumerate(term.pieces[i]))


def test_a_value_is_summed_in_parts(data, stored):
    point = np.arange(FEATURES + 1.0)
    make = OBJECTIVES["weights"]
    assert make(**stored)(point) == pytest.approx(make(**data)(point), rel=1e-13)


@pytest.mark.parametrize("order", ["sorted", "clustered", "by feature"])
def test_the_order_of_rows_does_no_harm(order, data, tmp_path):
    X, y = data["X"], data["y"]
    by = {"sorted": np.argsort(y), "clustered": np.argsort(np.round(2.0 * y) % 7.0), "by feature": np.argsort(X[:, 1])}
    np.save(tmp_path / "X.npy", X[by[order]])
    np.save(tmp_path / "y.npy", y[by[order]])
    rows = vo.rows(tmp_path / "X.npy", y=tmp_path / "y.npy")
    r = vo.minimize(vo.sum(vo.pinball(rows.y - rows.X @ w, 0.7)))
    assert r.status is Status.OPTIMAL
    assert r.passes <= 4
    assert r.fun == pytest.approx(vo.minimize(vo.sum(vo.pinball(y - X @ w, 0.7))).fun, rel=1e-12)


@pytest.mark.parametrize("kind", ["Cauchy", "integers", "constant on most chunks", "float32"])
def test_awkward_data(kind, data, tmp_path):
    X, y, rng = data["X"].copy(), data["y"].copy(), np.random.default_rng(0)
    if kind == "Cauchy":
        y += rng.standard_cauchy(ROWS)
    elif kind == "integers":
        X, y = np.round(X), np.round(y)
    elif kind == "constant on most chunks":
        X[5000:, 2] = 0.0
    else:
        X, y = X.astype(np.float32), y.astype(np.float32)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    rows = vo.rows(tmp_path / "X.npy", y=tmp_path / "y.npy")
    far = vo.minimize(vo.sum(vo.abs(rows.y - rows.X @ w - b)))
    near = vo.minimize(vo.sum(vo.abs(y.astype(float) - X.astype(float) @ w - b)))
    assert far.status is Status.OPTIMAL
    assert far.lower <= near.upper
    assert near.lower <= far.upper


@pytest.mark.parametrize("kind", ["codes", "twice", "zeros"])
@pytest.mark.parametrize("term", ["abs", "huber", "square"])
def test_columns_that_depend_on_each_other_need_no_assumption(kind, term, data, tmp_path):
    more = {"codes": np.eye(3)[np.arange(ROWS) % 3], "twice": data["X"][:, :1], "zeros": np.zeros((ROWS, 1))}[kind]
    X, y = np.hstack([data["X"], more]), data["y"]
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    rows, v = vo.rows(tmp_path / "X.npy", y=tmp_path / "y.npy"), vo.Variable(X.shape[1])
    loss = {"abs": vo.abs, "huber": vo.huber, "square": vo.square}[term]
    far, near = vo.minimize(vo.sum(loss(rows.y - rows.X @ v - b))), vo.minimize(vo.sum(loss(y - X @ v - b)))
    assert far.method == "freezing"
    assert far.status is Status.OPTIMAL
    assert far.lower <= near.upper
    assert near.lower <= far.upper


def test_a_relation_that_one_row_breaks_is_not_used(data, tmp_path):
    """Two columns are equal but for a row that no sample has: the optimum makes use of it."""
    X, y = np.hstack([data["X"], data["X"][:, :1]]), data["y"].copy()
    row = ROWS - 3
    X[row, -1], y[row] = X[row, 0] + 1.0, 1e6
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    rows, v = vo.rows(tmp_path / "X.npy", y=tmp_path / "y.npy"), vo.Variable(FEATURES + 1)
    far = vo.minimize(vo.sum(vo.abs(rows.y - rows.X @ v)))
    near = vo.minimize(vo.sum(vo.abs(y - X @ v)))
    assert far.lower <= near.upper
    assert near.lower <= far.upper


@pytest.mark.parametrize("seed", [7, 83, 135, 144])
def test_columns_in_very_different_units(seed, tmp_path, monkeypatch):
    """A pilot of few rows misleads: what is worse is left again for the best point, and more rows."""
    rng = np.random.default_rng(seed)
    monkeypatch.setattr("varopt.optimize.anywhere._engine.rows_at_once", lambda problem, options: problem.count // 3)
    n, p = int(rng.integers(100, 400)), int(rng.integers(2, 5))
    X = rng.standard_normal((n, p)) * 10.0 ** rng.integers(-4, 5, p)
    t = np.sign(X @ rng.standard_normal(p) + rng.standard_t(2, n))
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "t.npy", t)
    rows, v = vo.rows(tmp_path / "X.npy", y=tmp_path / "t.npy"), vo.Variable(p)
    far = vo.minimize(0.5 * vo.sum_squares(v) + vo.sum(vo.hinge(rows.y * (rows.X @ v + b))))
    near = vo.minimize(0.5 * vo.sum_squares(v) + vo.sum(vo.hinge(t * (X @ v + b))))
    assert far.method == "freezing"
    assert far.status is Status.OPTIMAL
    assert far.fun == pytest.approx(near.fun, rel=1e-8)


def test_a_wrong_pilot_costs_passes_and_no_truth(data, stored, monkeypatch):
    """A band of no width keeps no row: lines of the wrong side are still below the rows."""
    from varopt.optimize.anywhere import _engine  # its limits are changed

    honest = _engine.band_of
    monkeypatch.setattr(_engine, "band_of", lambda *args: honest(*args).narrowed(0.05))
    far = vo.minimize(OBJECTIVES["pinball"](**stored))
    near = vo.minimize(OBJECTIVES["pinball"](**data))
    assert far.passes > 2
    assert far.status is Status.OPTIMAL
    assert np.all(far.history["lower"] <= near.upper)
    assert np.all(far.history["upper"] >= near.lower)


def test_memory_is_kept_to(data, stored):
    r = vo.minimize(OBJECTIVES["pinball"](**stored), memory="8MB")
    assert r.status is Status.OPTIMAL
    with pytest.raises(ValueError, match="memory must be at least"):
        vo.minimize(OBJECTIVES["pinball"](**stored), memory=1000)
    with pytest.raises(ValueError, match="memory must be a number of bytes"):
        vo.minimize(OBJECTIVES["pinball"](**stored), memory="lots")


def test_memory_is_kept_to_while_many_rows_are_kept(tmp_path):
    """What arrays take at the most, beside the rows near a knot that are as many as there is room for."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.standard_normal((400_000, 16)), rng.standard_t(2, 400_000)])
    np.save(tmp_path / "rows.npy", rows)
    file = np.load(tmp_path / "rows.npy", mmap_mode="r")
    f = vo.sum(vo.pinball(file[:, -1] - file[:, :-1] @ vo.Variable(16, name="w"), 0.7))
    tracemalloc.start()
    r = vo.minimize(f, memory=42_000_000)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert r.status is Status.OPTIMAL
    assert r.passes == 2  # none of them for want of room
    assert most <= 0.8 * 42_000_000  # a fifth is for what is not an array


def test_a_time_limit_and_an_interrupt_leave_a_bracket(stored):
    f = OBJECTIVES["pinball"](**stored)
    optimum = vo.minimize(f).fun
    r = vo.minimize(f, time_limit=1e-9)
    assert r.status is Status.TIME_LIMIT
    assert r.lower <= optimum <= r.upper

    def stop(state):
        if np.isfinite(state.upper):
            raise KeyboardInterrupt

    r = vo.minimize(f, callback=stop)
    assert r.status is Status.INTERRUPTED
    assert r.lower <= optimum <= r.upper < np.inf
    assert r.passes >= 1


def test_progress_shows_passes(stored, capsys):
    vo.minimize(OBJECTIVES["pinball"](**stored), progress=True)
    assert "OPTIMAL" in capsys.readouterr().err


def test_other_methods_refuse_in_a_sentence(stored):
    f = OBJECTIVES["pinball"](**stored)
    with pytest.raises(ValueError, match="'newton' does not take this objective: its rows are on disk"):
        vo.minimize(f, method="newton")
    with pytest.raises(ValueError, match="not summed over rows"):
        vo.minimize(vo.norm2(stored["X"] @ w))
    with pytest.raises(ValueError, match="only convex terms"):
        vo.minimize(vo.sum(vo.ramp(stored["X"] @ w)))
    with pytest.raises(ValueError, match="on disk"):
        vo.bound(f, vo.Gaussian(np.zeros(FEATURES + 1), 1.0)).value  # noqa: B018
    assert "on disk" in repr(stored["X"])


def test_a_memmap_is_data_on_disk(data, tmp_path, monkeypatch):
    monkeypatch.setattr("varopt.places._together.SMALL_MAPPED", 1000)
    whole = np.lib.format.open_memmap(tmp_path / "Xy.npy", "w+", dtype=float, shape=(ROWS * 2, FEATURES + 1))
    whole[:, :-1], whole[:, -1] = np.tile(data["X"], (2, 1)), np.tile(data["y"], 2)
    whole.flush()
    file = np.load(tmp_path / "Xy.npy", mmap_mode="r")
    f = vo.sum(vo.abs(file[:, -1] - file[:, :-1] @ w))
    columns = columns_in([s for block in f.blocks for s in block.stored])
    assert columns
    assert table_of(columns).count == ROWS * 2
    part = next(table_of(columns).parts(columns, 1000))()
    assert np.array_equal(at(next(c for c in columns if c.ndim == 2), part), file[:1000, :-1])
    r = vo.minimize(f)
    assert r.status is Status.OPTIMAL
    assert r.method == "freezing"
    assert r.fun == pytest.approx(2 * vo.minimize(vo.sum(vo.abs(data["y"] - data["X"] @ w))).fun, rel=1e-12)
