"""Models of the function: quadratics, Gaussian processes, what they propose, and that all promises hold for them."""

import math
import time

import mpmath
import numpy as np
import pytest

import varopt as vo
from varopt.search._coding import Coding  # what a process sees of a space
from varopt.search._space import SpaceLayout  # coordinates of a space by themselves
from varopt.search.models import ExpectedImprovement, _handover  # how long a proposal is taken to be
from varopt.search.models._acquisition import log_improvement  # against fifty digits
from varopt.search.models._gaussian_process import GaussianProcess, _posterior, _prior, differences  # derivatives
from varopt.solvers.natural_gradient import QuadraticModel, _quadratic_model, _surrogate
from varopt.solvers.natural_gradient._quadratic_model import HEAVIEST, LatestModel  # one fit after the other

MIXED = vo.Space({"x": vo.Box(0, 1), "rate": vo.Box(1e-4, 1, log=True), "k": vo.Integer(0, 9), "c": list("abc")})


def mixed(p):
    return (p["x"] - 0.3) ** 2 + np.log10(p["rate"] / 0.01) ** 2 / 4 + abs(p["k"] - 4) / 9 + (p["c"] != "b") / 2


def bowl(x):
    return float((np.array([1.0, 3.0, 10.0]) * (x - np.array([1.0, -2.0, 0.5])) ** 2).sum())


@pytest.mark.parametrize(("kind", "count"), [("linear", 6), ("diagonal", 12), ("full", 17)])
def test_a_quadratic_is_recognised(kind, count, rng):
    root = {"linear": np.zeros((4, 4)), "diagonal": np.diag([1.0, 2.0, 3.0, 4.0])}.get(kind, rng.normal(size=(4, 4)))
    hessian, gradient = root @ root.T, rng.normal(size=4)
    points = rng.random((count, 4))
    values = 3.0 + points @ gradient + 0.5 * np.einsum("ij,jk,ik->i", points, hessian, points)
    model = QuadraticModel.fit(points, values)
    assert model.kind == kind
    others = rng.random((10, 4))
    truth = 3.0 + others @ gradient + 0.5 * np.einsum("ij,jk,ik->i", others, hessian, others)
    np.testing.assert_allclose(model(others), truth, rtol=1e-9, atol=1e-9)
    scale = rng.normal(size=(4, 4))
    sampled = model(others[0] + rng.standard_normal((200_000, 4)) @ scale.T)
    error = sampled.std() / math.sqrt(sampled.size)
    assert abs(model.average(others[0], scale @ scale.T) - sampled.mean()) < 4 * error


def test_the_model_is_minimised_within_its_region(rng):
    for _ in range(20):
        points = rng.random((30, 3))
        model = QuadraticModel.fit(points, rng.normal(size=30))  # of any curvature
        mean, root = rng.random(3), 0.3 * rng.normal(size=(3, 3))
        best = model.minimum(mean, root, 1.5)
        assert np.linalg.norm(np.linalg.solve(root, best - mean)) <= 1.5 + 1e-9
        z = rng.normal(size=(2000, 3))
        z *= 1.5 * rng.random((2000, 1)) ** (1 / 3) / np.linalg.norm(z, axis=1, keepdims=True)
        assert model(best[None])[0] <= model(mean + z @ root.T).min() + 1e-9


def test_what_is_at_a_bound_uses_up_no_radius(rng):
    """A linear model in the box and a ball: x = clip(mean - g / l) for the l at which the step is as long as that."""
    for _ in range(20):
        slope, mean = 10.0 ** rng.uniform(-1, 1, 6) * rng.choice((-1, 1), 6), rng.choice((0.0, 0.3, 0.9), 6)
        points = rng.random((20, 6))
        model = QuadraticModel.fit(points, points @ slope, richest="linear")
        low, high = 1e-3, 1e3
        for _ in range(100):
            middle = math.sqrt(low * high)
            exact = np.clip(mean - slope / middle, 0.0, 1.0)
            low, high = (low, middle) if np.linalg.norm(exact - mean) < 0.8 else (middle, high)
        found = model.minimum_in_box(mean, 0.4 * np.eye(6), 2.0)
        np.testing.assert_allclose(found, exact, atol=1e-9)


