"""Executors by behaviours: what is promised holds for each of them, or it is refused by name."""

import contextlib
import ctypes
import faulthandler
import importlib
import importlib.util
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent import futures
from multiprocessing.pool import ThreadPool
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest

import varopt as vo
from varopt import Status
from varopt.search.workers import _futures
from varopt.search.workers._dask import IDLE, DaskCare  # looks after workers that take minutes to die
from varopt.search.workers._evaluation import Evaluated  # what a worker of our own hands back
from varopt.search.workers._futures import Futures, Renewal  # around executors that lose what they were given

BOX = vo.Box(-5, 5, size=3)
POSIX = pytest.mark.skipif(os.name != "posix", reason="needs fork, so that test functions reach the workers")
FORK = multiprocessing.get_context("fork") if os.name == "posix" else None
BUDGET = 8
UNDER_MPI = "VAROPT_TESTS_UNDER_MPI"
# Three ranks on fewer cores, which Open MPI refuses unless it is told (its versions 5 and 4).
TIGHT = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def sphere(x):
    return float(((x - 1.0) ** 2).sum())


@contextlib.contextmanager
def threads():
    with futures.ThreadPoolExecutor(2) as pool:
        yield pool


@contextlib.contextmanager
def processes():
    pool = futures.ProcessPoolExecutor(2, mp_context=FORK)
    yield pool
    pool.shutdown(wait=False)


@contextlib.contextmanager
def thread_pool():
    with ThreadPool(2) as pool:
        yield pool


@contextlib.contextmanager
def joblib():
    yield importlib.import_module("joblib").Parallel(n_jobs=2)


@contextlib.contextmanager
def joblib_threads():
    yield importlib.import_module("joblib").Parallel(n_jobs=2, backend="threading")


@pytest.fixture(scope="module")
def dask():
    distributed = pytest.importorskip("distributed", reason="the dask extra is not installed")
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
        yield client


@pytest.fixture
def dask_processes():
    distributed = pytest.importorskip("distributed", reason="the dask extra is not installed")
    # Sooner than 3; and Dask does not replace a worker that dies while it starts: a failure then, and not for ever.
    settings = {"distributed.scheduler.allowed-failures": 1, "distributed.scheduler.no-workers-timeout": "30s"}
    once = importlib.import_module("dask").config.set(settings)
    with once, distributed.Client(n_workers=1, threads_per_worker=2, dashboard_address=None, processes=True) as client:
        yield client


@pytest.fixture(scope="module", autouse=True)
def known_to_all_workers():
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # they know nothing of the tests
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from ray import cloudpickle as own

    ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    own.register_pickle_by_value(sys.modules[__name__])
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def ray_pool(ray):
    from ray.util.multiprocessing import Pool

    with Pool(2) as pool:
        yield pool


@pytest.fixture(scope="module")
def mpi():
    if UNDER_MPI not in os.environ:
        pytest.skip("not begun by mpiexec: test_the_same_promises_hold_under_mpi does")
    with importlib.import_module("mpi4py.futures").MPIPoolExecutor(2) as pool:
        yield pool


@pytest.fixture(params=["threads", "processes", "thread_pool", "joblib", "joblib_threads", "dask", "ray_pool", "mpi"])
def executor(request):
    if request.param in ("dask", "ray_pool", "mpi"):  # slow to begin: one for all
        yield request.getfixturevalue(request.param)
        return
    if request.param in ("processes", "joblib") and os.name != "posix":
        pytest.skip("needs fork, so that test functions reach the workers")
    with globals()[request.param]() as made:
        yield made


def outcome(result):
    return result.fun, result.nfev, result.x.tobytes(), result.history["mean"].tobytes()


pytestmark = pytest.mark.filterwarnings("ignore")  # of the clusters' own making


