"""Constraints known and measured, several objectives, and evaluations that are stopped early."""

import itertools
import math
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import varopt as vo
from varopt import Status
from varopt.search import Halving, hypervolume
from varopt.search.goals import Rungs
from varopt.search.goals._hypervolume import improvement, nondominated  # against volumes counted by hand

MIXED = vo.Space({"x": vo.Box(-5, 5, size=2), "k": vo.Integer(0, 9), "c": ["a", "b"]})


# Constraints known in advance ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_bool", [False, True])
@pytest.mark.parametrize("d", [2, 6])
def test_an_optimum_where_a_rule_begins_is_reached(d, as_bool):
    """min |x - 2|^2 with sum x <= 1: (1 / d - 2)^2 d by Lagrange."""
    asked = []

    def f(x):
        asked.append(x.sum())
        return float(((x - 2.0) ** 2).sum())

    rule = (lambda x: bool(x.sum() <= 1.0)) if as_bool else (lambda x: x.sum() - 1.0)
    r = vo.minimize(f, vo.Box(-5, 5, size=d), subject_to=rule, budget=400 * d, seed=0)
    assert r.fun - (1 / d - 2) ** 2 * d == pytest.approx(0.0, abs=1e-7)
    assert max(asked) <= 1.0  # nothing else is ever evaluated


@pytest.mark.parametrize(
    "options", [{"budget": 40}, {"method": "cma", "budget": 300}, {"method": "xnes", "budget": 100}]
)
def test_rules_of_mixed_spaces_hold_for_every_point(options):
    def allowed(p):
        return p["x"].sum() <= p["k"] - 4 and (p["c"] == "a" or p["k"] < 3)

    r = vo.minimize(
        lambda p: float(((p["x"] - 1) ** 2).sum()) + abs(p["k"] - 7) + (p["c"] == "a"), MIXED,
        subject_to=allowed, seed=1, **options,
    )  # fmt: skip
    assert all(allowed(r.search._layout.point(record.row)) for record in r.search.records)
    assert r.x["c"] == "a"  # 7 is worth more than b


def test_discrete_searches_obey_rules_too():
    r = vo.minimize(lambda x: -int(x.sum()), vo.Boolean(12), subject_to=lambda x: int(x.sum()) - 5, budget=600, seed=0)
    assert r.fun == -5
    assert all(record.row.sum() <= 5 for record in r.search.records)


def test_a_tiny_allowed_set_is_found_and_an_empty_one_is_said():
    r = vo.minimize(
        lambda x: x[0], vo.Box(-5, 5, size=4), subject_to=lambda x: (x**2).sum() - 1e-4, budget=1500, seed=0
    )
    assert r.fun == pytest.approx(-0.01, rel=1e-6)
    with pytest.raises(ValueError, match="subject_to allows none of"):
        vo.minimize(lambda x: x[0], vo.Box(-5, 5, size=2), subject_to=lambda x: 1.0 + x @ x, budget=10, seed=0)


