"""Conditional spaces: points have the parts that exist, and what does not exist changes nothing; starting points."""

import itertools

import numpy as np
import pytest

import varopt as vo
from varopt.search._space import SpaceLayout, space_from_json  # rows and files of spaces

TREE = vo.Space(
    {
        "model": ["svm", "forest"],
        "kernel": ["linear", "rbf", "poly"],
        "gamma": vo.Box(1e-3, 1e3, log=True),
        "degree": vo.Integer(2, 5),
        "trees": vo.Integer(1, 100, log=True),
        "scale": vo.Boolean(),
    },
    when={
        "gamma": {"kernel": ["rbf", "poly"]},
        "kernel": {"model": "svm"},
        "degree": {"kernel": "poly"},
        "trees": {"model": "forest"},
    },
)
DISCRETE = vo.Space(
    {"a": ["x", "y"], "b": vo.Boolean(4), "c": vo.Choice(range(5), size=4), "d": vo.Permutation(4)},
    when={"b": {"a": "x"}, "c": {"a": "y"}},
)


def names(point):
    """What a point should have, said by hand."""
    wanted = {"model", "scale"}
    if point["model"] == "forest":
        return wanted | {"trees"}
    wanted |= {"kernel"}
    if point["kernel"] != "linear":
        wanted |= {"gamma"}
    return wanted | {"degree"} if point["kernel"] == "poly" else wanted


def loss(p):
    """Ten branches, of which a forest of 30 trees is the best, and an RBF kernel with gamma 1 the second."""
    if p["model"] == "forest":
        return abs(np.log(p["trees"] / 30)) + p["scale"]
    known = {"linear": 3.0, "rbf": 0.3, "poly": 1.0}[p["kernel"]]
    return known + abs(np.log10(p.get("gamma", 1.0))) + abs(p.get("degree", 3) - 3) + (not p["scale"])


@pytest.mark.parametrize("method", ["auto", "process", "cma", "xnes"])
def test_points_have_exactly_the_parts_that_exist(method):
    search = vo.Search(TREE, seed=1, method=method)
    for _ in range(4):
        points = search.ask(16)
        assert all(set(point) == names(point) for point in points)
        search.tell(points, [loss(point) for point in points])


@pytest.mark.parametrize(("budget", "close"), [(80, 0.3), (600, 0.05)])
def test_the_best_branch_is_found(budget, close):
    r = vo.minimize(loss, TREE, budget=budget, seed=0)
    assert (r.x["model"], r.x["scale"]) == ("forest", False)
    assert r.fun < close
    assert set(r.x) == {"model", "trees", "scale"}


def test_discrete_trees_waste_no_evaluation_on_what_does_not_exist():
    target = [True, False, True, True]

    def distance(p):
        return (sum(p["b"] != target) if p["a"] == "x" else 5 + sum(p["c"])) + (p["d"] != np.arange(4)).sum()

    r = vo.minimize(distance, DISCRETE, budget=400, seed=0)
    assert r.fun == 0
    rows = np.array([record.row for record in r.search.records])
    repeated = (np.diff(rows, axis=0) == 0).all(axis=1)
    assert repeated.mean() < 0.1


def test_what_does_not_exist_is_the_same_in_every_row():
    layout = SpaceLayout(TREE)
    search = vo.Search(TREE, seed=3, method="cma")
    for _ in range(3):
        points = search.ask(20)
        search.tell(points, [loss(point) for point in points])
    rows = np.array([record.row for record in search.records])
    absent = ~layout.active(rows)
    assert absent.any()
    np.testing.assert_array_equal(rows[absent], np.broadcast_to(layout.middle, rows.shape)[absent])
    for row in rows:
        np.testing.assert_array_equal(layout.row(layout.point(row)), row)


def test_activity_against_every_combination():
    small = vo.Space(
        {"a": vo.Boolean(), "b": vo.Integer(0, 2), "c": ["u", "v"], "d": vo.Boolean()},
        when={"d": {"c": "v", "b": [1, 2]}, "c": {"b": 1}, "b": {"a": True}},
    )
    layout = SpaceLayout(small)
    for a, b, c, d in itertools.product((False, True), range(3), "uv", (False, True)):
        wanted = {"a": a}
        if a:
            wanted["b"] = b
            if b == 1:
                wanted["c"] = c
                if c == "v":  # b is 1
                    wanted["d"] = d
        row = np.array([a, b, "uv".index(c), d], dtype=float)
        assert layout.point(row) == wanted
        np.testing.assert_array_equal(layout.row(wanted), layout.settled(row[None])[0])


