"""SciPy's BLAS threads: fewer while a problem is solved, and all of them back afterwards."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import varopt as vo
from varopt._threads import one_pool, scipy_threads


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


def test_it_nests_and_overlaps():
    barrier = Barrier(3)

    def use(_):
        with one_pool():
            barrier.wait()
            inside = scipy_threads()
            barrier.wait()
        return inside

    for _ in range(3):
        with one_pool():
            with one_pool():
                pass
            assert scipy_threads() == ONE
        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(use, range(3))) == [ONE] * 3


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
