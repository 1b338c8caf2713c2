"""The harness: draws problems, runs every method that does not refuse, checks what they claim, shrinks what fails."""

from __future__ import annotations

import contextlib
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import varopt as vo
from fuzz.oracle import clarabel_point, complaints
from fuzz.problems import Problem, is_convex, random_problem
from fuzz.report import Finding, Report
from varopt.composite import NotComposite
from varopt.composite import composite as convert

TOL = 1e-9
LIMIT = 1.0  # seconds of a run
SLOW = ("lbfgs", "diagonal-newton", "graduated")  # methods that mostly use them up, and are run less often
BY_NAME, SLOW_SHARE = 0.3, 0.1  # shares of problems that a method by name is run on, and of these where it may be slow


class Hang(BaseException):
    """A run went on for several times its time limit."""


@contextlib.contextmanager
def watched(seconds: float) -> Iterator[None]:
    """Raise `Hang` in what takes longer, half of it of a processor; without such alarms, do nothing."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    cpu, started = time.process_time(), time.perf_counter()

    def ring(*_: Any) -> None:
        if time.process_time() - cpu >= 0.5 * seconds or time.perf_counter() - started >= 20.0 * seconds:
            raise Hang
        signal.setitimer(signal.ITIMER_REAL, seconds)  # others have the processor, or it was stopped

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


_UNKNOWN = object()  # a second solver's answer that was not asked for yet


def late(seconds: float, limit: float = LIMIT) -> bool:
    """Whether a run went beyond its time limit by more than a tenth of a second and a fifth."""
    return seconds > limit + max(0.1, 0.2 * limit)


def starved(result: Any, spent: float, limit: float = LIMIT) -> bool:
    """Whether a run came to its time limit without much time of a processor: others have it, and it says nothing."""
    return result.status.name == "TIME_LIMIT" and spent < 0.7 * limit


def check(problem: Problem, method: str, seed: int, rival: Any = _UNKNOWN) -> tuple[list[tuple[str, str]], str]:
    """Run one method on one problem: what is wrong, by kind, and its status ("refused" where it does not run)."""
    f, found, result, limit = problem.build(), [], None, LIMIT
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        started, cpu = time.perf_counter(), time.process_time()
        try:
            with watched(10.0 * LIMIT):
                result = vo.minimize(f, method=method, tol=TOL, time_limit=LIMIT)
            if starved(result, time.process_time() - cpu):
                started, cpu, limit = time.perf_counter(), time.process_time(), 10.0 * LIMIT
                with watched(10.0 * limit):
                    result = vo.minimize(f, method=method, tol=TOL, time_limit=limit)
        except Hang:
            return [("hang", f"more than {10.0 * LIMIT:g} s of {LIMIT:g}")], "hang"
        except NotComposite:
            return [], "refused"
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            found.append((f"exception {type(error).__name__}", f"{error} ({where.name}, line {where.lineno})"))
        spent = min(time.perf_counter() - started, time.process_time() - cpu)  # other processes are not to blame for
    found += [(f"warning {w.category.__name__}", str(w.message)) for w in caught[:1]]
    if late(spent, limit):
        found.append(("late", f"{spent:.2f} s of {limit:g}"))
    if result is None:
        return found, "exception"
    rival = clarabel_point(problem) if rival is _UNKNOWN else rival
    for text in complaints(problem, result, TOL, np.random.default_rng(seed), rival):
        found.append((text.split(":")[0].split(" with ")[0].split(",")[0], text))
    if result.status.name in ("GAP_OPEN", "TIME_LIMIT"):
        kind = "gap open" if result.status.name == "GAP_OPEN" else "time limit"
        kind = kind if is_convex(problem) else "curved down by rounding"
        found.append((kind, f"gap {result.gap:.2g} at {result.fun:.6g}"))
    return found, result.status.name


def shrunk(problem: Problem, fails: Callable[[Problem], bool], seconds: float = 3.0) -> Problem:
    """A smaller problem that fails in the same way."""
    end = time.perf_counter() + seconds
    better = True
    while better and time.perf_counter() < end:
        better = False
        for smaller in _smaller(problem):
            if time.perf_counter() > end:
                break
            with contextlib.suppress(Exception):
                if fails(smaller):
                    problem, better = smaller, True
                    break
    return problem


def _smaller(problem: Problem) -> Iterator[Problem]:
    for k in range(len(problem.blocks)):
        if len(problem.blocks) > 1:
            yield replace(problem, blocks=problem.blocks[:k] + problem.blocks[k + 1 :])
    for k, block in enumerate(problem.blocks):

        def put(new: Any, k: int = k) -> Problem:
            return replace(problem, blocks=(*problem.blocks[:k], new, *problem.blocks[k + 1 :]))

        if block.map in ("dense", "sparse") and block.matrix is not None and block.term != "linear":
            rows = len(block.matrix)
            for i in range(rows if rows > 1 else 0):
                yield put(_without_row(block, i))
        if np.ndim(block.weight):
            yield put(replace(block, weight=1.0))
        if block.scale is not None:
            yield put(replace(block, scale=None))
        if np.ndim(block.offset):
            yield put(replace(block, offset=0.0))
        if block.intercept:
            yield put(replace(block, intercept=False))
        if block.map == "sparse":
            yield put(replace(block, map="dense"))
        if block.matrix is not None and not np.array_equal(block.matrix, np.round(block.matrix, 1)):
            yield put(replace(block, matrix=np.round(block.matrix, 1)))
    if problem.size > 1 and all(b.term != "norm2" for b in problem.blocks):
        for j in range(problem.size):
            yield _without_column(problem, j)


def _without_row(block: Any, i: int) -> Any:
    def cut(value: Any) -> Any:
        return np.delete(value, i) if np.ndim(value) else value

    return replace(
        block, matrix=np.delete(np.asarray(block.matrix), i, axis=0), weight=cut(block.weight), scale=cut(block.scale),
        offset=cut(block.offset),
    )  # fmt: skip


def _without_column(problem: Problem, j: int) -> Problem:
    blocks = []
    for b in problem.blocks:
        if b.term == "quad_form":
            matrix = np.asarray(b.parameters).reshape(problem.size, problem.size)
            small = np.delete(np.delete(matrix, j, axis=0), j, axis=1)
            blocks.append(replace(b, parameters=tuple(small.ravel().tolist())))
        elif b.map in ("dense", "sparse"):
            blocks.append(replace(b, matrix=np.delete(np.asarray(b.matrix), j, axis=1)))
        else:

            def cut(value: Any) -> Any:
                return np.delete(value, min(j, len(value) - 1)) if np.ndim(value) else value

            blocks.append(replace(b, offset=cut(b.offset), weight=cut(b.weight), scale=cut(b.scale)))
    return Problem(problem.size - 1, tuple(blocks))


def composite(seed: int, report: Report, *, extreme: bool, convex: bool = True, shrink: bool = True) -> None:
    """One problem, by what `auto` takes and now and then by another method that does not refuse."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, extreme=extreme, convex=convex)
    kind = "extreme" if extreme else "ordinary" if convex else "not convex"
    rival = clarabel_point(problem)
    for method in ("auto", *_others(problem, rng)):
        found, status = check(problem, method, seed, rival)
        report.runs[kind] += 1
        report.statuses[f"{kind}: {method if method == 'auto' else 'by name'}: {status}"] += 1
        for what, text in found:
            small = problem
            if shrink and (what, method) not in report.known and what not in ("time limit", "late", "hang"):
                report.known.add((what, method))
                small = shrunk(problem, lambda p, m=method, w=what: any(k == w for k, _ in check(p, m, seed)[0]))
                text = next((t for k, t in check(small, method, seed)[0] if k == what), text)
            program = small.program() + f"r = vo.minimize(f, method={method!r}, time_limit={LIMIT})\nprint(r)\n"
            report.findings.append(Finding(what, method, text, seed, program))


def _others(problem: Problem, rng: np.random.Generator) -> Iterator[str]:
    """A method by name, of those that do not refuse; slow ones less often."""
    draw, slow = rng.random(), rng.random() < SLOW_SHARE
    if draw < BY_NAME:
        form = convert(problem.build())
        names = [name for name in vo.solvers.METHODS if slow or name not in SLOW]
        takes = [name for name in names if not vo.solvers.METHODS[name].refusal(form)]
        yield from takes[int(draw / BY_NAME * len(takes)) :][:1]