def test_every_executor_keeps_every_promise(executor):
    """In one test, since starting workers takes longer than all of it."""

    def run(f, **options):
        return vo.minimize(f, BOX, seed=1, executor=executor, **{"budget": BUDGET, **options})

    def slow(x):
        time.sleep(0.1)
        return sphere(x)

    def failing(x):
        if x[0] > 0:
            raise RuntimeError("injected")
        return sphere(x)

    def exiting(x):
        sys.exit(4)

    def huge(x):
        return np.zeros(2_000_000) if x[0] > 0 else sphere(x)

    offset = np.ones(3)
    captured = run(lambda x: float(((x - offset) ** 2).sum()))  # a closure travels
    assert outcome(captured) == outcome(vo.minimize(sphere, BOX, budget=BUDGET, seed=1, batch=7))
    assert all(record.worker and record.seconds >= 0 for record in captured.search.records)

    # Eight evaluations of 0.1 s for two workers: the queue is longer than the limit, no evaluation is.
    late = run(slow, timeout=0.35, population=8)
    assert not late.errors

    failed = run(failing)
    assert set(failed.errors) <= {"RuntimeError: injected"}
    assert [r.error is None for r in failed.search.records] == [r.row[0] <= 0 for r in failed.search.records]

    gone = run(exiting)
    assert (gone.status, set(gone.errors)) == (Status.NO_VALUE, {"SystemExit: 4"})

    # Equal points are evaluated each: where there is noise, one value for both would be half of the truth.
    noisy = vo.minimize(lambda x: time.perf_counter_ns() % 10**9, vo.Boolean(1), seed=1, executor=executor, budget=16)
    assert len({record.value for record in noisy.search.records}) > 12

    large = run(huge)
    assert set(large.errors) == {"the value must be one real number; got shape (2000000,)"}


def test_an_evaluation_that_hangs_is_given_up_after_its_own_time(executor):
    def hanging(x):
        began = time.monotonic()
        while x[0] > 0 and time.monotonic() < began + 60:
            time.sleep(0.01)
        return sphere(x)

    r = vo.minimize(hanging, BOX, seed=1, budget=BUDGET, population=8, executor=executor, timeout=0.3)
    for record in r.search.records:
        assert (record.error == "no value after 0.3 s") == (record.row[0] > 0)
    assert r.time < 30


def test_the_time_limit_holds_although_an_evaluation_hangs(executor):
    def hanging(x):
        time.sleep(0.8)
        return sphere(x)

    r = vo.minimize(hanging, BOX, seed=1, budget=BUDGET, executor=executor, time_limit=0.1)
    assert r.status is Status.TIME_LIMIT
    assert r.time < 0.7


@pytest.mark.parametrize("name", ["number", "joblib", "dask", "ray_pool", "mpi"])
def test_what_cannot_be_sent_is_told_before_anything_runs(name, request):
    lock = threading.Lock()
    if name in ("number", "joblib"):
        executor = 2 if name == "number" else importlib.import_module("joblib").Parallel(n_jobs=2)
    else:
        executor = request.getfixturevalue(name)

    def locked(x):
        with lock:
            return sphere(x)

    with pytest.raises(ValueError, match=r"f cannot be sent to worker processes: (.|\n)*lock(.|\n)*ThreadPoolExecutor"):
        vo.minimize(locked, BOX, budget=BUDGET, executor=executor)
    with threads() as pool:
        assert vo.minimize(locked, BOX, budget=BUDGET, executor=pool).nfev == BUDGET


def test_options_travel_with_the_space():
    with processes() as pool:
        space = vo.Space({"f": [lambda: 1.0, lambda: 2.0]})
        assert vo.minimize(lambda p: p["f"](), space, budget=6, seed=0, executor=pool).fun == 1.0


def test_who_cannot_keep_the_promises_is_refused_by_name():
    with (
        multiprocessing.get_context("spawn").Pool(1) as pool,
        pytest.raises(ValueError, match=r"must not be a multiprocessing\.Pool.*executor=4"),
    ):
        vo.minimize(sphere, BOX, budget=BUDGET, executor=pool)
    parallel = importlib.import_module("joblib").Parallel(n_jobs=2, backend="multiprocessing")
    with pytest.raises(ValueError, match=r"joblib\.Parallel with the backend multiprocessing"):
        vo.minimize(sphere, BOX, budget=BUDGET, executor=parallel)
    pool = futures.ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(ValueError, match=r"executor does not take f: .*shutdown"):
        vo.minimize(sphere, BOX, budget=BUDGET, executor=pool)