def test_rules_with_a_journal(tmp_path):
    options = {"subject_to": [lambda x: x.sum() - 1.0, lambda x: x[0] > -4], "seed": 3, "method": "cma"}

    def f(x):
        return float(((x - 2.0) ** 2).sum())

    whole = vo.minimize(f, vo.Box(-5, 5, size=3), budget=80, **options)
    for budget in (20, 80):
        r = vo.minimize(f, vo.Box(-5, 5, size=3), budget=budget, journal=tmp_path / "a.db", **options)
    assert [a.row.tobytes() for a in r.search.records] == [a.row.tobytes() for a in whole.search.records]
    with pytest.raises(ValueError, match=r"subject_to must be given: the search in .*a\.db was begun with 2"):
        vo.Search.load(tmp_path / "a.db")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subject_to": 3}, "subject_to of a black box must be a function"),
        ({"subject_to": []}, "subject_to of a black box must be a function"),
        ({"subject_to": lambda x: None}, r"subject_to\[0\] must give true, false or a number; at .* no value"),
        ({"subject_to": lambda x: math.nan}, r"subject_to\[0\] must give true, false or a number; at .* is nan"),
        ({"subject_to": lambda x: x[0] < 0, "x0": [1.0, 1.0]}, r"x0\[0\] must satisfy subject_to"),
        ({"subject_to": lambda x: True, "method": "lq"}, "method 'lq' is for one objective without constraints"),
        ({"constraints": -1}, "constraints must be a whole number >= 0"),
        ({"constraints": lambda x: x[0]}, "give functions of the point, which are known in advance, as subject_to"),
        ({"constraints": [lambda x: x[0]]}, "give functions of the point, which are known in advance, as subject_to"),
        ({"objectives": 0}, "objectives must be a whole number >= 1"),
        ({"objectives": 2, "maximize": [True]}, "maximize must say it for each of 2"),
        ({"objectives": 2, "noisy": True}, "noisy and stop_early are for one objective"),
        ({"constraints": 1, "stop_early": True}, "noisy and stop_early are for one objective"),
        ({"objectives": 2, "target": 1.0}, "target is for one objective"),
        ({"stop_early": 3}, "stop_early must be True, False or a varopt.search.Halving"),
        ({"stop_early": True, "vectorized": True}, "stop_early needs one evaluation at a time"),
    ],
)
def test_bad_goals_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        vo.minimize(lambda x: 0.0, vo.Box(-5, 5, size=2), **{"budget": 10, "seed": 0, **options})


# Constraints that are measured ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("budget", "close"), [(45, 1e-2), (1500, 1e-6)])
def test_measured_constraints_are_met_at_the_optimum(budget, close):
    """min |x|^2 with x1 + x2 >= 1: 1/2 at (1/2, 1/2)."""
    r = vo.minimize(
        lambda x: (float(x @ x), 1.0 - x[0] - x[1]), vo.Box(-5, 5, size=2), constraints=1, budget=budget, seed=0
    )
    assert 0.5 <= r.fun < 0.5 + close
    assert (r.violation, r.status) == (0.0, Status.BUDGET)
    assert r.x.sum() >= 1.0


def test_several_constraints_in_their_own_units():
    """A corner of three constraints, one of them not active, in units of 1e6 and 1e-6."""
    r = vo.minimize(
        lambda x: [float(x.sum()), [1e6 * (1.0 - x[0]), 1e-6 * (2.0 - x[1])], x[2] - 4.0, -3.0 - x[2]],
        vo.Box(-5, 5, size=3), constraints=4, budget=3000, seed=0,
    )  # fmt: skip
    assert r.x == pytest.approx([1.0, 2.0, -3.0], abs=1e-4)
    assert r.violation == 0.0


def test_maximising_and_mixed_parts():
    r = vo.maximize(
        lambda p: (p["k"] - float(p["x"] @ p["x"]), p["k"] - 6.5 + (p["c"] == "b")), MIXED, constraints=1,
        budget=900, seed=0,
    )  # fmt: skip
    assert (r.x["k"], r.x["c"]) == (6, "a")
    assert r.fun == pytest.approx(6.0, abs=1e-3)


def test_what_cannot_be_satisfied_is_said():
    r = vo.minimize(lambda x: (x[0], 1.0 + x @ x), vo.Box(-5, 5, size=2), constraints=1, budget=600, seed=0)
    assert r.status is Status.NOT_FOUND
    assert r.violation == pytest.approx(1.0, abs=1e-3)
    assert not r.success
    assert r.upper == math.inf
    assert "broken" in repr(r)


def test_numbers_that_are_missing_are_failures():
    values = itertools.cycle([1.0, (1.0, 2.0, 3.0), (1.0, math.nan), "ab", None, (1.0, "x")])
    r = vo.minimize(lambda x: next(values), vo.Box(0, 1), constraints=1, budget=12, seed=0)
    assert r.status is Status.NO_VALUE
    assert {record.error for record in r.search.records} == {
        "the function must give 2 numbers; got 1", "the function must give 2 numbers; got 3",
        "number 1: the value is nan", "no value", "number 1: the value must be one real number; got a str",
    }  # fmt: skip