def test_models_of_any_kind_stay_in_the_box_and_the_region(rng):
    for _ in range(50):
        points, root = rng.random((30, 3)), np.tril(rng.normal(size=(3, 3))) + np.eye(3)
        model, mean = QuadraticModel.fit(points, rng.normal(size=30)), rng.random(3)
        best = model.minimum_in_box(mean, root, 0.3)
        assert best.min() >= 0.0
        assert best.max() <= 1.0
        clipped = np.clip(model.minimum(mean, root, 0.3), 0.0, 1.0)
        lengths = [np.linalg.norm(np.linalg.solve(root, x - mean)) for x in (best, clipped)]
        assert lengths[0] <= max(0.3 + 1e-9, lengths[1])


def test_a_slope_is_followed_into_its_corner():
    """Some coordinates a hundred times as steep as others; 400 to 1,900 evaluations where these took up the step."""
    for d, seed in ((20, 0), (20, 1), (40, 0)):
        slope = 10.0 ** np.linspace(-1, 1, d) * np.random.default_rng(seed).choice((-1, 1), d)
        lowest = -5.0 * np.abs(slope).sum()
        r = vo.minimize(lambda x, s=slope: float(x @ s), vo.Box(-5, 5, size=d), seed=seed, target=lowest + 1e-9)
        assert r.nfev <= 5 * d
        np.testing.assert_array_equal(r.x, -5.0 * np.sign(slope))


def test_smooth_functions_take_few_evaluations():
    """What `cma` takes more than a thousand for."""

    def ellipsoid(x):
        return float((10.0 ** np.linspace(0, 6, 5) * (x - 0.7) ** 2).sum())

    for f, most in ((lambda x: float(((x - 1) ** 2).sum()), 30), (ellipsoid, 300)):
        r = vo.minimize(f, vo.Box(-5, 5, size=5), seed=0, target=1e-8)
        assert r.method == "lq"
        assert r.nfev <= most


def test_a_model_that_is_of_no_use_is_given_a_rest():
    """Of noise alone; in few dimensions it agrees by chance now and then, so that seeds differ."""
    paused = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        search = vo.Search(vo.Box(-5, 5, size=3), seed=seed, method="lq")
        while search.evaluations < 400:
            xs = search.ask()
            search.tell(xs, rng.random(len(xs)))
            paused += bool(search._model.current._paused)
    assert paused >= 6 * 5


def test_a_large_model_waits_for_some_new_values(monkeypatch, rng):
    """With a fit for every value a search in forty dimensions would take a tenth of a second for each."""
    fits = []
    fit = LatestModel.fit
    monkeypatch.setattr(LatestModel, "fit", lambda *data: fits.append(len(data[1])) or fit(*data))
    monkeypatch.setattr(_surrogate, "FRESH", 4)  # so that 21 unknowns are large

    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]

    def ellipsoid(x):
        return float((10.0 ** np.linspace(0, 4, 5) * (turn @ (x - 0.7)) ** 2).sum())

    r = vo.minimize(ellipsoid, vo.Box(-5, 5, size=5), seed=0, target=1e-8, budget=1000)
    assert r.fun <= 1e-8
    assert len(fits) < r.nfev / 3