@POSIX
@pytest.mark.parametrize("name", ["processes", "joblib", "dask_processes", "ray_pool"])
def test_a_worker_that_dies_is_replaced_and_its_point_evaluated_again(name, tmp_path, request):
    alone = outcome(vo.minimize(sphere, BOX, budget=2 * BUDGET, seed=1, batch=7))
    died = tmp_path / "died"

    def dies_once(x):
        try:
            died.touch(exist_ok=False)
        except FileExistsError:
            return sphere(x)
        os._exit(1)

    shared = name in ("dask_processes", "ray_pool")
    made = contextlib.nullcontext(request.getfixturevalue(name)) if shared else globals()[name]()
    with made as pool:
        r = vo.minimize(dies_once, BOX, budget=2 * BUDGET, seed=1, executor=pool)
    assert died.exists()
    assert outcome(r) == alone


@POSIX
@pytest.mark.parametrize("name", ["processes", "joblib", "dask_processes", "ray_pool"])
def test_a_point_that_kills_every_worker_is_recorded_as_failed(name, request):
    def dies_at_left(x):
        if x[0] < -2:
            os._exit(1)
        return sphere(x)

    shared = name in ("dask_processes", "ray_pool")
    made = contextlib.nullcontext(request.getfixturevalue(name)) if shared else globals()[name]()
    with made as pool:
        r = vo.minimize(dies_at_left, BOX, budget=14, seed=1, executor=pool, sigma=0.4)
    errors = [record for record in r.search.records if record.error]
    assert {record.error for record in errors} == {"the worker died"}
    assert {record.number for record in errors} == {r.number for r in r.search.records if r.row[0] < -2}


@POSIX
def test_processes_that_were_ended_since_one_hung_may_be_given_again():
    def hanging(x):
        time.sleep(60 if x[0] > 0 else 0)
        return sphere(x)

    with processes() as pool:
        for _ in range(2):
            r = vo.minimize(hanging, BOX, seed=1, budget=BUDGET, population=8, executor=pool, timeout=0.3)
            assert [record.error is None for record in r.search.records] == [r.row[0] <= 0 for r in r.search.records]
        assert not vo.minimize(sphere, BOX, seed=1, budget=BUDGET, executor=pool).errors


def test_a_pool_that_was_ended_after_a_death_may_be_given_again():
    """As Ray's is, which goes on sending work to actors that have died: whoever made it did not end it."""
    deaths = iter([True])

    class RayActorError(Exception):
        pass

    class Pool:
        def __init__(self, processes, initializer=None, initargs=(), ray_remote_args=None):
            self._actor_pool, self._initializer, self._initargs = [None] * processes, initializer, initargs
            self.running = True

        def apply_async(self, function, args, kwargs, callback, error_callback):
            if not self.running:
                raise ValueError("Pool not running")
            if next(deaths, False):
                error_callback(RayActorError())
            else:
                callback(function(*args, **kwargs))

        def terminate(self):
            self.running = False

    alone, pool = outcome(vo.minimize(sphere, BOX, budget=BUDGET, seed=1, batch=7)), Pool(2)
    for _ in range(2):
        assert outcome(vo.minimize(sphere, BOX, budget=BUDGET, seed=1, executor=pool)) == alone
        assert not pool.running
    closed = Pool(2)
    closed.terminate()
    with pytest.raises(ValueError, match=r"executor does not take f: .*Pool not running"):
        vo.minimize(sphere, BOX, budget=BUDGET, executor=closed)


def test_a_pool_that_is_ended_finds_no_future_cancelled():
    """Python's own would raise `InvalidStateError` in its thread, and print that."""

    class Busy(futures.Executor):
        def __init__(self):
            self.under_way = []

        def submit(self, function, job):
            self.under_way.append(futures.Future())
            return self.under_way[-1]

    def end(pool):
        for future in pool.under_way:
            future.set_exception(futures.BrokenExecutor())

    workers = Futures(None, busy := Busy(), Renewal(end, lambda old: old), capacity=2, owned=True)
    workers.start(["first", "second"], {})
    assert workers.wait(time.monotonic()) is None
    workers.close()
    assert all(future.done() for future in busy.under_way)