def test_ask_and_tell_with_constraints_and_a_journal(tmp_path):
    def values(xs):
        return np.stack([(xs**2).sum(axis=1), 1.0 - xs.sum(axis=1)], axis=1)

    searches = [vo.Search(vo.Box(-5, 5, size=2), constraints=1, seed=1, journal=tmp_path / "a.db")]
    for _ in range(10):
        xs = searches[0].ask()
        searches[0].tell(xs, values(xs))
    searches[0].close()
    searches.append(vo.Search.load(tmp_path / "a.db"))
    first, second = searches
    np.testing.assert_array_equal(first.ask(), second.ask())
    assert second.best.violation == first.best.violation
    assert [r.others for r in second.records] == [r.others for r in first.records]
    with pytest.raises(ValueError, match="one value for each"):
        second.tell(second.ask(2), [1.0])
    second.close()


# Several objectives --------------------------------------------------------------------------------------------------

POINTS = hnp.arrays(float, st.tuples(st.integers(1, 8), st.integers(1, 4)), elements=st.integers(0, 6).map(float))


@settings(max_examples=60, deadline=None)
@given(POINTS)
def test_volumes_against_counted_cells(points):
    cells = np.stack(np.meshgrid(*[np.arange(7) + 0.5] * points.shape[1], indexing="ij"), -1).reshape(
        -1, points.shape[1]
    )
    corner = np.full(points.shape[1], 7.0)

    def counted(some):
        return int((cells[:, None, :] > some[None]).all(axis=2).any(axis=1).sum())

    assert hypervolume(points, corner) == pytest.approx(counted(points))
    keep = nondominated(points)
    assert {tuple(p) for p in points[keep]} == {
        tuple(p) for p in points if not any((q <= p).all() and (q < p).any() for q in points)
    }
    assert len(np.unique(points[keep], axis=0)) == keep.sum()
    others = points[1:]
    gain = improvement(points[0], others[nondominated(others)] if len(others) else others, corner)
    more = counted(points) - (counted(others) if len(others) else 0)
    assert gain == pytest.approx(more) if more else gain <= 0.0


def two_spheres(x):
    """The front is the segment between both middles: sqrt(f1) + sqrt(f2) = their distance, 2 sqrt(3)."""
    return float(((x - 1.0) ** 2).sum()), float(((x + 1.0) ** 2).sum())


@pytest.mark.parametrize(("budget", "share"), [(60, 0.9), (1500, 0.985)])
def test_a_front_comes_close_to_the_known_one(budget, share):
    r = vo.minimize(two_spheres, vo.Box(-5, 5, size=3), objectives=2, budget=budget, seed=0)
    t = np.linspace(0, 1, 2000)[:, None]
    exact = hypervolume(np.hstack((12 * t**2, 12 * (1 - t) ** 2)), [13, 13])
    assert exact * share < r.front.hypervolume([13, 13]) <= exact * (1 + 1e-9)
    assert nondominated(r.front.fun).all()
    for x, fun in zip(r.front.x, r.front.fun, strict=True):
        assert tuple(fun) == two_spheres(x)
    assert tuple(r.fun) == two_spheres(r.x)
    assert f"{len(r.front)} points on the front" in repr(r)


def test_fronts_of_mixed_discrete_and_maximised_objectives():
    r = vo.minimize(
        lambda p: (float(p["x"] @ p["x"]) + p["k"], p["k"] + (p["c"] == "b")), MIXED, objectives=2,
        maximize=[False, True], budget=800, seed=0,
    )  # fmt: skip
    assert {point["k"] for point in r.front.x if point["c"] == "b"} == set(range(10))
    bits = vo.minimize(lambda x: (int(x[:6].sum()), int((~x).sum())), vo.Boolean(12), objectives=2, budget=600, seed=0)
    assert bits.front.fun.tolist() == [[k, 6 - k] for k in range(7)]
    orders = vo.minimize(lambda p: (abs(p[0] - 4), p[1]), vo.Permutation(5), objectives=2, budget=300, seed=0)
    assert orders.front.fun.tolist() == [[0, 0]]


