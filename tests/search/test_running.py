"""The loop: budgets and limits, workers, failures, workers that die or hang."""

import json
import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from multiprocessing.pool import ThreadPool

import numpy as np
import pytest

import varopt as vo
from varopt import Status

BOX = vo.Box(-5, 5, size=3)


def sphere(x):
    return float(((x - 1.0) ** 2).sum())


def uneven(x):
    """The sphere, with evaluations that finish out of order."""
    time.sleep(0.002 * (int(abs(x[0]) * 1000) % 3))
    return sphere(x)


def outcome(result):
    return result.fun, result.nfev, result.x.tobytes(), result.history["mean"].tobytes()


def test_result_is_what_a_scipy_user_expects():
    r = vo.minimize(sphere, BOX, budget=1000, seed=0)
    assert r.status is Status.BUDGET
    assert r.success
    assert (r.nfev, r.method) == (1000, "lq")
    assert r.upper == r.fun == sphere(r.x) < 1e-6
    assert r.lower == -np.inf
    assert isinstance(r.certificate, vo.certificates.Sampled)
    assert "1000 evaluations" in repr(r)
    assert len(r.history["best"]) == r.nit
    assert np.all(np.diff(r.history["best"]) <= 0)


def test_target_ends_the_run_and_budget_is_kept_exactly():
    r = vo.minimize(sphere, BOX, target=1e-3, seed=0)
    assert r.status is Status.TARGET
    assert r.fun <= 1e-3
    assert vo.minimize(sphere, BOX, budget=13, seed=0).nfev == 13
    up = vo.maximize(lambda x: -sphere(x), BOX, target=-1e-3, seed=0)
    assert up.status is Status.TARGET
    assert up.fun == -r.fun


def test_callback_progress_interrupt_and_time_limit(capsys):
    seen = []

    def stop(search):
        seen.append(search.evaluations)
        if search.evaluations > 50:
            raise StopIteration

    r = vo.minimize(sphere, BOX, callback=stop, progress=True, seed=0)
    assert r.status is Status.INTERRUPTED
    assert np.isfinite(r.fun)
    assert seen == sorted(seen)
    assert "best" in capsys.readouterr().err

    def interrupted(x, calls=[]):  # noqa: B006 -- counts calls
        calls.append(x)
        if len(calls) == 20:
            raise KeyboardInterrupt
        return sphere(x)

    assert vo.minimize(interrupted, BOX, seed=0).status is Status.INTERRUPTED
    assert vo.minimize(sphere, BOX, time_limit=1e-9, seed=0).status is Status.TIME_LIMIT


def test_seconds_alone_may_be_the_budget():
    line = vo.Box(-5, 5, size=1)
    r = vo.minimize(lambda x: float(x[0] ** 2), line, time_limit=1.0, seed=0, method="cma", progress=True)
    assert r.status is Status.TIME_LIMIT
    assert r.nfev > 1000  # where the default would have ended
    assert r.success
    assert not vo.minimize(sphere, BOX, time_limit=1e-9, seed=0).success  # nothing was evaluated
    assert not vo.minimize(sphere, BOX, time_limit=1e-2, budget=10**6, seed=0, method="cma").success


def test_sentences_of_a_black_box_speak_of_no_bracket():
    def stop(search):
        raise StopIteration

    runs = [
        vo.minimize(sphere, BOX, time_limit=1e-2, seed=0),
        vo.minimize(sphere, BOX, budget=30, seed=0, method="cma", callback=stop),
        vo.minimize(lambda x: (sphere(x), 1.0), BOX, constraints=1, budget=3, seed=0),
    ]
    assert [r.status for r in runs] == [Status.TIME_LIMIT, Status.INTERRUPTED, Status.NOT_FOUND]
    for r in runs:
        assert "bracket" not in repr(r)
        assert "bound" not in repr(r)


