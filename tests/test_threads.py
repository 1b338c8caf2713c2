"""SciPy's BLAS threads: fewer while a problem is solved, and all of them back afterwards."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import varopt as vo
from varopt._threads import one_pool, openblas_of_scipy


def scipy_threads():
    functions = openblas_of_scipy()
    return None if functions is None else functions[0]()


def pools():
    return {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}


@pytest.fixture(autouse=True)
def restored():
    before = pools()
    yield
    assert pools() == before


ONE = 1 if scipy_threads() is not None else None


def test_only_the_pool_of_scipy_is_held():
    before = pools()
    with one_pool():
        assert scipy_threads() == ONE
        assert all(count == before[path] for path, count in pools().items() if "scipy.libs" not in path)


def test_it_nests():
    with one_pool():
        with one_pool():
            pass
        assert scipy_threads() == ONE


def test_overlapping_calls_leave_the_threads_as_they_were():
    barrier = Barrier(4)

    def use(k):
        barrier.wait()
        for _ in range(50 + k):
            with one_pool():
                pass

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(4)))


def test_an_exception_gives_the_threads_back(rng):
    X, y = rng.standard_normal((2000, 20)), rng.standard_normal(2000)
    w = vo.Variable(20)
    seen = []

    def look(_):
        seen.append(scipy_threads())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        vo.minimize(vo.norm1(y - X @ w), callback=look)
    assert seen == [ONE]


def test_small_problems_leave_them_alone(rng):
    before = scipy_threads()
    w, seen = vo.Variable(3), []
    vo.minimize(vo.norm1(rng.standard_normal((40, 3)) @ w - 1.0), callback=lambda _: seen.append(scipy_threads()))
    assert np.size(seen) > 0
    assert all(count == before for count in seen)
