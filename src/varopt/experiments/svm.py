"""Figure 4: seconds to 0.1 % of the optimum of a kernelised support vector machine, against the number of points."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import varopt as vo
from varopt.experiments import problems, rivals
from varopt.experiments._measure import Race, timed
from varopt.experiments._tasks import Experiment, ExperimentTask, Plan, Row
from varopt.experiments.report import Agreement, Column, Section, number

__all__ = ["SupportVectors"]

Vector = NDArray[np.float64]

WITHIN = 1e-3  # of the optimum: the paper's "approximate convergence"
MEMORY = 100  # pairs of L-BFGS: the default of the package that the paper used
OURS = "Variational optimization"
SHRINKING, WIDE, NARROW = "Huber, shrinking from h = 10", "Huber, h = 10", "Huber, h = 0.01"
SMO, QP = "SMO (LIBSVM)", "QP on the dual (PIQP)"
AUTO, LINEAR = "varopt, auto", "varopt, auto, in w and b"
TOLERANCES = (
    1e-1,
    3e-2,
    1e-2,
    3e-3,
    1e-3,
    3e-4,
    1e-4,
    1e-5,
)  # of the methods that cannot be watched: the loosest that suffices counts


_GROWS = {
    Agreement.AGREES: "grows more slowly than",
    Agreement.CONTRADICTS: "grows faster than",
    Agreement.OPEN: "cannot be told apart, at two standard errors, from",
}


class SupportVectors(Experiment):
    """Time to approximate convergence, and how it grows."""

    name = "figure4"
    quick = Plan({250: 2, 1000: 2, 1400: 2, 1700: 1, 2000: 1}, budget=2500)
    full = Plan(dict.fromkeys((250, 500, 1000, 1400, 2000, 2800, 4000), 50), budget=5000)
    methods = (OURS, SHRINKING, WIDE, NARROW, SMO, QP, AUTO, LINEAR)

    def cost(self, size: int) -> float:
        """Expected seconds of a repetition."""
        return 4.0 + 8.0 * (size / 1000.0) ** 2

    def run(self, task: ExperimentTask, methods: Collection[str]) -> list[Row]:
        """Race the methods to 0.1 % of the optimum that the QP finds when run until completion."""
        problem = problems.kernel_machine(task.rng(), task.size)
        complete = rivals.dual_qp(problem.K, problem.y, problem.cost, 1e-9)
        optimum = problem.value(complete)
        lower = rivals.dual_value(complete[:-1], problem.K, problem.y, problem.cost)
        rows = []
        for method in methods:
            seconds, best, iterations = _race(problem, method, optimum * (1.0 + WITHIN), task.budget)
            rows.append(
                task.row(
                    method,
                    seconds=seconds,
                    error=best / optimum - 1.0,
                    iterations=iterations,
                    optimum=optimum,
                    lower=lower,
                )
            )
        return rows

    def section(self, rows: Sequence[Row], plan: Plan, seed: int) -> Section:
        """Times, growth exponents, and the answer to the claim."""
        section = Section(self.name, "Figure 4: support vector machines")
        section.say(
            """*What the paper does.* Two Gaussian classes in 100 dimensions, 3.5 apart, linear kernel in the kernelised
            form `β'Kβ + C Σ max(1 − K_n β − b y_n, 0)`, C = 10. Every method starts from the same standard normal draw
            and runs until the objective is within 0.1 % of the optimum that a QP solver finds on the dual. The figure
            itself is not in the source of the paper, so what can be compared is what the text says of it."""
        )
        tolerances = ", ".join(f"{tolerance:g}" for tolerance in TOLERANCES)
        section.say(
            f"""*What was run here.* {plan} (seed {seed}), processor seconds of one thread from K to the target;
            building K, the objective and its check for convexity are off the clock, and so is judging an iterate.
            L-BFGS (SciPy's, memory {MEMORY}) may take {plan.budget} iterations: a run that has not arrived by then has
            no time, and says so. LIBSVM and PIQP cannot be watched: they run at tolerances {tolerances}, and the
            loosest that suffices counts. The Huber loss is run as printed (h = 10), shrinking, and fixed at h = 0.01,
            as the paper says that h must be small. `varopt, auto` runs to a certified optimum, which is more than
            asked; `in w and b` is the same problem written for 100 coefficients instead of N, which a linear kernel
            allows."""
        )
        summaries = {
            (method, size): _summary(rows, method, size) for method in self.methods for size in plan.repetitions
        }
        columns = [
            Column("method"), Column("N", "d"), Column("reached", ".0%"), Column("median seconds", number),
            Column("median iterations", ".0f"), Column("median error at the end", number),
        ]  # fmt: skip
        lines = [(method, size, *summary.values()) for (method, size), summary in summaries.items()]
        section.table(
            "figure4-times", f"Time to {WITHIN:.1%} of the optimum; a dash: not reached in budget", columns, lines
        )

        exponents = {method: growth(rows, method) for method in self.methods}
        common = [row for row in rows if row["size"] >= (exponents[OURS].first or math.inf)]
        shared = {method: growth(common, method) for method in self.methods}
        section.table(
            "figure4-growth",
            "Growth: seconds ≈ c N^e, fitted over the sizes at which every repetition arrived, and over those of them "
            "at which the paper's method arrives",
            [
                Column("method"),
                Column("exponent", ".2f"),
                Column("sizes", "d"),
                Column("from N", "d"),
                Column("exponent where the paper's method arrives", ".2f"),
                Column("sizes there", "d"),
            ],
            [(method, *_line(exponents[method]), *_line(shared[method])[:2]) for method in self.methods],
        )
        panels = {
            "Seconds to 0.1 % of the optimum": partial(_draw, summaries=summaries, plan=plan, methods=self.methods)
        }
        section.figure(
            "figure4",
            "Median time to 0.1 % of the optimum against the number of points, both on logarithmic scales. Where a "
            "line is not there, the target was not reached within the budget.",
            panels,
        )
        self._verdicts(section, summaries, exponents, shared, plan)
        auto = [row for row in rows if row["method"] in (AUTO, LINEAR)]
        section.check(
            "our auto reaches the target every time, in both forms", [row["seconds"] is not None for row in auto]
        )
        section.check(
            "the optimum of the QP is one: a dual point within 10⁻⁶ proves it",
            [row["optimum"] - row["lower"] <= 1e-6 * row["optimum"] for row in rows],
        )
        section.check("nobody is below the dual bound", [row["error"] >= -2e-6 for row in rows])
        return section

    def _verdicts(
        self, section: Section, summaries: Any, exponents: dict[str, Growth], shared: dict[str, Growth], plan: Plan
    ) -> None:
        smallest, largest = min(plan.repetitions), max(plan.repetitions)

        def seconds(method: str, size: int) -> float:
            found = summaries[method, size]["seconds"]
            return math.inf if found is None else float(found)

        fastest, second = sorted((m for m in self.methods if m != LINEAR), key=lambda m: seconds(m, smallest))[:2]
        section.verdict(
            "SMO is the fastest method for small problems.",
            f"At N = {smallest} the fastest is {fastest} ({_time(seconds(fastest, smallest))}), then {second} "
            f"({_time(seconds(second, smallest))}).",
            fastest == SMO,
        )
        section.verdict(
            "For larger problems variational optimization beats SMO.",
            f"At N = {largest}: variational optimization {_time(seconds(OURS, largest))}, SMO "
            f"{_time(seconds(SMO, largest))}, the QP {_time(seconds(QP, largest))}.",
            seconds(OURS, largest) < seconds(SMO, largest),
        )
        ours, smo, qp = (shared[method] for method in (OURS, SMO, QP))
        against = [ours.against(rival) for rival in (smo, qp)]
        arrives = "at no size" if ours.first is None else f"from N = {ours.first} on"
        section.verdict(
            "Variational optimization scales better with N than SMO and than the QP.",
            f"It reaches 0.1 % {arrives}, within {plan.budget} iterations. Exponents there: variational optimization "
            f"{ours}, SMO {smo}, QP {qp}, auto {shared[AUTO]}. Over all sizes: SMO {exponents[SMO]}, QP "
            f"{exponents[QP]}, auto {exponents[AUTO]}, and {exponents[LINEAR]} written in w and b."
            + "".join(f" It {_GROWS[found]} {name}." for name, found in zip(("SMO", "the QP"), against, strict=True)),
            against[0] if against[0] is against[1] else Agreement.PARTLY,
        )
        mine = [exponents[AUTO].against(exponents[method]) for method in (SMO, QP)]
        section.say(
            f"""*And ours?* Left to choose, the library reaches a certified optimum every time. In the kernelised form
            its time {_GROWS[mine[0]]} that of SMO and {_GROWS[mine[1]]} that of the QP; written in w and b, which a
            linear kernel allows, it takes {_time(seconds(LINEAR, largest))} at N = {largest}."""
        )
        wide, shrinking, narrow = (seconds(m, largest) for m in (WIDE, SHRINKING, NARROW))
        paper = seconds(OURS, largest)
        section.verdict(
            "It outperforms the Huber loss without shrinking by about a constant factor.",
            f"At N = {largest}: variational optimization {_time(paper)}; Huber without shrinking {_time(wide)} at h = "
            f"10 and {_time(narrow)} at h = 0.01.",
            Agreement.AGREES
            if paper < min(wide, narrow)
            else Agreement.PARTLY
            if paper < wide
            else Agreement.CONTRADICTS,
        )
        section.verdict(
            "With shrinking, the Huber loss has the same benefit.",
            f"At N = {largest}: {_time(shrinking)} with shrinking, {_time(paper)} for variational optimization.",
            math.isfinite(shrinking) and shrinking <= 2.0 * paper,
        )


def _race(problem: problems.KernelMachine, method: str, target: float, budget: int) -> tuple[float | None, float, int]:
    """Seconds to the target (None: not reached), the best value, iterations."""
    if method in (SMO, QP):
        return _loosest(problem, method, target)
    if method in (AUTO, LINEAR):
        f = problem.objective() if method == AUTO else problem.linear_objective()
        _ = f.curvature
        result, seconds = timed(partial(vo.minimize, f))
        return (seconds if result.fun <= target else None), result.fun, result.nit
    if method == OURS:
        f = problem.objective()
        _ = f.curvature
        race = Race(problem.value, target)
        solver = vo.solvers.LBFGS(memory=MEMORY, most=budget)

        def watch(state: Any) -> None:
            race.watch(state.latest)
            if race.iterations >= budget:
                raise StopIteration

        vo.minimize(f, method=solver, x0=problem.start, tol=0.0, callback=watch)
    else:
        h, factor = {SHRINKING: (10.0, 0.1), WIDE: (10.0, 1.0), NARROW: (0.01, 1.0)}[method]
        race = Race(problem.value, target)
        rivals.chapelle(
            problem.K,
            problem.y,
            problem.cost,
            problem.start,
            race.watch,
            h=h,
            factor=factor,
            most=budget,
            memory=MEMORY,
        )
    return race.seconds, race.best, min(race.iterations, budget)


def _loosest(problem: problems.KernelMachine, method: str, target: float) -> tuple[float | None, float, int]:
    """The run at the loosest tolerance that reaches the target."""
    gram = problem.X @ problem.X.T
    best = math.inf
    for tolerance in TOLERANCES:
        solve: Callable[[], Vector] = (
            partial(rivals.smo, gram, problem.y, problem.cost, tolerance)
            if method == SMO
            else partial(rivals.dual_qp, problem.K, problem.y, problem.cost, tolerance)
        )
        point, seconds = timed(solve)
        best = min(best, problem.value(point))
        if best <= target:
            return seconds, best, 0
    return None, best, 0


@dataclass(frozen=True)
class Growth:
    """``seconds ~ c N^exponent``, with the standard error of the exponent; NaN where there are too few sizes."""

    exponent: float
    error: float
    sizes: int
    first: int | None  # the smallest size that counts

    def __str__(self) -> str:
        return "unknown" if math.isnan(self.exponent) else f"{self.exponent:.2f} ± {self.error:.2f}"

    def against(self, other: Growth) -> Agreement:
        """Whether it grows more slowly than the other, as far as two standard errors can tell."""
        apart = other.exponent - self.exponent
        if not abs(apart) > 2.0 * math.hypot(self.error, other.error):
            return Agreement.OPEN
        return Agreement.AGREES if apart > 0.0 else Agreement.CONTRADICTS


def growth(rows: Sequence[Row], method: str) -> Growth:
    """The slope of log seconds on log N.

    Only sizes at which every repetition arrived count: the others would say how fast the lucky ones were. Fewer than
    three sizes give no slope.
    """
    mine = [row for row in rows if row["method"] == method]
    missed = {row["size"] for row in mine if row["seconds"] is None}
    used = [row for row in mine if row["size"] not in missed]
    sizes = {row["size"] for row in used}
    if len(sizes) < 3:
        return Growth(math.nan, math.nan, len(sizes), min(sizes, default=None))
    x = np.log([row["size"] for row in used])
    y = np.log([row["seconds"] for row in used])
    spread = x - x.mean()
    slope = float(spread @ y / (spread @ spread))
    residual = y - y.mean() - slope * spread
    error = math.sqrt(float(residual @ residual) / (len(used) - 2) / float(spread @ spread))
    return Growth(slope, error, len(sizes), min(sizes))


def _line(fit: Growth) -> tuple[Any, int, int | None]:
    exponent = None if math.isnan(fit.exponent) else (fit.exponent, fit.error)
    return exponent, fit.sizes, fit.first


def _summary(rows: Sequence[Row], method: str, size: int) -> dict[str, Any]:
    mine = [row for row in rows if row["method"] == method and row["size"] == size]
    seconds = [row["seconds"] for row in mine if row["seconds"] is not None]
    iterations = [row["iterations"] for row in mine]
    reached = len(seconds) / len(mine) if mine else math.nan
    return {
        "reached": reached,
        "seconds": float(np.median(seconds)) if reached > 0.5 else None,
        "iterations": float(np.median(iterations)) if any(iterations) else None,
        "error": float(np.median([row["error"] for row in mine])) if mine else None,
    }


def _time(seconds: float) -> str:
    return f"{number(seconds)} s" if math.isfinite(seconds) else "not reached"


def _draw(axes: Any, summaries: Any, plan: Plan, methods: Sequence[str]) -> None:
    markers = "osv^DP*X"
    for method, marker in zip(methods, markers, strict=True):
        points = [(size, summaries[method, size]["seconds"]) for size in plan.repetitions]
        reached = [(size, seconds) for size, seconds in points if seconds is not None]
        axes.plot(*zip(*reached, strict=True) if reached else ([], []), marker=marker, ms=5, label=method)
    axes.set(xscale="log", yscale="log", xlabel="number of points N", ylabel="seconds")
    labels: list[str] = []
    last = 0.0
    for size in sorted(plan.repetitions):  # a label only where it has room
        labels.append(str(size) if size > 1.3 * last else "")
        last = size if labels[-1] else last
    axes.set_xticks(sorted(plan.repetitions), labels)
    axes.minorticks_off()
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.16), ncols=2)