def test_vectorized_function_gets_the_batch():
    shapes = set()

    def batch(xs):
        shapes.add(xs.shape)
        return ((xs - 1.0) ** 2).sum(axis=1)

    r = vo.minimize(batch, BOX, vectorized=True, budget=700, seed=0, method="cma")
    assert shapes == {(7, 3)}
    assert outcome(r)[0] == pytest.approx(vo.minimize(sphere, BOX, budget=700, seed=0, method="cma").fun)
    points = []
    vo.minimize(lambda ps: points.extend(ps) or [p["a"] for p in ps], vo.Space({"a": vo.Box(0, 1)}), vectorized=True,
                budget=20)  # fmt: skip
    assert all(isinstance(point, dict) for point in points)
    wrong = vo.minimize(lambda xs: 1.0, BOX, vectorized=True, budget=700, max_failures=10)
    assert wrong.status is Status.FAILURES
    assert "one value for each of 7 points" in wrong.errors[-1]


@pytest.mark.parametrize("space", [BOX, vo.Permutation(4)], ids=["reals", "orders"])
def test_workers_do_not_change_the_result(space):
    f = uneven if space is BOX else lambda order: float(order @ np.arange(4))
    options = {"budget": 100, "seed": 1, "method": "lq" if space is BOX else "auto"}
    alone = outcome(vo.minimize(f, space, batch=7 if space is BOX else 4, **options))
    for workers in (1, 2, 4):
        with ThreadPoolExecutor(workers) as pool:
            assert outcome(vo.minimize(f, space, executor=pool, **options)) == alone


