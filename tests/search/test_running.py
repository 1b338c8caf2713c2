"""The loop: budgets and limits, workers, failures, workers that die or hang."""

import functools
import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
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
    assert (r.nfev, r.method) == (1000, "cma")
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


def test_vectorized_function_gets_the_batch():
    shapes = set()

    def batch(xs):
        shapes.add(xs.shape)
        return ((xs - 1.0) ** 2).sum(axis=1)

    r = vo.minimize(batch, BOX, vectorized=True, budget=700, seed=0)
    assert shapes == {(7, 3)}
    assert outcome(r)[0] == pytest.approx(vo.minimize(sphere, BOX, budget=700, seed=0).fun)
    points = []
    vo.minimize(lambda ps: points.extend(ps) or [p["a"] for p in ps], vo.Space({"a": vo.Box(0, 1)}), vectorized=True,
                budget=20)  # fmt: skip
    assert all(isinstance(point, dict) for point in points)
    wrong = vo.minimize(lambda xs: 1.0, BOX, vectorized=True, budget=700, max_failures=10)
    assert wrong.status is Status.FAILURES
    assert "one value for each of 7 points" in wrong.errors[-1]


@pytest.mark.parametrize("space", [BOX, vo.Boolean(10)], ids=["reals", "bits"])
def test_workers_do_not_change_the_result(space):
    f = uneven if space is BOX else np.sum
    alone = outcome(vo.minimize(f, space, budget=150, seed=1))
    for workers in (1, 2, 4):
        with ThreadPoolExecutor(workers) as pool:
            assert outcome(vo.minimize(f, space, budget=150, seed=1, executor=pool)) == alone


def test_every_kind_of_executor_gives_the_same():
    alone = outcome(vo.minimize(sphere, BOX, budget=60, seed=1))
    context = multiprocessing.get_context("fork" if os.name == "posix" else "spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        assert outcome(vo.minimize(sphere, BOX, budget=60, seed=1, executor=pool)) == alone
    with ThreadPool(2) as pool:
        assert outcome(vo.minimize(sphere, BOX, budget=60, seed=1, executor=pool)) == alone


def test_joblib_gives_the_same():
    joblib = pytest.importorskip("joblib", reason="joblib is not installed")
    alone = outcome(vo.minimize(sphere, BOX, budget=60, seed=1))
    parallel = joblib.Parallel(n_jobs=2, backend="threading")
    for _ in range(2):  # what it was lent is given back
        assert outcome(vo.minimize(sphere, BOX, budget=60, seed=1, executor=parallel)) == alone
    with joblib.Parallel(n_jobs=2, backend="threading") as kept:
        assert outcome(vo.minimize(sphere, BOX, budget=60, seed=1, executor=kept)) == alone
        assert kept([(abs, (-1,), {})]) == [1]


@pytest.mark.filterwarnings("ignore")  # of the cluster's own making
def test_dask_gives_the_same():
    distributed = pytest.importorskip("distributed", reason="the dask extra is not installed")
    alone = outcome(vo.minimize(sphere, BOX, budget=60, seed=1))
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
        assert outcome(vo.minimize(sphere, BOX, budget=60, seed=1, executor=client)) == alone


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from ray import cloudpickle

    ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # its workers know nothing of the tests
    yield ray
    ray.shutdown()


@pytest.mark.filterwarnings("ignore")  # of the cluster's own making
@pytest.mark.parametrize("workers", [1, 2])
def test_ray_gives_the_same(ray, workers):
    from ray.util.joblib import register_ray
    from ray.util.multiprocessing import Pool

    joblib = pytest.importorskip("joblib", reason="joblib is not installed")
    alone = outcome(vo.minimize(sphere, BOX, budget=30, seed=1))
    with Pool(workers) as pool:
        assert outcome(vo.minimize(sphere, BOX, budget=30, seed=1, executor=pool)) == alone
    register_ray()
    with joblib.parallel_config(backend="ray"):
        parallel = joblib.Parallel(n_jobs=workers)
    assert outcome(vo.minimize(sphere, BOX, budget=30, seed=1, executor=parallel)) == alone


@pytest.mark.filterwarnings("ignore")
def test_workers_that_die_on_ray_are_replaced(ray, tmp_path):
    from ray.util.multiprocessing import Pool

    died = tmp_path / "died"

    def fatal_once(x):
        if not died.exists():
            died.touch()
            os._exit(1)
        return sphere(x)

    alone = outcome(vo.minimize(sphere, BOX, budget=30, seed=1))
    with Pool(2) as pool:
        assert outcome(vo.minimize(fatal_once, BOX, budget=30, seed=1, executor=pool)) == alone
    assert died.exists()


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
        r = vo.minimize(f, BOX, budget=100, seed=0, executor=pool, asynchronous=True)
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


def dies_once(folder, x):
    """Kill the worker at the first point only."""
    try:
        (folder / "died").touch(exist_ok=False)
    except FileExistsError:
        return sphere(x)
    os._exit(1)


def dies_at_left(x):
    if x[0] < -3:
        os._exit(1)
    return sphere(x)


def hangs_at_left(x):
    if x[0] < -3:
        time.sleep(600)
    return sphere(x)


CONTEXT = pytest.mark.skipif(os.name != "posix", reason="needs fork, so that test functions reach the workers")


@CONTEXT
def test_worker_that_dies_is_replaced_and_its_point_evaluated_again(tmp_path):
    alone = outcome(vo.minimize(sphere, BOX, budget=40, seed=1))
    pool = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork"))
    r = vo.minimize(functools.partial(dies_once, tmp_path), BOX, budget=40, seed=1, executor=pool)
    assert (tmp_path / "died").exists()
    assert outcome(r) == alone
    pool.shutdown()


@CONTEXT
def test_point_that_kills_every_worker_is_recorded_as_failed():
    pool = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork"))
    r = vo.minimize(dies_at_left, BOX, budget=28, seed=1, executor=pool, sigma=0.4)
    errors = [record for record in r.search.records if record.error]
    assert {record.error for record in errors} == {"the worker died"}
    assert {record.row.tobytes() for record in errors} == {
        record.row.tobytes() for record in r.search.records if record.row[0] < -3
    }
    pool.shutdown()


@CONTEXT
def test_evaluation_that_hangs_is_given_up():
    pool = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork"))
    r = vo.minimize(hangs_at_left, BOX, budget=21, seed=1, executor=pool, sigma=0.4, timeout=1.5)
    errors = [record for record in r.search.records if record.error]
    assert errors
    assert {record.error for record in errors} == {"no value after 1.5 s"}
    assert all(record.row[0] < -3 for record in errors)
    pool.shutdown()


def test_what_cannot_be_sent_to_a_worker_is_a_failure_with_its_reason():
    def local(x):
        return sphere(x)

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        r = vo.minimize(local, BOX, budget=50, executor=pool, max_failures=5)
    assert r.status is Status.FAILURES
    assert "ickle" in r.errors[-1]
