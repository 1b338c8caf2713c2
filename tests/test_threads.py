"""Threads of BLAS: one while a problem is solved, all for what is large, and all of them back afterwards."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from threadpoolctl import threadpool_info

import varopt as vo
from varopt import _threads, learn  # numbers of threads are looked at
from varopt._linalg import cholesky  # whether a factor has all threads
from varopt._threads import all_threads, one_thread  # the module under test
from varopt.discrete import qubo
from varopt.model.maps import Matrix
from varopt.optimize import _composite  # its constants are made small
from varopt.solvers.discrete._matrices import product  # matrices in whichever format


def counts():
    return {name: pool.read() for name, pool in _threads.pools().items()}


@pytest.fixture(autouse=True)
def restored():
    """Two threads to begin with, whatever the machine has, and as many at the end."""
    before = counts()
    for pool in _threads.pools().values():
        pool.write(2)
    others = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}
    yield
    assert {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()} == others
    for name, pool in _threads.pools().items():
        pool.write(before[name])


ONE, TWO = (dict.fromkeys(_threads.pools(), count) for count in (1, 2))


def test_both_libraries_from_pypi_are_found():
    bundled = {pool["filepath"] for pool in threadpool_info() if pool["internal_api"] == "openblas"}
    homes = {name for name in ("numpy", "scipy") if any(f"{name}.libs" in path for path in bundled)}
    assert homes <= set(_threads.pools())


def test_it_nests():
    with one_thread():
        assert counts() == ONE
        with one_thread():
            assert counts() == ONE
        assert counts() == ONE
    assert counts() == TWO


@pytest.mark.parametrize("library", sorted(_threads.pools()))
def test_what_is_large_has_threads(library):
    with one_thread(), one_thread():
        with all_threads(library, 1e12):
            assert counts() == ONE | {library: 2}
        with all_threads(library, 1e3):
            assert counts() == ONE
        assert counts() == ONE


def test_alone_it_changes_nothing():
    with all_threads("numpy", 1e12):
        assert counts() == TWO


def test_who_has_one_thread_keeps_one():
    for pool in _threads.pools().values():
        pool.write(1)
    with one_thread(), all_threads("numpy", 1e12), all_threads("scipy", 1e12):
        assert counts() == ONE
    assert counts() == ONE
    for pool in _threads.pools().values():
        pool.write(2)


def test_overlapping_calls_leave_the_threads_as_they_were():
    barrier = Barrier(4)

    def use(k):
        barrier.wait()
        for _ in range(50 + k):
            with one_thread(), all_threads("numpy", 1e12):
                pass

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(4)))
    assert counts() == TWO


@pytest.mark.parametrize("sparse", [False, True])
def test_a_solve_has_one_and_an_exception_gives_them_back(rng, sparse):
    X, y = rng.standard_normal((3000, 20)), rng.standard_normal(3000)
    w, seen = vo.Variable(20), []

    def look(_):
        seen.append(counts())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        vo.minimize(vo.norm1(y - (sp.csr_array(X) if sparse else X) @ w) + vo.sum_squares(w), callback=look)
    assert seen == [ONE]


def test_black_boxes_have_all_and_the_search_has_one(monkeypatch):
    inside, outside, eigh = [], [], np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda matrix: (inside.append(counts()), eigh(matrix))[1])

    def f(x):
        outside.append(counts())
        return float(x @ x)

    vo.minimize(f, vo.Box(-5.0, 5.0, size=3), budget=200, seed=0)
    assert all(count == TWO for count in outside)
    assert ONE in inside


def test_bits_have_one(rng):
    seen = []
    qubo(rng.standard_normal((12, 12)), callback=lambda _: seen.append(counts()))
    assert seen
    assert all(count == ONE for count in seen)


def test_many_rows_and_columns_keep_all(rng):
    w, seen = vo.Variable(1600), []

    def look(_):
        seen.append(counts())
        raise StopIteration

    vo.minimize(vo.sum_squares(rng.standard_normal((1700, 1600)) @ w - 1.0) + vo.norm1(w), callback=look)
    assert seen
    assert all(count == TWO for count in seen)


def test_what_settles_a_run_that_was_stopped_has_one(rng, monkeypatch):
    X, w, seen = rng.standard_normal((300, 3)), vo.Variable(3), []
    monkeypatch.setattr(_composite, "settle", lambda *_: seen.append(counts()))
    vo.minimize(vo.norm1(X @ w - 1.0), time_limit=1e-9)
    assert seen == [ONE]


def test_kernel_machines_have_one(rng, monkeypatch):
    X, seen = rng.standard_normal((60, 2)), []
    factor = scipy.linalg.cho_factor
    monkeypatch.setattr(scipy.linalg, "cho_factor", lambda *a, **k: (seen.append(counts()), factor(*a, **k))[1])
    learn.SVC().fit(X, np.sign(X[:, 0] + 0.3 * rng.standard_normal(60)))
    assert seen
    assert all(count == ONE for count in seen)


def test_large_products_and_factors_have_all(rng, monkeypatch):
    monkeypatch.setattr(_threads, "_GAINS", 1000.0)
    seen = []

    def recording(name, pool):
        return _threads.Pool(pool.read, lambda count: (seen.append((name, count)), pool.write(count)))

    recorded = {name: recording(name, pool) for name, pool in _threads.pools().items()}
    monkeypatch.setattr(_threads, "pools", lambda: recorded)
    A = Matrix(rng.standard_normal((50, 10)))
    for compute, library in (
        (lambda: A.gram(np.ones(50)), "numpy"),
        (lambda: A.gram(rng.uniform(size=50)), "numpy"),
        (lambda: A.apply(np.ones(10)), "numpy"),
        (lambda: product(np.eye(20), np.ones(20)), "numpy"),
        (lambda: cholesky(np.eye(20)), "scipy"),
    ):
        with one_thread():
            seen.clear()
            compute()
            assert seen == [(library, 2), (library, 1)] * (library in recorded)