# A JAX that other tests have loaded warns of every fork.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:os.fork:RuntimeWarning")
def test_every_kind_of_executor_gives_the_same():
    alone = outcome(vo.minimize(sphere, BOX, budget=60, seed=1, batch=7, method="lq"))
    context = multiprocessing.get_context("fork" if os.name == "posix" else "spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        assert outcome(vo.minimize(sphere, BOX, budget=60, seed=1, executor=pool, method="lq")) == alone
    with ThreadPool(2) as pool:
        assert outcome(vo.minimize(sphere, BOX, budget=60, seed=1, executor=pool, method="lq")) == alone


def test_asynchronous_blocks_nobody():
    release = threading.Event()
    finished = []

    def f(x):
        if not finished:
            finished.append("slow one began")
            release.wait(30)
        finished.append(sphere(x))
        if len(finished) > 60:
            release.set()
        return sphere(x)

    with ThreadPoolExecutor(3) as pool:
        r = vo.minimize(f, BOX, budget=100, seed=0, executor=pool, asynchronous=True, method="cma")
    assert r.nfev == 100
    assert release.is_set()


def test_two_hundred_failures_in_a_thousand_lose_nothing(tmp_path):
    calls = []

    def f(x):
        calls.append(x.copy())
        match len(calls) % 20:
            case 0:
                raise RuntimeError("injected")
            case 5:
                return float("nan")
            case 10:
                return float("inf")
            case 15:
                return x
        return sphere(x)

    r = vo.minimize(f, BOX, budget=1000, seed=0, journal=tmp_path / "a.db")
    assert r.fun < 1e-6
    with vo.Search.load(tmp_path / "a.db") as search:
        assert search.evaluations == len(calls) == 1000
        errors = [record.error for record in search.records if record.error]
        assert len(errors) == 200
        assert {"RuntimeError: injected", "the value is nan", "the value is inf"} <= set(errors)
        np.testing.assert_array_equal([record.row for record in search.records], calls)


def test_too_many_failures_in_a_row_stop_it_with_a_sentence():
    r = vo.minimize(lambda x: 1 / 0, BOX, budget=1000, max_failures=20)
    assert r.status is Status.FAILURES
    assert r.nfev < 40
    assert r.x is None
    assert r.errors[-1] == "ZeroDivisionError: division by zero"
    assert "failed in a row" in r.message
    assert f"failed   {r.nfev} of {r.nfev}, the last: ZeroDivisionError" in repr(r)


def test_results_are_json_whatever_a_point_is():
    space = vo.Space({"a": vo.Box(0, 1), "n": vo.Integer(1, 3, size=2), "b": vo.Boolean(), "kind": [None, "one", sum]})
    r = vo.minimize(lambda p: p["a"] + p["n"].sum() + p["b"] + (p["kind"] is not sum), space, budget=60, seed=0)
    x = json.loads(r.to_json())["x"]
    assert (x["a"], x["n"], x["b"], x["kind"]) == (r.x["a"], [1, 1], False, str(sum))
    assert json.loads(vo.minimize(lambda n: (n - 2) ** 2, vo.Integer(0, 5), budget=20, seed=0).to_json())["x"] == 2
    two = vo.minimize(lambda x: (float(x @ x), float(x[0])), vo.Box(0, 1, size=2), objectives=2, budget=20, seed=0)
    assert json.loads(two.to_json())["value"] == two.fun.tolist()
    none = json.loads(vo.minimize(lambda x: 1 / 0, BOX, budget=5).to_json())
    assert (none["x"], none["value"]) == (None, None)


def test_zero_is_no_minus_zero_where_it_is_maximised():
    r = vo.maximize(lambda x: -float(x @ x), vo.Box(-1, 1, size=2), x0=[0.0, 0.0], budget=5, seed=0)
    assert "value    0\n" in repr(r)


def test_too_many_failures_stop_it_in_the_same_place_for_any_workers():
    def f(x):
        time.sleep(0.01 * (x[1] > 0))
        if x[0] > -4.5:
            raise RuntimeError("injected")
        return sphere(x)

    options = {"budget": 200, "seed": 4, "max_failures": 12, "method": "cma"}
    alone = vo.minimize(f, BOX, batch=7, **options)
    assert alone.status is Status.FAILURES
    for workers in (1, 3):
        with ThreadPoolExecutor(workers) as pool:
            r = vo.minimize(f, BOX, executor=pool, **options)
        assert (r.status, r.nfev) == (alone.status, alone.nfev)


@pytest.mark.parametrize("budget", [120, 1500])
def test_where_a_part_of_the_space_fails_the_rest_is_searched(budget):
    """By single points that fail, and teach the more."""

    def f(x):
        if x[0] + x[1] > 1.0:
            raise RuntimeError("injected")
        return sphere(x)

    r = vo.minimize(f, BOX, budget=budget, seed=0)  # the optimum is where it begins to fail, and worth 0.5
    assert r.status is Status.BUDGET
    assert r.fun < (0.75 if budget < 500 else 0.5001)
    assert sum(record.error is not None for record in r.search.records) < budget / 2


def test_a_run_without_a_value_says_so():
    r = vo.minimize(lambda x: None, BOX, budget=10)
    assert r.status is Status.NO_VALUE
    assert not r.success
    assert r.x is None
    assert r.errors[-1] == "no value"
    r = vo.minimize(lambda x: time.sleep(0.02), BOX, time_limit=1.0, max_failures=10**6, method="cma")
    assert (r.status, r.success) == (Status.NO_VALUE, False)
    assert r.nfev


def test_failures_by_chance_do_not_keep_a_model_from_use():
    """Where the model had to fit failures too, it would take more than 1000 evaluations."""
    scales = 10.0 ** np.linspace(0, 4, 5)
    turned = np.linalg.qr(np.random.default_rng(3).normal(size=(5, 5)))[0]
    fails = iter(np.random.default_rng(1).random(3000) < 0.3)

    def f(x):
        if next(fails):
            raise RuntimeError("injected")
        z = turned @ (x - 1)
        return float(z**2 @ scales + 0.3 * (z**4).sum())

    assert vo.minimize(f, vo.Box(-5, 5, size=5), seed=1, budget=3000, target=1e-8).nfev < 500


def test_a_run_that_ends_before_its_first_value_speaks_of_no_best():
    def f(x):
        raise KeyboardInterrupt

    interrupted = vo.minimize(f, BOX, budget=10)
    with ThreadPoolExecutor(1) as pool:
        late = vo.minimize(lambda x: time.sleep(0.3), BOX, executor=pool, time_limit=0.05)
    assert [r.status for r in (interrupted, late)] == [Status.INTERRUPTED, Status.TIME_LIMIT]
    for r in (interrupted, late):
        assert "before any evaluation gave a value" in repr(r)
        assert "best" not in repr(r)


def test_a_value_is_whatever_is_one_real_number():
    class Tensor:  # as PyTorch's with a gradient
        def __init__(self, *values):
            self.values = values

        def __array__(self, *_, **__):
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")

        def __float__(self):
            (value,) = self.values
            return value

    for value in (Fraction(1, 2), Decimal("0.5"), Tensor(0.5), np.float32(0.5), np.array([[0.5]])):
        assert vo.minimize(lambda x, value=value: value, BOX, budget=2, seed=0).fun == 0.5
        search = vo.Search(BOX, seed=0)
        search.tell(search.ask(1), [value])
        assert search.best.fun == 0.5
    for value in (10**400, Tensor(1.0, 2.0), [1, [2]], 1j):
        (error, _) = vo.minimize(lambda x, value=value: value, BOX, budget=2, seed=0).errors
        assert error.startswith("the value must be one real number; ")


def test_errors_are_told_in_one_line():
    def f(x):
        raise [ValueError, ValueError("two\n  lines"), ValueError("x" * 5000)][int(x[0] > 0) + int(x[0] > 0.7)]

    errors = [vo.minimize(f, BOX, x0=[x, 0, 0], budget=1).errors[0] for x in (-1, 0.5, 1)]
    assert errors[:2] == ["ValueError", "ValueError: two lines"]
    assert len(errors[2]) < 2010
    assert len(repr(vo.minimize(f, BOX, x0=[1, 0, 0], budget=1))) < 800


def test_exit_in_the_objective_is_a_failed_evaluation():
    r = vo.minimize(lambda x: sys.exit(3), BOX, budget=10)
    assert r.status is Status.NO_VALUE
    assert r.errors[-1] == "SystemExit: 3"
    batch = vo.minimize(lambda xs: sys.exit(3), BOX, budget=10, vectorized=True)
    assert batch.errors[-1] == "SystemExit: 3"


def test_the_result_says_nothing_of_a_bound_that_belongs_to_a_restart():
    r = vo.minimize(sphere, BOX, budget=60, seed=0, method="cma")
    assert "bound" not in repr(r) + repr(r.search)
    assert "average of the objective over the last distribution" in r.explain()


def test_every_record_tells_when_how_long_and_by_whom():
    during = []

    def f(x):
        during.append(time.time())
        return sphere(x)

    records = vo.minimize(f, BOX, budget=40, seed=0, method="cma").search.records
    assert len({record.worker for record in records}) == 1
    assert records[0].worker
    for record, when in zip(records, during, strict=True):
        assert record.seconds > 0.0
        # Clocks of two kinds, and a double resolves a fifth of a microsecond of the seconds since 1970.
        assert record.began - 1e-2 <= when <= record.began + record.seconds + 1e-2
        assert record.began + record.seconds <= record.time + 1e-2


def test_history_is_of_the_values_of_every_generation():
    """Of those that did not fail, in generations of which some have none and some have one."""
    calls = []

    def f(x):
        calls.append(x)
        generation, member = divmod(len(calls) - 1, 7)
        return sphere(x) if generation != 2 and (generation != 3 or member == 0) and member != 5 else None

    r = vo.minimize(f, BOX, budget=70, seed=0, method="cma")
    values = np.array([record.value for record in r.search.records]).reshape(-1, 7)
    for generation, told in enumerate(values):
        finite = told[np.isfinite(told)]
        assert r.history["samples"][generation] == finite.size
        mean = finite.mean() if finite.size else np.nan
        error = finite.std(ddof=1) / np.sqrt(finite.size) if finite.size > 1 else np.nan
        np.testing.assert_allclose(r.history["mean"][generation], mean)
        np.testing.assert_allclose(r.history["standard_error"][generation], error)