def test_three_objectives_constraints_and_rules_together():
    r = vo.minimize(
        lambda x: (x[0], x[1], -x[0] - x[1], 0.5 - x[0]), vo.Box(0, 1, size=2), objectives=3, constraints=1,
        subject_to=lambda x: x.sum() <= 1.2, budget=300, seed=0, method="cma",
    )  # fmt: skip
    assert (r.front.x[:, 0] >= 0.5).all()
    assert (r.front.x.sum(axis=1) <= 1.2).all()
    assert len(r.front) > 30


def test_a_front_goes_on_from_its_journal_bit_for_bit(tmp_path):
    whole = vo.minimize(two_spheres, vo.Box(-5, 5, size=3), objectives=2, budget=200, seed=5, method="cma")
    for budget in (70, 200):
        r = vo.minimize(
            two_spheres, vo.Box(-5, 5, size=3), objectives=2, budget=budget, seed=5, method="cma",
            journal=tmp_path / "a.db",
        )  # fmt: skip
    assert r.front.fun.tobytes() == whole.front.fun.tobytes()
    with ThreadPoolExecutor(3) as pool:
        spread = vo.minimize(
            two_spheres, vo.Box(-5, 5, size=3), objectives=2, budget=200, seed=5, method="cma", executor=pool
        )
    assert spread.front.fun.tobytes() == whole.front.fun.tobytes()


def test_asynchronous_fronts():
    with ThreadPoolExecutor(3) as pool:
        r = vo.minimize(
            two_spheres, vo.Box(-5, 5, size=3), objectives=2, budget=600, seed=5, method="cma", executor=pool,
            asynchronous=True,
        )  # fmt: skip
    assert r.front.hypervolume([13, 13]) > 130


# Early stopping ------------------------------------------------------------------------------------------------------


def training(x):
    """A loss that falls to |x|^2 in 27 epochs, and shows from the first on where it goes."""
    final = float(x @ x)
    for epoch in range(1, 28):
        yield final + (1.0 + final) / epoch


def test_bad_evaluations_are_stopped_and_the_best_is_one_that_finished():
    full = vo.minimize(training, vo.Box(-5, 5, size=2), budget=60, seed=0, method="cma")
    r = vo.minimize(training, vo.Box(-5, 5, size=2), budget=60, seed=0, method="cma", stop_early=True)
    steps = np.array([len(record.reports) for record in r.search.records])
    assert set(steps) <= {1, 3, 9, 27}
    assert all((len(record.reports) < 27) == record.stopped for record in r.search.records)
    assert steps.sum() < 0.5 * 27 * 60
    assert all(len(record.reports) == 27 for record in full.search.records)
    assert r.fun < 10 * full.fun + 0.1
    assert r.fun == min(record.value for record in r.search.records if not record.stopped)


