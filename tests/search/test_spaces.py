"""Spaces: what is accepted, what is refused, and that points survive the way through rows of numbers."""

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import Bounds

import varopt as vo
from varopt.search._coding import Coding  # codes against their inverse
from varopt.search._space import SpaceLayout, space_from_json  # layouts and files of spaces
from varopt.solvers.natural_gradient import reflect

MIXED = vo.Space(
    {
        "rate": vo.Box(1e-4, 1, log=True),
        "shift": vo.Box([-1, 0], [1, 5]),
        "layers": vo.Integer(1, 8),
        "width": vo.Integer(1, 1024, log=True, size=2),
        "on": vo.Boolean(),
        "mask": vo.Boolean(3),
        "kind": ["relu", "tanh", None],
        "kinds": vo.Choice([1, 2.5, True], size=2),
        "order": vo.Permutation(5),
    }
)


def test_points_survive_rows_and_latent_vectors(rng):
    layout = SpaceLayout(MIXED)
    coding = Coding(layout)
    latent = rng.normal(0.5, 0.7, (200, layout.columns))
    latent[:, layout.choice] = rng.integers(0, layout.options[layout.choice], (200, layout.choice.size))
    rows = coding.rows(latent)
    again = coding.rows(coding.latent(rows))
    np.testing.assert_allclose(again, rows, rtol=1e-12)
    discrete = np.setdiff1d(np.arange(layout.columns), layout.real)
    np.testing.assert_array_equal(again[:, discrete], rows[:, discrete])
    for row in rows:
        np.testing.assert_array_equal(layout.row(layout.point(row)), row)


def test_values_have_the_types_a_user_expects():
    point = vo.Search(MIXED, seed=0).ask(1)[0]
    kinds = {name: type(value) for name, value in point.items()}
    assert kinds == {
        "rate": float, "shift": np.ndarray, "layers": int, "width": np.ndarray, "on": bool, "mask": np.ndarray,
        "kind": kinds["kind"], "kinds": list, "order": np.ndarray,
    }  # fmt: skip
    assert point["mask"].dtype == bool
    assert point["width"].dtype == np.int64
    assert sorted(point["order"]) == list(range(5))


def test_options_are_told_apart_by_type():
    layout = SpaceLayout(vo.Choice([1, True, 1.0, "1"]))
    assert [layout.row(option)[0] for option in (1, True, 1.0, "1")] == [0, 1, 2, 3]


def test_options_may_be_whatever_python_has():
    arrays = vo.Choice([np.zeros(3), np.ones(3), np.ones(4), {"w": np.zeros(2)}, {"w": np.ones(2)}])
    assert [arrays.encode(np.ones(n))[0] for n in (3, 4)] == [1, 2]
    assert arrays.encode([0, 0, 0]) == 0
    assert arrays.encode(arrays.options[4]) == 4
    assert vo.minimize(lambda x: float(np.size(x)), vo.Choice([np.zeros(3), np.zeros(2)]), budget=4, seed=0).fun == 2
    with pytest.raises(ValueError, match="different from each other"):
        vo.Choice([np.ones(3), np.zeros(3), np.ones(3)])
    with pytest.raises(ValueError, match="x must be one of"):
        arrays.encode(np.zeros(9))
    assert vo.Choice(range(20_000)).columns == 1  # at once


@pytest.mark.parametrize("options", ["relu", {"relu", "tanh"}, {"relu": 1, "tanh": 2}, None, 3], ids=str)
def test_options_without_an_order_are_refused(options):
    with pytest.raises(ValueError, match=r"options must be a list, .*\['relu', 'tanh'\]"):
        vo.Choice(options)


def test_the_text_of_an_option_is_the_same_in_every_run():
    def functions():
        def relu(): ...

        def tanh(): ...

        return vo.Choice([relu, functools.partial(tanh, 3)])

    assert functions().describe() == functions().describe()
    assert "tanh" in functions().describe()["options"][1]["repr"]


@given(st.floats(-30, 30))
def test_reflection_is_the_triangle_wave(u):
    inside = reflect(np.array([u]))[0]
    assert 0.0 <= inside <= 1.0
    assert np.isclose(np.cos(np.pi * inside), np.cos(np.pi * u), atol=1e-9)
    if 0.0 <= u <= 1.0:
        assert inside == u