def test_a_large_model_keeps_most_of_its_equations(monkeypatch, rng):
    """Weighted least squares by NumPy, with the weights that what stays had when it was factored."""
    d, window = 22, 330  # 276 unknowns
    points, turn = rng.normal(size=(500, d)), rng.normal(size=(d, d))
    values = ((points @ turn) ** 2).sum(axis=1) + 30.0 * rng.normal(size=500)
    others, above = rng.normal(size=(10, d)), np.triu_indices(d, 1)
    full = []
    factor = np.linalg.qr
    monkeypatch.setattr(_quadratic_model, "_triangle", lambda a: full.append(len(a)) or factor(a, mode="r"))

    def columns(x):
        return np.column_stack([np.ones(len(x)), x, x * x, x[:, above[0]] * x[:, above[1]]])

    def weights(of):
        return np.linspace(HEAVIEST, 1.0, len(of))[np.argsort(np.argsort(of))]

    latest, told, kept = LatestModel("full"), 0, 0
    for told in (304, 320, 340, 345, 356, 358, 390, 500):  # the window grows, then moves; 17 rows until the next
        first = max(0, told - window)
        model = latest.fit(points[first:told], values[first:told], told)
        weight = weights(values[first:told])
        if told - kept > 17:
            kept, stay = told, dict(zip(range(first + 17, told), weight[17:], strict=True))
        weight = np.array([stay.get(i, w) for i, w in zip(range(first, told), weight, strict=True)])
        root = np.sqrt(weight)[:, None]
        found = np.linalg.lstsq(root * columns(points[first:told]), root[:, 0] * values[first:told], rcond=None)[0]
        np.testing.assert_allclose(model(others), columns(others) @ found, rtol=1e-8, atol=1e-8 * np.abs(values).max())
    assert full == [287, 313, 313, 313, 313]


