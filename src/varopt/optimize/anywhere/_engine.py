r"""Minimise sums over rows that are not in memory, with the certificate of those that are.

A pilot solves the problem on a sample. A pass over the data keeps the rows near a knot and replaces the others by lines
below them, so that what is left is a small problem in memory whose optimum is below that of the whole; the ordinary
solver finds it and proves it. Another pass sums the objective at the point found. Where pieces are curved, the small
problem has the Hessian of the others as well, and the lower bound comes from lines at the point found.

Each problem is a generator that asks for passes (`Ask`): problems on the same data share them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from varopt._threads import one_thread
from varopt.certificates import Lines, Verifier
from varopt.model import Objective
from varopt.optimize._result import Result, Status
from varopt.optimize.anywhere._ask import Ask
from varopt.optimize.anywhere._band import Band, band_of, strayed, typical_lengths
from varopt.optimize.anywhere._device import DeviceRows
from varopt.optimize.anywhere._device_proof import sweep_device
from varopt.optimize.anywhere._path import Reached, follow, on_sample, unit_of
from varopt.optimize.anywhere._problem import Problem
from varopt.optimize.anywhere._relations import Relations, relations_of
from varopt.optimize.anywhere._sweep import BadRow, Moments, Sweep, Swept, check_finite, inspect
from varopt.places import DataColumn, DataPart, OnDevice, Table, columns_in, joined, table_of
from varopt.solvers import State

__all__ = ["COPIES", "RunOptions", "Solve", "TooLittleMemory", "read_small", "rows_at_once", "run", "solve", "value_of"]

Vector = NDArray[np.float64]
Minimize = Callable[..., Result]
Solve = Callable[..., Generator[Ask, Any, None]]

_PART = 1 << 22  # bytes of a part: a few fit in the cache, and thousands are soon done
_MOST_PASSES = 12  # most passes of one problem
_NARROWER = 1.0 / 8.0  # of the band of a pilot, once the small problem is solved
_ANCHORS = 20  # rows for each variable that are kept wherever they lie, where pieces are curved,
_ANCHORS_OF_SQUARES = 3  # or where all rows are one piece, so that every one of them has room
_SLIGHTLY = 1.5  # times the rows that there is room for, up to which a band is made narrower
COPIES = 6  # of the rows of a small problem that its solution may take in memory
_TAKEN_UP = (
    0.25  # deviation at which a small problem is taken up, in typical distances from a knot: tuned on 10^3 to 10^4 rows
)
_FLATTER = 2.0**-34  # share by which lines are made flatter: more than what rounding leaves of the equations of a lasso
_SAMPLE_GAP = 1e-2  # of the error of a sample that its own gap may be
_KEPT_DEVIATIONS = 6.0  # deviations from a knot within which rows are kept after the path
_CHANCE = 5.0  # times what the minimiser of a bound is expected to be off by
# Rows of a pilot where passes are cheap: so many, or so many for each variable.
_PILOT_ROWS, _PILOT_ROWS_PER_VARIABLE = 1000, 40
_SMALL_PROBLEM_ROWS = 2000  # rows of a small problem there
# Rows for each variable that go before all of them, or the share of all, where more.
_THINNED, _THINNED_SHARE = 4000, 16
_ALL = 1 << 20  # entries up to which all rows are read, and nothing else is done


class TooLittleMemory(ValueError):
    """What `memory` allows is too little for the problem."""


class RunOptions(NamedTuple):
    """What a run was asked for."""

    tol: float
    memory: int
    minimize: Minimize  # of an objective in memory, stopped as the run is
    check: Callable[[], None]  # stops the run when its time is up, where no pass does
    seed: int = 0


def read_small(values: Sequence[Any], memory: int) -> DataPart | None:
    """All rows of what is not in memory, where they are few; what is not finite is named."""
    columns = columns_in(values)
    table = table_of(columns)
    entries = sum(int(np.prod(c.shape[1:])) for c in columns) * table.count
    if entries > _ALL or 8 * COPIES * entries > memory:
        return None
    part = _all(table, columns, table.count)
    try:
        for column in columns:
            check_finite(column, part)
    except BadRow as bad:
        raise _told(bad, table, columns) from None
    return part


def rows_at_once(problem: Problem, options: RunOptions) -> int:
    """How many rows a sample should have; -1 for all of them, where that is as good."""
    entries = problem.count * (problem.size + 2)
    most = options.memory // (COPIES * problem.row_bytes)
    if most < min(problem.count, 4 * problem.size + 100):
        needed = COPIES * problem.row_bytes * (4 * problem.size + 100)
        raise TooLittleMemory(f"memory must be at least {max(needed / 1e6, 0.1):.1f} MB for rows of this length.")
    wanted = min(most, int(math.sqrt(problem.size) * problem.count ** (2.0 / 3.0)) + 1000)
    return -1 if entries <= _ALL or 2 * wanted >= problem.count else wanted


def solve(problem: Problem, state: State, options: RunOptions) -> Generator[Ask, Any, None]:
    """Lower the bracket of `state`, by passes over the data."""
    wanted = rows_at_once(problem, options)
    if wanted < 0:
        yield from _at_once(problem, state, options)
        return
    cheap = isinstance(problem.table, OnDevice)  # passes cost less than rows on the host
    if cheap:
        wanted = min(wanted, max(_PILOT_ROWS, _PILOT_ROWS_PER_VARIABLE * problem.size))
    sample: DataPart = yield Ask(rows=wanted if problem.knotted else min(wanted, _PILOT_ROWS))
    if not problem.knotted:  # the Hessian is that of any point: no pilot knows more than zero
        state.unit = unit_of(problem, sample)
        band = Band.empty(problem.size, problem.blocks)
        yield from _freeze(problem, state, options, np.zeros(problem.size), band, relations_of(problem, sample))
        return
    if cheap:
        x = state.latest = on_sample(problem, sample)
        yield from _closer(problem, state, options, x, sample, cheap)
        return
    pilot = options.minimize(
        problem.on(sample, problem.count / sample.count), tol=max(options.tol, _SAMPLE_GAP * problem.size / wanted),
        proved=False,
    )  # fmt: skip
    state.unit, state.latest, x = pilot.state.unit, pilot.x, pilot.x  # type: ignore[union-attr]
    state.steps += pilot.nit
    band = band_of(problem, sample, x, problem.count)
    few = options.memory // (COPIES * problem.row_bytes)  # rows that a small problem may have
    if few < band.most * problem.count <= _SLIGHTLY * few:  # a narrower one may cost a pass, and the path would
        band = band.narrowed(few / (band.most * problem.count))
    if band.most * problem.count > (1.0 + 1e-9) * few:
        yield from _closer(problem, state, options, x, sample, cheap)
    else:
        relations = relations_of(problem, sample)
        del sample
        yield from _freeze(problem, state, options, x, band, relations)


def _closer(
    problem: Problem, state: State, options: RunOptions, x: Vector, sample: DataPart, cheap: bool
) -> Generator[Ask, Any, None]:
    """By the path on all rows, until few enough are near a knot to be kept."""
    few = options.memory // (COPIES * problem.row_bytes)
    if cheap:
        few = min(few, max(_SMALL_PROBLEM_ROWS + _PILOT_ROWS_PER_VARIABLE * problem.size, math.isqrt(problem.count)))
    lengths, error = typical_lengths(problem, sample, x), math.sqrt(problem.size / sample.count)
    if not math.isfinite(state.upper):
        state.unit = unit_of(problem, sample)
    relations = relations_of(problem, sample)
    del sample
    x, band = yield from _nearer(problem, state, x, lengths, error, few, cheap)
    yield from _freeze(problem, state, options, x, band, relations)


def _nearer(
    problem: Problem, state: State, x: Vector, lengths: Sequence[float], error: float, few: int, cheap: bool
) -> Generator[Ask, Any, tuple[Vector, Band]]:
    """Follow the path on all rows until few enough lie where the optimum may take them, and keep those.

    The minimiser of the bound at sigma is about ``sigma^2 + sqrt(sigma p / n)`` from the optimum, in typical distances
    of rows from a knot: what smoothing changes in the mean, and by chance.
    """

    def step() -> None:
        state.steps += 1

    def reach(sigma: float) -> float:
        return min(_KEPT_DEVIATIONS * sigma, _CHANCE * (sigma**2 + math.sqrt(sigma * problem.size / problem.count)))

    def last(at: Reached) -> bool:
        sigma = at.deviations[0] / lengths[0]
        state.latest, state.sigma = at.x, sigma
        return at.near * reach(sigma) / (4.0 * sigma) <= few

    every = max(1, problem.count // max(_THINNED * problem.size, problem.count // _THINNED_SHARE)) if cheap else 1
    if every > 4:
        rough = math.sqrt(problem.size * every / problem.count)
        start = [min(1.0, error) * length for length in lengths]
        thin = yield from follow(
            problem, x, start, lambda at: at.deviations[0] <= 2.0 * rough * lengths[0], step, every
        )
        x, error = thin.x, min(error, 2.0 * rough)
    path = yield from follow(problem, x, [min(1.0, error) * length for length in lengths], last, step)
    sigma = path.deviations[0] / lengths[0]
    share = path.near * reach(sigma) / (4.0 * sigma) / problem.count
    return path.x, Band.within([reach(sigma) * length for length in lengths], lengths, problem.size, share)


def _at_once(problem: Problem, state: State, options: RunOptions) -> Generator[Ask, Any, None]:
    """Read all rows, where they are few."""
    parts: DataPart = yield Ask(rows=-1)
    result = options.minimize(problem.on(parts), tol=options.tol)
    state.unit = result.state.unit  # type: ignore[union-attr]
    state.x, state.upper, state.lower, state.bound = result.x, result.upper, result.lower, result.fun
    state.assumption, state.falls = result.certificate.assumption, result.status is Status.UNBOUNDED
    state.steps += result.nit
    state.ran = [result.method]
    state.record()


def _freeze(
    problem: Problem, state: State, options: RunOptions, x: Vector, band: Band, relations: Relations
) -> Generator[Ask, Any, None]:
    """Solve small problems in which far rows are lines, each a pass nearer to the whole one."""
    anchors = _ANCHORS if problem.knotted else _ANCHORS_OF_SQUARES
    every = max(1, problem.count // (anchors * problem.size + 1000)) if problem.curved else 0
    hessian: Vector | None = None
    failures = 0
    for attempt in range(_MOST_PASSES):
        if not _has_room(problem, band, options):
            if math.isfinite(state.upper):
                return  # with what is known by now
            _refuse(problem, band)
        unknown = problem.knotted or hessian is None  # without knots it is the same everywhere
        looked_for = relations.vectors if attempt == 0 and relations.spared.size else None
        room = every if attempt or problem.knotted else 0  # nothing is proved at zero, where squares begin
        work = [
            Sweep(
                x, band.factor, reach, least, room if block.term.degree > 1 else 0, block.term.degree > 1 and unknown,
                relations=looked_for,
            )
            for block, reach, least in zip(problem.blocks, band.reaches, band.least, strict=True)
        ]  # fmt: skip
        swept: list[Swept] = yield Ask(work=work)
        if looked_for is not None:
            relations = relations.where(np.all([s.related for s in swept], axis=0))
        gap = state.gap
        see_value(problem, state, x, swept)
        if state.reached(options.tol):
            return
        if math.isfinite(state.upper) and x is not state.x and problem.knotted and not problem.curved:
            # Lines were not to be trusted so far away: from the best point on, with more rows.
            failures += 1
            x, band = state.x, band.wider(failures)
            continue
        kept, x = _kept(swept), relations.moved(x) if relations.spared.size else x
        small, radius, spread = problem.small(kept, [s.lines for s in swept], spared=relations.spared)
        if problem.curved:
            if attempt or problem.knotted:  # else x is zero
                see_lower(state, _flatter(problem, kept, [s.lines for s in swept], x, relations.spared))
                if not state.reached(options.tol):
                    see_lower(state, Verifier(small, x, radius, spread).bracket().lower)
            if attempt and not state.reached(options.tol):  # as with columns that depend on each other
                _prove(state, small, _solved(small, x, options), radius, spread, options.tol)
            if state.reached(options.tol):
                state.record()
                return
            if unknown:
                hessian = sum((s.hessian for s in swept), np.zeros((problem.size,) * 2))
            small, *_ = problem.small(kept, [s.lines for s in swept], hessian, x, relations.spared)
        result = _solved(small, x, options)
        state.steps += result.nit
        if result.status is Status.UNBOUNDED or not math.isfinite(result.lower):
            # Lines alone may fall for ever where rows do not: then more of them have to stay.
            failures += 1
            band = band.wider(failures)
            continue
        if not problem.curved:
            _prove(state, small, result, radius, spread, options.tol)
        far = strayed(problem, kept, result.x - x, band.factor)
        x = state.latest = result.x
        state.record()
        if attempt > 1 and state.gap > 0.5 * gap:
            band = band.narrowed(4.0)
        elif far:
            band = band.narrowed(0.5)
        elif attempt == 0:
            band = band.narrowed(_NARROWER)
        del kept, small, swept


def _flatter(
    problem: Problem, kept: Sequence[DataPart | None], lines: Sequence[Lines], x: Vector, spared: NDArray[np.intp]
) -> float:
    """What is proved at once with lines that are a little flatter, so that penalties can balance what rounding left."""
    if any(float(np.min(block.term.infimum)) < 0.0 for block in problem.blocks):
        return -math.inf
    small, radius, spread = problem.small(kept, [line.times(1.0 - _FLATTER) for line in lines], spared=spared)
    return Verifier(small, x, radius, spread).direct_lower()


def _solved(small: Objective, x: Vector, options: RunOptions) -> Result:
    """The optimum, near x but for a share of how far the rows kept are from a knot; what it proves is seen to here."""
    return options.minimize(small, tol=0.1 * options.tol, resume=State(x, latest=x, sigma=_TAKEN_UP), proved=False)


def _has_room(problem: Problem, band: Band, options: RunOptions) -> bool:
    return band.most * problem.count * problem.row_bytes * COPIES <= 4.0 * options.memory


def _refuse(problem: Problem, band: Band) -> NoReturn:
    needed = band.most * problem.count * problem.row_bytes * COPIES
    raise TooLittleMemory(
        f"about {needed / COPIES / 1e6:.1f} MB of rows lie near a knot: memory must be at least "
        f"{needed / 1e6:.1f} MB for them to be solved exactly."
    )


def _kept(swept: Sequence[Swept]) -> list[DataPart | None]:
    return [joined(s.kept) if s.kept else None for s in swept]


def see_value(problem: Problem, state: State, x: Vector, swept: Sequence[Swept]) -> None:
    """The objective at x, all rounding charged."""
    value, error = (0.0, 0.0) if not problem.others else Verifier(problem._objective(problem.others), x).value
    total = swept[0].value
    for s in swept[1:]:
        total = total + s.value
    ball = total.ball()
    upper = float(np.nextafter((value + float(ball.middle)) + (error + float(ball.radius)) * (1.0 + 2.0**-20), np.inf))
    if upper < state.upper:
        state.x, state.upper, state.bound = x, upper, value + float(ball.middle)
    state.record()


def see_lower(state: State, lower: float, assumption: str = "") -> None:
    """A lower bound of the whole."""
    if lower > state.lower:
        state.lower, state.assumption = lower, assumption


def _prove(state: State, small: Objective, result: Result, radius: Vector, spread: float, tol: float) -> None:
    """The lower bound of the small problem, for all that its sums may be; with an assumption where none will do."""
    proof = Verifier(small, result.x, radius, spread).bracket(result.state.dual if result.state else None)
    see_lower(state, proof.lower)
    charged = (
        result.lower - spread - float(radius @ (3.0 * np.abs(result.x) + 1e-6 * np.abs(result.x).max(initial=1.0)))
    )
    enough = 0.5 * tol * max(state.unit, abs(result.fun))
    if result.certificate.assumption and charged > proof.lower + enough:
        see_lower(state, charged, result.certificate.assumption)


def value_of(problem: Problem, x: Vector, memory: int) -> tuple[float, float]:
    """The objective at a point, and an upper bound of it, by one pass over the data."""
    state, table = State(x), problem.table
    work = [(0, [Sweep(x)] * len(problem.blocks))]
    size = max(1, min(table.count, min(_PART, memory // 32) // problem.row_bytes))
    try:
        if isinstance(table, OnDevice):
            swept = _Device(table, problem.columns).answers([problem], work)[0]
        else:
            swept = _pass(table, problem.columns, [problem], work, size, lambda _: None)[0]
    except BadRow as bad:
        raise _told(bad, table, problem.columns) from None
    see_value(problem, state, x, swept)
    return state.bound, state.upper


class _Sums(tuple[Any, ...]):
    """Several sums that are added up side by side."""

    def __add__(self, other: Any) -> _Sums:
        return _Sums(a + b for a, b in zip(self, other, strict=True))


@dataclass(frozen=True)
class _Task:
    """All that is asked of a part."""

    work: tuple[tuple[Any, Any, Any], ...]  # blocks, variables, and what to compute of them

    def __call__(self, part: DataPart) -> _Sums:
        return _Sums(request.of(block, variables, part) for block, variables, request in self.work)


def run(
    problems: Sequence[Problem], states: Sequence[State], options: RunOptions, tick: Callable[[float], None],
    way: Solve = solve,
) -> int:  # fmt: skip
    """Solve problems on the same data together; how many passes that took. `tick` is told how many are done."""
    table, columns = problems[0].table, problems[0].columns
    rng, passes = np.random.default_rng(options.seed), 1 if table.counted else 0
    size = max(1, min(table.count, min(_PART, options.memory // 32) // problems[0].row_bytes))
    running = [way(p, s, options) for p, s in zip(problems, states, strict=True)]
    asked: list[tuple[int, Ask]] = []
    answers: dict[int, Any] = dict.fromkeys(range(len(problems)))
    device = _Device(table, columns) if isinstance(table, OnDevice) else None
    with one_thread():
        while True:
            asked = []
            for i, answer in answers.items():
                try:
                    asked.append((i, running[i].send(answer)))
                except StopIteration:
                    continue
            if not asked:
                return passes
            answers = {}
            try:
                samples = [(i, ask.rows) for i, ask in asked if ask.rows]
                if samples:
                    rows = samples[0][1]
                    part = _all(table, columns, size) if rows < 0 else table.sample(columns, rows, rng)
                    for block in problems[0].blocks:
                        inspect(block, problems[0].variables, part)
                    passes += 1 if rows < 0 else table.sample_reads
                    answers |= dict.fromkeys([i for i, _ in samples], part)
                work = [(i, ask.work) for i, ask in asked if not ask.rows]
                if work:
                    if device is not None:
                        answers |= device.answers(problems, work)
                        tick(passes + 1)
                    else:
                        answers |= _pass(table, columns, problems, work, size, partial(_later, tick, passes))
                    passes += 1
            except BadRow as bad:
                raise _told(bad, table, columns) from None


def _told(bad: BadRow, table: Table, columns: Sequence[DataColumn]) -> ValueError:
    """In a sentence, with the file that the entry is in."""
    place = next((c.table for c in columns if c.key == bad.key and c.table is not None), table)
    return ValueError(bad.sentence(place.locate(bad.row)))


class _Device:
    """The blocks of problems on a device."""

    def __init__(self, table: OnDevice, columns: Any) -> None:
        self.table, self.columns, self.known = table, columns, {}  # type: ignore[var-annotated]

    def answers(self, problems: Sequence[Problem], work: Any) -> dict[int, Any]:
        """One pass, for all that is asked."""
        return {
            i: [self._answer(i, b, problems[i], request) for b, request in enumerate(requests)] for i, requests in work
        }

    def _answer(self, i: int, b: int, problem: Problem, request: Sweep | Moments) -> Any:
        block = request.applied(problem.blocks[b]) if isinstance(request, Sweep) else problem.blocks[b]
        if (i, b) not in self.known or self.known[i, b].term is not block.term:
            self.known[i, b] = DeviceRows(block, problem.variables, self.table, self.columns)
        rows = self.known[i, b]
        return rows.moments(request) if isinstance(request, Moments) else sweep_device(rows, request)


def _later(tick: Callable[[float], None], passes: int, done: float) -> None:
    tick(passes + done)


def _all(table: Any, columns: Any, size: int) -> DataPart:
    return joined([read() for read in table.parts(columns, size)])


def _pass(
    table: Any, columns: Any, problems: Sequence[Problem], work: Any, size: int, tick: Callable[[float], None]
) -> dict[int, Any]:
    """One pass over the data, for all that is asked."""
    flat = [
        (block, problems[i].variables, request)
        for i, requests in work
        for block, request in zip(problems[i].blocks, requests, strict=True)
    ]
    sums = list(table.reduce(columns, _Task(tuple(flat)), size, lambda done: tick(done / table.count)))
    answers = {}
    for i, requests in work:
        answers[i], sums = sums[: len(requests)], sums[len(requests) :]
    return answers