def test_a_wide_distribution_covers_the_box_evenly(rng):
    # no bias: neither the bounds nor the middle get more than their share
    x = reflect(rng.normal(0.3, 3.0, 20_000))
    assert stats.kstest(x, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("log", [False, True])
def test_integers_share_the_latent_interval(log, rng):
    layout = SpaceLayout(vo.Integer(1, 4, log=log))
    values = Coding(layout).rows(rng.random((40_000, 1)))[:, 0]
    edges = np.log([0.5, 1.5, 2.5, 3.5, 4.5]) if log else np.arange(5.0)
    expected = np.diff(edges) / (edges[-1] - edges[0]) * values.size
    assert stats.chisquare([(values == k).sum() for k in range(1, 5)], expected).pvalue > 1e-3


@pytest.mark.parametrize("log", [False, True])
def test_cells_agree_with_rounding(log):
    layout = SpaceLayout(vo.Integer(2, 9, log=log, size=1))
    coding = Coding(layout)
    u = np.linspace(0.001, 0.999, 501)
    low, high = zip(*(coding.cells(np.array([0]), np.array([v])) for v in u), strict=True)
    values = coding.rows(u[:, None])[:, 0]
    low, high = np.concatenate(low), np.concatenate(high)
    assert np.all((low <= u) & (u <= high))
    for inside in (low + 1e-9, high - 1e-9):
        np.testing.assert_array_equal(coding.rows(inside[:, None])[:, 0], values)
    assert low.min() == pytest.approx(0.0)
    assert high.max() == pytest.approx(1.0)


def test_spaces_survive_json():
    for space in (MIXED, vo.Box(0, 1), vo.Box([1, 2], [3, 4], log=[True, False]), vo.Boolean(3), vo.Permutation(4)):
        assert space_from_json(space.describe()) == space


def test_a_plain_dictionary_is_a_space():
    parts = {"x": vo.Box(-1, 1), "kind": ("a", "b")}
    assert vo.minimize(lambda p: p["x"] ** 2 + (p["kind"] == "a"), parts, budget=60, seed=0).x["kind"] == "b"
    assert vo.maximize(lambda p: -(p["x"] ** 2), {"x": vo.Box(-1, 1)}, budget=60, seed=0).fun > -0.1
    assert vo.Search(parts).space == vo.Space(parts)


@pytest.mark.parametrize(
    "bounds",
    [
        [(-1, 1), (-2.0, 2.0)],
        ((-1, 1), [-2, 2]),
        np.array([[-1.0, 1.0], [-2.0, 2.0]]),
        Bounds([-1, -2], [1, 2]),
    ],
)
def test_bounds_as_scipy_takes_them_are_a_box(bounds):
    assert vo.Search(bounds, seed=0).space == vo.Box([-1, -2], [1, 2])
    r = vo.minimize(lambda x: float(((x - 0.3) ** 2).sum()), bounds, budget=60, seed=0)
    np.testing.assert_allclose(r.x, 0.3, atol=1e-2)
    assert vo.Search(Bounds(-1, [1, 2]), seed=0).space == vo.Box(-1, [1, 2])


@pytest.mark.parametrize("space", [np.zeros(3), (-1, 1), [], [(0, 1), (0, 1, 2)], [("a", "b")], [(False, True)]])
def test_what_is_no_space_is_told_what_is(space):
    with pytest.raises(ValueError, match=r"space must be a vo\.Box\(low, high\), a list of pairs .* is x0"):
        vo.minimize(lambda x: 0.0, space)


def test_options_without_json_need_the_space():
    with pytest.raises(ValueError, match="space must be given"):
        space_from_json(vo.Choice([np.sin, np.cos]).describe())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: vo.Box(0, np.inf), "high must be finite"),
        (lambda: vo.Box(np.nan, 1), "low must be finite"),
        (lambda: vo.Box(1, 1), "low must be below high; got 1 and 1 at index 0"),
        (lambda: vo.Box(-1.7e308, 1.7e308), "high - low must not overflow"),
        (lambda: vo.Box(0, 1, log=True), "low must be positive where log is true"),
        (lambda: vo.Box([0, 0], [1, 1, 1]), "low, high, log and size must agree"),
        (lambda: vo.Box(np.zeros((2, 2)), 1), "numbers or non-empty vectors"),
        (lambda: vo.Box(0, 1, size=0), "size must be a whole number >= 1"),
        (lambda: vo.Integer(3, 3), "low must be below high"),
        (lambda: vo.Integer(0.5, 3), "low must be a whole number"),
        (lambda: vo.Integer(0, 3, log=True), "low must be at least 1"),
        (lambda: vo.Choice(["a"]), "options must be at least two"),
        (lambda: vo.Choice(["a", "a"]), "different from each other"),
        (lambda: vo.Permutation(1), "n must be a whole number >= 2"),
        (lambda: vo.Space({}), "non-empty mapping"),
        (lambda: vo.Space({"a": 3}), "the part 'a' of a Space must be"),
        (lambda: vo.Space({1: vo.Boolean()}), "names of a Space must be strings"),
        (lambda: vo.Search(3), r"space must be a vo\.Box"),
        (lambda: vo.Search(vo.Box(0, 1), method="magic"), "method must be one of 'auto'"),
        (lambda: vo.Search(vo.Box(0, 1), method="pbil"), "'pbil' is for booleans and choices"),
        (lambda: vo.Search(vo.Boolean(3), method="cma"), "'cma' is for numbers"),
        (lambda: vo.Search(vo.Box(0, 1), method="local"), "this space has numbers"),
        (lambda: vo.Search(vo.Box(0, 1), seed=-1), "seed must be a whole number >= 0"),
        (lambda: vo.Search(vo.Box(0, 1), population=1), "population must be a whole number >= 2"),
        (lambda: vo.Search(vo.Box(0, 1), sigma=0.0), "sigma must be a positive fraction"),
        (lambda: vo.Search(vo.Box(0, 1), x0=[2.0]), r"x must lie in the box \[0, 1\]; got 2 at index 0"),
        (lambda: vo.Search(vo.Box(0, 1)).ask(0), "count must be a whole number >= 1"),
        (lambda: vo.Search(vo.Box(0, 1)).tell([[0.1]], [1.0, 2.0]), "ys must have one value for each of the 1 points"),
        (lambda: vo.Search(vo.Box(0, 1)).tell([0.1], [1.0]), r"xs must have shape \(n, 1\)"),
        (lambda: vo.Search(MIXED).tell([{}], [1.0]), "x must be a dictionary with the names"),
        (lambda: vo.Search(vo.Permutation(3)).tell([[0, 0, 1]], [1.0]), "must be a permutation of 0 to 2"),
        (lambda: vo.minimize(abs, vo.Box(0, 1), budget=0), "budget must be a whole number >= 1"),
        (lambda: vo.minimize(abs, vo.Box(0, 1), timeout=1.0), "timeout needs an executor"),
        (lambda: vo.minimize(abs, vo.Box(0, 1), time_limit=-1), "time_limit must be a positive number"),
        (lambda: vo.minimize(abs, vo.Box(0, 1), target="low"), "target must be a finite number; got 'low'"),
        (lambda: vo.minimize(abs, vo.Box(0, 1), executor="many"), "executor must be a concurrent.futures executor"),
        (lambda: vo.minimize(abs, vo.Box(0, 1), executor=2, vectorized=True), "executor or vectorized, not both"),
        (lambda: vo.minimize(3, vo.Box(0, 1)), "f must be a function"),
        (lambda: vo.minimize(abs, 3), r"space must be a vo\.Box"),
        (lambda: vo.minimize(abs, {"a": 1}), "the part 'a' of a Space must be"),
        (lambda: vo.Space({"lr": (1e-4, 1)}), r"'lr' .* vo.Box\(0.0001, 1\) .* or the list \[0.0001, 1\]"),
        (lambda: vo.minimize(abs, {"lr": (1e-4, 1)}), "could mean two things"),
        (lambda: vo.minimize(abs), "needs a space for a black box"),
        (lambda: vo.minimize(abs, vo.Box(0, 1), maxiter=9), "has no option 'maxiter' for a black box: write budget="),
        (lambda: vo.maximize(abs, vo.Box(0, 1), workers=2), "'workers' for a black box: write executor="),
        (lambda: vo.minimize(abs, vo.Box(0, 1), bounds=[(0, 1)]), "they are the second argument"),
        (lambda: vo.minimize(abs, vo.Box(0, 1), colour=1), r"has no option 'colour' for a black box\."),
        (lambda: vo.minimize(abs, vo.Box(0, 1), constraints={"type": "ineq"}), "known in advance, as subject_to"),
        (lambda: vo.minimize(abs, vo.Box(0, 1), tol=1e-3), "tol and resume do not apply"),
        (lambda: vo.minimize(vo.norm1(vo.Variable(2)), budget=3), "has no option 'budget' for this objective"),
        (lambda: vo.minimize(vo.norm1(vo.Variable(2)), constraints=[]), r"write subject_to=\[\.\.\.\]"),
        (lambda: vo.minimize(vo.norm1(vo.Variable(2)), verbose=True), "write progress=True"),
        (lambda: vo.maximize(vo.sum(w := vo.Variable(2)), [w <= 1]), r"as in vo\.maximize\(f, subject_to="),
    ],
)
def test_refusals_name_the_argument(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("box", "text"),
    [
        (vo.Box(0, 1), "Box(low=0.0, high=1.0)"),
        (vo.Box(-5, 5, size=500), "Box(low=-5.0, high=5.0, size=500)"),
        (vo.Box(1, [2, 3], log=True), "Box(low=1.0, high=[2.0, 3.0], log=True)"),
        (vo.Box(np.arange(50) - 60, 50), "Box(low=[-60.0, -59.0, -58.0, ..., -11.0], high=50.0)"),
    ],
)
def test_a_box_is_printed_as_it_is_written(box, text):
    """One of 500 numbers was printed in a thousand."""
    assert repr(box) == text