def test_nobody_is_sent_off_beside_a_suspect():
    """An asynchronous search starts points while others are under way: with a suspect they would die innocent."""

    class KilledWorker(Exception):
        pass

    class Slow(futures.Executor):
        def __init__(self):
            self.under_way = []

        def submit(self, function, job):
            self.under_way.append((futures.Future(), job.row))
            return self.under_way[-1][0]

    slow = Slow()
    workers = Futures(None, slow, capacity=2)
    workers.start(["suspect"], {})
    for _ in range(2):  # its worker dies twice
        workers.wait(time.monotonic())
        slow.under_way.pop()[0].set_exception(KilledWorker())
        workers.wait(time.monotonic() + 0.01)
    assert [row for _, row in slow.under_way] == ["suspect"]
    workers.start(["innocent"], {})
    workers.wait(time.monotonic())
    assert [row for _, row in slow.under_way] == ["suspect"]
    slow.under_way.pop()[0].set_exception(KilledWorker())
    finished = workers.wait(math.inf)
    assert (list(finished.rows), finished.errors) == (["suspect"], ["the worker died"])
    workers.wait(time.monotonic())
    assert [row for _, row in slow.under_way] == ["innocent"]


class Cluster:
    """As Dask's are, that know how many workers there should be, and have given some up."""

    def __init__(self, there, wanted):
        self.workers, self.worker_spec, self.asked = range(there), range(wanted), []

    def scale(self, count):
        self.asked.append(count)


def test_workers_that_dask_gave_up_are_asked_for_again():
    client = SimpleNamespace(cluster=Cluster(1, 2), processing=dict)
    assert not DaskCare(client)()
    assert client.cluster.asked == [2]
    whole = SimpleNamespace(cluster=Cluster(2, 2), processing=dict)
    assert not DaskCare(whole)()
    assert whole.cluster.asked == []
    assert not DaskCare(SimpleNamespace(processing=dict))()  # a scheduler elsewhere: whoever began it sees to it


def test_what_idle_workers_have_lost_is_sent_again(monkeypatch):
    """A future of Dask whose result died with its worker may never be done."""
    monkeypatch.setattr(_futures, "TENDED", 0.001)
    busy = iter([{"a": ["task"]}] * 2 + [{"a": []}] * (IDLE - 1) + [{}] + [{"a": []}] * IDLE)
    care = DaskCare(SimpleNamespace(processing=lambda: next(busy)))
    sent = []

    class Forgetful(futures.Executor):
        def submit(self, function, job):
            sent.append(job.row)
            future = futures.Future()
            if len(sent) > 2:
                future.set_result(Evaluated(1.0, None))
            return future

    workers = Futures(None, Forgetful(), capacity=2, tend=care)
    workers.start(["first", "second"], {})
    found = workers.wait(math.inf)
    assert sent == ["first", "second", "first", "second"]
    assert next(busy, None) is None  # not before all were idle in turn
    assert list(found.rows) == ["first", "second"]


@POSIX
def test_a_process_that_hangs_outside_python_is_ended():
    def stuck(x):
        if x[0] > 0:
            ctypes.PyDLL(None).sleep(60)  # without giving the interpreter free
        return sphere(x)

    with processes() as pool:
        r = vo.minimize(stuck, BOX, seed=1, budget=2, executor=pool, timeout=0.1)
    assert {r.error for r in r.search.records if r.row[0] > 0} <= {"the worker died"}
    assert r.time < 30


@POSIX
@pytest.mark.parametrize("listens", [False, True])
def test_processes_of_a_parent_that_is_watched_keep_their_time(listens):
    """As pytest watches slow tests; and where an alarm has a listener already, by the watch of Python."""

    def stuck(x):
        if x[0] > 0:
            ctypes.PyDLL(None).sleep(60)
        return sphere(x)

    if listens:
        before = signal.signal(signal.SIGALRM, lambda *_: None)
    else:
        faulthandler.dump_traceback_later(600)
    try:
        with processes() as pool:
            r = vo.minimize(stuck, BOX, seed=1, budget=2, executor=pool, timeout=0.1)
        assert {record.error for record in r.search.records if record.row[0] > 0} == {"the worker died"}
    finally:
        if listens:
            signal.signal(signal.SIGALRM, before)
        else:
            faulthandler.cancel_dump_traceback_later()


def test_the_same_promises_hold_under_mpi():
    """Of mpi4py's pool, which mpiexec has to begin; a rank that dies takes all with it, as MPI has it."""
    if shutil.which("mpiexec") is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py or mpiexec is not installed")
    tests = [sys.executable, "-m", "mpi4py.futures", "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        ["mpiexec", "-n", "3", *tests, "-k", "mpi and not under"], env={**os.environ, **TIGHT, UNDER_MPI: "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