def test_a_large_model_of_data_in_a_plane_is_the_shortest(rng):
    points = rng.normal(size=(330, 22))
    points[:, 21] = points[:, 20]
    values = (points**2).sum(axis=1)
    model, whole = LatestModel("full").fit(points, values, 330), QuadraticModel.fit(points, values)
    np.testing.assert_allclose(model(points), values, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(model.hessian, whole.hessian)


def test_derivatives_of_the_process(rng):
    points, discrete = rng.random((25, 4)), np.array([False, False, False, True])
    points[:, 3] = rng.integers(0, 3, 25)
    values = np.sin(3 * points[:, 0]) + points[:, 1] ** 2 + 0.3 * points[:, 3]
    values = (values - values.mean()) / values.std()
    parameters = _prior(4)[0] + 0.3 * rng.normal(size=5)
    squares = differences(points, points, discrete)
    steps = 1e-5 * np.eye(5)
    numeric = [(_posterior(parameters + h, squares, values)[0] - _posterior(parameters - h, squares, values)[0]) / 2e-5
               for h in steps]  # fmt: skip
    np.testing.assert_allclose(_posterior(parameters, squares, values)[1], numeric, rtol=1e-4, atol=1e-6)
    process = GaussianProcess.fit(points, values, discrete)
    at = np.array([0.4, 0.6, 0.2, 1.0])
    mean, deviation, by_mean, by_deviation = process.gradient(at)
    for moved, slope in ((0, by_mean), (1, by_deviation)):
        numeric = [(process.predict((at + h)[None])[moved] - process.predict((at - h)[None])[moved])[0] / 2e-5
                   for h in 1e-5 * np.eye(4)[:3]]  # fmt: skip
        np.testing.assert_allclose(slope[:3], numeric, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose([mean, deviation], [v[0] for v in process.predict(at[None])])
    direct = np.linalg.inv(process.factor @ process.factor.T) @ values  # the textbook's formula
    np.testing.assert_allclose(process.weights, direct, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("z", [-300.0, -40.0, -5.0001, -4.9999, -1.0, 0.0, 3.0])
def test_logarithm_of_the_improvement(z):
    with mpmath.workdps(50):
        exact = mpmath.log(mpmath.npdf(z) + z * mpmath.ncdf(z))
        slope = mpmath.ncdf(z) / mpmath.exp(exact)
    log, derivative = log_improvement(np.array([z]))
    assert log[0] == pytest.approx(float(exact), rel=1e-9)
    assert derivative[0] == pytest.approx(float(slope), rel=1e-6)


def test_small_budgets_use_a_process_and_beat_chance():
    r = vo.minimize(mixed, MIXED, budget=40, seed=0)
    assert r.method == "process > cma"
    assert (r.x["k"], r.x["c"]) == (4, "b")
    assert r.fun < 0.02
    rng = np.random.default_rng(0)
    layout = SpaceLayout(MIXED)
    chance = ExpectedImprovement(layout, Coding(layout))._spread(rng, 40)
    assert r.fun < min(mixed(layout.point(row)) for row in Coding(layout).rows(chance))
    assert vo.minimize(mixed, MIXED, budget=5000, target=10.0, seed=0).method == "cma"  # many, and so cheap
    assert vo.minimize(bowl, vo.Box(-5, 5, size=3), budget=40, seed=0).fun < 1e-2


@pytest.mark.parametrize(("f", "space"), [(mixed, MIXED), (bowl, vo.Box(-5, 5, size=3))])
def test_small_budgets_begin_alike(f, space):
    """Which of them was given shows in nothing but the end: the benchmark counts on it."""
    points = [
        [record.row.tobytes() for record in vo.minimize(f, space, budget=b, seed=1).search.records] for b in (20, 80)
    ]
    assert points[1][:20] == points[0]


@pytest.mark.parametrize(("seconds", "modelled"), [(0.06, True), (0.0, False)])
def test_where_only_seconds_are_given_a_process_takes_a_tenth_of_them(seconds, modelled, tmp_path, monkeypatch):
    """By how long evaluations take, which the journal keeps: who goes on from it goes on with the same points."""
    monkeypatch.setattr(_handover, "PROPOSAL", 0.005)

    def timed(x):
        time.sleep(seconds)
        return bowl(x)

    r = vo.minimize(timed, vo.Box(-5, 5, size=3), time_limit=1.0, seed=0, journal=tmp_path / "run.db")
    assert r.search._model.begun is not modelled
    with vo.Search.load(tmp_path / "run.db", read_only=True) as again:
        assert again._model.begun is not modelled
        for name in ("evaluations", "best", "sigma"):  # the last point drawn may not have been told in time
            np.testing.assert_array_equal(again.history[name], r.search.history[name])
    with pytest.raises(ValueError, match="time_limit must be a number of seconds"):
        vo.Search(vo.Box(0, 1), time_limit=0)


@pytest.mark.parametrize("d", [1, 2, 20])
def test_the_first_points_are_around_the_middle(d):
    """Of two points, the one nearer to the middle is on average nearer to an optimum that may be anywhere."""
    layout = SpaceLayout(vo.Box(-5, 5, size=d))
    points = ExpectedImprovement(layout, Coding(layout)).sample(np.random.default_rng(0), 4)
    assert points[0] == pytest.approx(np.full(d, 0.5), abs=0.01)
    optima = np.random.default_rng(1).random((2000, d))
    chance = np.random.default_rng(2).random((2000, 4, d))
    ours, theirs = (
        np.linalg.norm(p - optima[:, None], axis=2).min(axis=1).mean() for p in (np.tile(points, (2000, 1, 1)), chance)
    )
    assert ours < theirs
    grid = SpaceLayout(vo.Integer(0, 2))
    few = ExpectedImprovement(grid, Coding(grid)).sample(np.random.default_rng(0), 3)
    assert len(np.unique(few, axis=0)) >= 2


def test_what_fails_is_avoided_and_nothing_is_proposed_twice():
    def f(p):
        if p["c"] == "a":
            raise ValueError("injected")
        return mixed(p)

    r = vo.minimize(f, MIXED, budget=35, seed=1)
    failed = [record.error is not None for record in r.search.records]
    assert sum(failed[10:]) < 25 / 4  # by chance a third
    grid = vo.minimize(lambda k: (k - 3) ** 2, vo.Integer(0, 5), budget=6, seed=0)
    assert sorted(record.row[0] for record in grid.search.records) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("space", [vo.Box(-5, 5, size=3), MIXED], ids=["reals", "mixed"])
@pytest.mark.parametrize("options", [{}, {"batch": 3}, {"asynchronous": True}, {"noisy": True}], ids=str)
def test_resumed_runs_are_the_uninterrupted_ones(space, options, tmp_path):
    f = mixed if space is MIXED else bowl
    length = {"budget": 14, "seed": 3, **options}
    whole = vo.Search(space, **length)
    broken = vo.Search(space, journal=tmp_path / "a.db", **length)
    for search, until in ((whole, 20), (broken, 11)):
        while search.evaluations < until:
            xs = search.ask(1 if "asynchronous" in options else None)
            search.tell(xs, [f(x) for x in xs])
    broken.close()
    with vo.Search.load(tmp_path / "a.db") as resumed:
        while resumed.evaluations < 20:
            xs = resumed.ask(1 if "asynchronous" in options else None)
            resumed.tell(xs, [f(x) for x in xs])
        assert [r.row.tobytes() for r in resumed.records] == [r.row.tobytes() for r in whole.records]


def test_points_under_way_are_believed_and_not_asked_for_again():
    search = vo.Search(MIXED, budget=40, seed=0, asynchronous=True)
    for _ in range(12):
        (x,) = search.ask(1)
        search.tell([x], [mixed(x)])
    flying = search.ask(5)
    rows = {tuple(map(str, point.values())) for point in flying}
    assert len(rows) == 5


def test_a_process_refuses_what_it_cannot_model():
    with pytest.raises(ValueError, match="method 'process' is for numbers, booleans and choices"):
        vo.Search(vo.Permutation(4), method="process")
    with pytest.raises(ValueError, match="method 'lq' is for reals"):
        vo.Search(MIXED, method="lq")


# Separability ---------------------------------------------------------------------------------------------------------


def course(f, d, budget=3000):
    """The update of many reals after some evaluations."""
    search = vo.Search(vo.Box(-5, 5, size=d), seed=0, method="separable")
    while search.evaluations < budget:
        xs = search.ask()
        search.tell(xs, f(xs))
    return search, search._model.current


def test_separability_is_noticed_in_the_run(rng):
    d = 60
    scales = 10.0 ** (4.0 * np.arange(d) / (d - 1))
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    functions = {
        "sphere": lambda x: (x * x).sum(axis=1),
        "increasing": lambda x: np.exp(0.01 * (scales * x * x).sum(axis=1) ** 0.25),
        "many optima": lambda x: (x * x - 10.0 * np.cos(6.0 * x)).sum(axis=1),
        "rotated": lambda x: (scales * (x @ turn) ** 2).sum(axis=1),
        "chain": lambda x: (100.0 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1.0 - x[:, :-1]) ** 2).sum(axis=1),
    }
    found = {name: course(f, d, 1500)[1] for name, f in functions.items()}
    assert {name: update.separable for name, update in found.items()} == {
        "sphere": True, "increasing": True, "many optima": True, "rotated": False, "chain": False,
    }  # fmt: skip
    assert all(update.contradictions == 0 for update in found.values() if update.separable)
    assert found["sphere"].tests >= 24


def test_a_diagonal_needs_fewer_evaluations_where_it_will_do():
    d, scales = 210, 10.0 ** (4.0 * np.arange(210) / 209)
    best = {}
    for method in ("auto", "low-rank"):
        search = vo.Search(vo.Box(-5, 5, size=d), seed=0, method=method)
        while search.evaluations < 12_000:
            xs = search.ask()
            search.tell(xs, (scales * (xs - 1.0) ** 2).sum(axis=1))
        best[method] = search.best.fun
    assert search.method == "low-rank"
    assert best["auto"] < 0.4 * best["low-rank"]