def test_rungs_against_their_definition():
    rng = np.random.default_rng(0)
    rungs, seen = Rungs(Halving(first=2, factor=4)), []
    for _ in range(40):
        reports = rng.normal(size=rng.integers(0, 40) if seen else 40).tolist()
        for step, limit in rungs.limits().items():
            values = [r[step - 1] for r in seen if len(r) >= step]
            assert step in (2, 8, 32)
            # whoever is at the limit is, with the new one counted, among the best fourth
            assert sum(v <= limit for v in values) == max(1, (len(values) + 1) // 4)
        rungs.see(reports, finished=True)
        seen.append(reports)
    assert set(rungs.limits()) == {2, 8, 32}


def slow_training(x):
    for value in itertools.islice(training(x), 9):
        time.sleep(0.001)
        yield value


def test_who_stops_does_not_depend_on_the_workers_and_survives_the_journal(tmp_path):
    options = {"budget": 48, "seed": 0, "method": "cma", "stop_early": True}
    box = vo.Box(-5, 5, size=2)
    alone = vo.minimize(slow_training, box, **options)
    with ThreadPoolExecutor(3) as pool:
        threads = vo.minimize(slow_training, box, executor=pool, **options)
    processes = vo.minimize(slow_training, box, executor=2, **options)
    vo.minimize(slow_training, box, journal=tmp_path / "a.db", **{**options, "budget": 20})
    resumed = vo.minimize(slow_training, box, journal=tmp_path / "a.db", **options)

    def course(r):
        return sorted((x.candidate, x.value, x.reports, x.stopped) for x in r.search.records)

    assert course(alone) == course(threads) == course(processes) == course(resumed)
    assert any(record.stopped for record in alone.search.records)


def test_a_value_on_the_way_never_passes_for_a_result():
    """Values that rise: what stops early looks better than what finishes."""

    def rising(x):
        final = float(x @ x)
        for epoch in range(1, 10):
            yield -1.0 / epoch + (1 + final) * epoch / 9

    r = vo.minimize(rising, vo.Box(-5, 5, size=2), budget=60, seed=0, stop_early=Halving(1, 2), method="cma")
    assert r.fun >= -1.0 / 9 + 1
    assert r.fun == pytest.approx(-1.0 / 9 + 1, abs=0.3)


def test_generators_fail_like_functions_and_close_what_they_opened():
    closed = []

    def failing(x):
        try:
            yield 1.0 + x[0]
            if x[0] > 0.5:
                raise RuntimeError("injected")
            yield math.nan if x[0] < 0.2 else x[0]
            yield x[0]
        finally:
            closed.append(x[0])

    r = vo.minimize(failing, vo.Box(0, 1), budget=40, seed=0, stop_early=True)
    assert len(closed) == 40
    errors = {record.error for record in r.search.records if record.error}
    assert errors <= {"RuntimeError: injected", "the value is nan"}
    assert all(len(record.reports) == 1 for record in r.search.records if record.error)
    empty = vo.minimize(lambda x: (y for y in ()), vo.Box(0, 1), budget=3, seed=0)
    assert set(empty.errors) == {"the function yields nothing"}


def test_ask_and_tell_with_reports():
    search = vo.Search(vo.Box(-5, 5, size=2), seed=0, method="cma", stop_early=True)
    for _ in range(8):
        for x in search.ask():
            reports, stopped = [], False
            for value in training(x):
                reports.append(value)
                if search.stops(len(reports), value):
                    stopped = True
                    break
            search.tell([x], [reports[-1]], reports=[reports], stopped=[stopped])
    assert any(record.stopped for record in search.records)
    assert not next(record for record in search.records if record.value == search.best.fun).stopped
    with pytest.raises(ValueError, match="reports must have one entry"):
        search.tell(search.ask(2), [1.0, 2.0], reports=[[1.0]])
    assert search.stops(1, math.nan)


# Plots ---------------------------------------------------------------------------------------------------------------


def test_every_kind_of_plot(tmp_path):
    pytest.importorskip("matplotlib", reason="the plot extra is not installed").use("Agg")
    import matplotlib.pyplot as plt

    front = vo.minimize(two_spheres, vo.Box(-5, 5, size=3), objectives=2, budget=60, seed=0, method="cma")
    bound = vo.minimize(lambda x: (x @ x, 1 - x.sum()), vo.Box(-5, 5, size=2), constraints=1, budget=60, method="cma")
    early = vo.minimize(training, vo.Box(-5, 5, size=2), budget=30, seed=0, method="cma", stop_early=True)
    tree = vo.Space({"c": ["a", "b"], "x": vo.Box(1e-3, 1, log=True)}, when={"x": {"c": "a"}})
    parts = vo.minimize(lambda p: p.get("x", 2.0), tree, budget=30, seed=0, method="cma")
    for result, kind in ((front, None), (bound, None), (early, None), (parts, "parts"), (parts, "history")):
        axes = result.plot(kind=kind)
        assert all(ax.get_title() for ax in axes)
        axes[0].figure.savefig(tmp_path / "plot.png")
        plt.close(axes[0].figure)
    assert front.plot()[0].get_title() == f"{len(front.front)} points on the front"
    with pytest.raises(ValueError, match="kind must be one of"):
        parts.plot(kind="pie")
    for kind in ("front", "constraints"):
        with pytest.raises(ValueError, match=f"kind '{kind}' is for"):
            parts.plot(kind=kind)
    plt.close("all")