def test_journals_keep_conditions_and_resume_bit_for_bit(tmp_path):
    whole = vo.minimize(loss, TREE, budget=60, seed=2, method="cma")
    vo.minimize(loss, TREE, budget=25, seed=2, method="cma", journal=tmp_path / "a.db")
    again = vo.minimize(loss, TREE, budget=60, seed=2, method="cma", journal=tmp_path / "a.db")
    assert [r.row.tobytes() for r in again.search.records] == [r.row.tobytes() for r in whole.search.records]
    assert space_from_json(TREE.describe()) == TREE
    assert vo.Search.load(tmp_path / "a.db", read_only=True).space.when == TREE.when
    plain = vo.Space(TREE.parts)
    with pytest.raises(ValueError, match="space differs"):
        vo.Search.load(tmp_path / "a.db", plain)


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ([], "when must map names"),
        ({"z": {"a": True}}, r"when must name parts of the space, 'a', 'b', 'x'; got 'z'"),
        ({"x": {"z": True}}, r"when must name parts of the space.*got 'z'"),
        ({"x": {}}, r"when\['x'\] must map parts to the values"),
        ({"x": "a"}, r"when\['x'\] must map parts"),
        ({"a": {"x": 1.0}}, r"must depend on a single choice, boolean or integer; 'x' is Box"),
        ({"x": {"b": "c"}}, r"when\['x'\]\['b'\]: x must be one of"),
        ({"x": {"b": []}}, r"at least one value"),
        ({"a": {"b": "u"}, "b": {"a": True}}, r"must not go in a circle; got '[ab]' > '[ab]' > '[ab]'"),
        ({"a": {"a": True}}, "circle"),
    ],
)
def test_bad_conditions_are_refused(when, message):
    with pytest.raises(ValueError, match=message):
        vo.Space({"a": vo.Boolean(), "b": ["u", "v"], "x": vo.Box(0, 1, size=2)}, when=when)


def test_points_of_the_user_are_checked():
    search = vo.Search(TREE, seed=0)
    with pytest.raises(ValueError, match=r"must not have 'trees', which exists only where model is 'forest'"):
        search.tell([{"model": "svm", "kernel": "linear", "scale": True, "trees": 3}], [1.0])
    with pytest.raises(ValueError, match=r"'trees' is missing"):
        search.tell([{"model": "forest", "scale": True}], [1.0])
    search.tell([{"model": "forest", "scale": True, "trees": 3}], [1.0])
    assert search.best.x == {"model": "forest", "scale": True, "trees": 3}


# Where to start ------------------------------------------------------------------------------------------------------


def sphere(x):
    return float(((x - 1) ** 2).sum())


@pytest.mark.parametrize("options", [{"budget": 40}, {"budget": 2000}, {"method": "cma", "budget": 60}])
def test_starting_points_are_evaluated_first_and_nothing_is_worse_than_they(options):
    starts = [[4.0, 4.0], [1.0, 1.1], [-3.0, 0.0]]
    r = vo.minimize(sphere, vo.Box(-5, 5, size=2), x0=starts, seed=0, **options)
    np.testing.assert_array_equal([record.row for record in r.search.records[:3]], starts)
    assert r.fun <= sphere(np.array(starts[1]))
    one = vo.minimize(sphere, vo.Box(-5, 5, size=2), x0=starts[1], seed=0, **options)
    assert one.search.records[0].row.tolist() == starts[1]


def test_the_search_starts_at_the_best_of_them():
    search = vo.Search(vo.Box(-5, 5, size=2), x0=[[4, 4], [1, 1.1], [-3, 0]], sigma=1e-4, method="cma", seed=0)
    xs = search.ask()
    search.tell(xs, [sphere(x) for x in xs])
    np.testing.assert_allclose(search.ask(), np.broadcast_to([1, 1.1], (6, 2)), atol=0.02)


def test_partial_points_have_the_rest_in_the_middle():
    r = vo.minimize(loss, TREE, x0=[{"model": "forest"}, {"kernel": "poly", "gamma": 2.0}], budget=20, seed=0)
    first, second = (r.search._layout.point(record.row) for record in r.search.records[:2])
    assert first == {"model": "forest", "trees": 10, "scale": False}
    assert second == {"model": "svm", "kernel": "poly", "gamma": 2.0, "degree": 3, "scale": False}


def test_discrete_searches_start_there_too():
    goal = np.array([1, 0, 1, 1, 0, 1, 0, 0], dtype=bool)
    r = vo.minimize(lambda x: int((x != goal).sum()), vo.Boolean(8), x0=goal, budget=30, seed=0)
    assert (r.fun, r.search.records[0].value) == (0, 0)


def test_asynchronous_workers_get_points_around_the_start_meanwhile():
    search = vo.Search(vo.Box(-5, 5, size=2), x0=[3, 3], sigma=0.01, asynchronous=True, method="cma", seed=0)
    xs = search.ask(4)
    assert xs[0].tolist() == [3, 3]
    assert np.abs(xs[1:] - 3).max() < 0.5
    assert len(np.unique(xs, axis=0)) == 4


def test_a_start_survives_the_journal(tmp_path):
    options = {"x0": [{"model": "forest"}, {"scale": True}], "seed": 1, "method": "cma"}
    whole = vo.minimize(loss, TREE, budget=50, **options)
    for budget in (1, 20, 50):
        r = vo.minimize(loss, TREE, budget=budget, journal=tmp_path / "a.db", **options)
    assert [a.row.tobytes() for a in r.search.records] == [a.row.tobytes() for a in whole.search.records]


@pytest.mark.parametrize(
    ("space", "x0", "message"),
    [
        (TREE, [{"model": "forest"}, {"model": "tree"}], r"x0\[1\]: model: x must be one of"),
        (TREE, {"model": "svm", "trees": 3}, "must not have 'trees'"),
        (TREE, {"foo": 3}, "dictionary with the names"),
        (TREE, [], "x0 must have at least one point"),
        (vo.Box(0, 1, size=2), [[0.5, 0.5], [2, 0]], r"x0\[1\]: x must lie in the box"),
        (vo.Integer(0, 5), [1, 2.5], r"x0\[1\]: x must be whole numbers"),
    ],
)
def test_bad_starts_are_refused(space, x0, message):
    with pytest.raises(ValueError, match=message):
        vo.Search(space, x0=x0)
