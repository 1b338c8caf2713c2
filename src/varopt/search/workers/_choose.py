"""Who evaluates, by what `executor` is; who cannot keep what is promised is refused by name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent import futures
from multiprocessing.pool import Pool, ThreadPool
from typing import Any

from varopt.search.workers._dask import DaskCare
from varopt.search.workers._evaluation import Evaluation, pack
from varopt.search.workers._futures import Futures, PoolExecutor, Renewal
from varopt.search.workers._workers import Here, Vectorized, Workers

__all__ = ["workers_for"]


def workers_for(
    function: Callable[[Any], Any], executor: Any, *, timeout: float | None, vectorized: bool,
    decode: Callable[[Any], Any], assemble: Callable[[Any], Any], width: int = 1, sign: float = 1.0,
) -> Workers:  # fmt: skip
    """Who evaluates `function` of the points that `decode` (one) and `assemble` (a batch) make of rows."""
    if vectorized and executor is not None:
        raise ValueError(
            "vectorized=True hands over the whole batch in one call; give executor or vectorized, not both."
        )
    kind = type(executor).__module__.partition(".")[0]
    evaluation = functools.partial(Evaluation, function, decode, width=width, sign=sign)
    if isinstance(executor, int) and not isinstance(executor, bool) and executor >= 1:
        return _processes(evaluation, futures.ProcessPoolExecutor(executor), timeout, owned=True)
    if isinstance(executor, futures.ProcessPoolExecutor):
        return _processes(evaluation, executor, timeout)
    if isinstance(executor, futures.ThreadPoolExecutor):
        return Futures(evaluation(timeout), executor)
    if kind == "joblib" and hasattr(executor, "n_jobs"):
        return _joblib(evaluation, executor, timeout)
    if hasattr(executor, "get_executor"):  # dask.distributed.Client
        each = executor.get_executor(pure=False)  # equal points too: there may be noise, or a worker may have died
        capacity = sum(executor.nthreads().values())
        return Futures(pack(evaluation(timeout)), each, capacity=capacity, tend=DaskCare(executor))
    if isinstance(executor, Pool) and not isinstance(executor, ThreadPool):
        raise ValueError(
            "executor must not be a multiprocessing.Pool: it never says that a worker has died, so that a run could "
            "wait for ever. Give a number of processes, as executor=4, or a concurrent.futures.ProcessPoolExecutor."
        )
    if hasattr(executor, "apply_async"):
        pool = PoolExecutor(executor)
        return Futures(pack(evaluation(timeout)), pool, RAY) if pool.is_ray else Futures(evaluation(timeout), pool)
    if hasattr(executor, "submit"):
        return Futures(pack(evaluation(timeout)) if kind == "mpi4py" else evaluation(timeout), executor)
    if executor is not None:
        raise ValueError(
            "executor must be a concurrent.futures executor, a number of processes, a dask.distributed Client, a "
            f"joblib.Parallel or Ray's pool; got {executor!r}."
        )
    if timeout is not None:
        raise ValueError("timeout needs an executor whose workers can be left behind, such as executor=4 (processes).")
    return Vectorized(function, assemble, width) if vectorized else Here(evaluation())


def _processes(
    evaluation: Callable[..., Evaluation], pool: Any, timeout: float | None, *, owned: bool = False
) -> Futures:
    try:
        packed = pack(evaluation(timeout, lethal=timeout is not None))
    except ValueError:
        if owned:
            pool.shutdown(wait=False)
        raise
    return Futures(packed, pool, PROCESSES, owned=owned, patient=timeout is not None)


def _another_pool(pool: Any) -> Any:
    return futures.ProcessPoolExecutor(  # the standard library keeps these, without a public name
        pool._max_workers, mp_context=pool._mp_context, initializer=pool._initializer, initargs=pool._initargs
    )


def _end_pool(pool: Any) -> None:
    for process in list((getattr(pool, "_processes", None) or {}).values()):
        process.kill()
    pool.shutdown(wait=False)


def _another_ray_pool(executor: PoolExecutor) -> PoolExecutor:
    old: Any = executor.pool
    arguments = getattr(old, "_ray_remote_args", None)
    return PoolExecutor(type(old)(executor._max_workers, old._initializer, old._initargs, ray_remote_args=arguments))


PROCESSES = Renewal(_end_pool, _another_pool)
RAY = Renewal(PoolExecutor.shutdown, _another_ray_pool)


def _joblib(evaluation: Callable[..., Evaluation], parallel: Any, timeout: float | None) -> Workers:
    """What a `joblib.Parallel` names, used without its batches: these neither end early nor survive a dead worker."""
    name = type(parallel._backend).__name__.removesuffix("Backend")
    count = parallel._backend.effective_n_jobs(parallel.n_jobs)
    if name in ("Loky", "Sequential"):
        return _processes(evaluation, futures.ProcessPoolExecutor(count), timeout, owned=True)
    if name == "Threading":
        return Futures(evaluation(timeout), futures.ThreadPoolExecutor(count), owned=True)
    instead = {
        "DaskDistributed": "the dask.distributed Client itself",
        "Ray": "a ray.util.multiprocessing.Pool",
    }.get(name, "a number of processes, such as executor=4")
    raise ValueError(
        f"executor must not be a joblib.Parallel with the backend {name.lower()}: it can neither give up on a batch "
        f"nor go on after a worker has died. Give {instead}."
    )
