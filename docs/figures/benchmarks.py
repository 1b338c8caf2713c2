"""Draws the charts of the page on benchmarks from ``benchmarks.json``: ``python docs/figures/benchmarks.py``.

The file holds, for every problem and solver, the fewest seconds that `make bench SUITE=composite` saw, and how far
above the certified lower bound the solver ended; for varopt that is the gap that is proved, with all rounding charged
to it. A limit stands where a solver was stopped without an answer.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).parent
ROWS = json.loads((HERE / "benchmarks.json").read_text(encoding="utf-8"))["rows"]
OURS, OTHERS = "C3", ("C0", "C1", "C2", "C4", "C5", "C6")


def solvers(prefix):
    """The solvers of all problems that begin with this, ours first."""
    names = list(dict.fromkeys(row["solver"] for row in ROWS if row["problem"].startswith(prefix)))
    return sorted(names, key=lambda name: name != "varopt")


def row(problem, solver):
    """What was measured, or an empty row."""
    return next((r for r in ROWS if r["problem"] == problem and r["solver"] == solver), {})


def colours(names):
    return {name: OURS if name == "varopt" else OTHERS[i % len(OTHERS)] for i, name in enumerate(names)}


def bars(axes, problems, labels, names):
    """Seconds of every solver on every problem; hatched where it was stopped without an answer."""
    width = 0.8 / len(names)
    for i, (name, colour) in enumerate(colours(names).items()):
        for j, problem in enumerate(problems):
            measured = row(problem, name)
            seconds, limit = measured.get("seconds"), measured.get("limit")
            if seconds or limit:
                axes.bar(j + i * width, seconds or limit, width, color=colour, alpha=1.0 if seconds else 0.35,
                         hatch=None if seconds else "//", edgecolor="white")  # fmt: skip
        axes.bar(0, np.nan, color=colour, label=name)
    axes.set_yscale("log")
    axes.set_xticks(np.arange(len(problems)) + 0.4 - width / 2, labels)
    axes.set_ylabel("seconds, logarithmic")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.grid(axis="y", alpha=0.3)


def quantiles():
    names = solvers("quantile")
    sizes = ["20000 x 50", "200000 x 50", "1000000 x 20"]
    figure, axes = plt.subplots(figsize=(8, 3.8), layout="constrained")
    bars(axes, [f"quantile regression {s}" for s in sizes], ["20,000 x 50", "200,000 x 50", "1,000,000 x 20"], names)
    axes.set_title("Quantile regression: hatched bars were stopped without an answer")
    figure.savefig(HERE / "benchmarks_quantiles.png", dpi=120)


def machines():
    figure, axes = plt.subplots(figsize=(8, 3.8), layout="constrained")
    for name, colour in colours(solvers("linear SVM")).items():
        shown = [r for r in ROWS if r["problem"].startswith("linear SVM") and r["solver"] == name and r["seconds"]]
        axes.loglog([r["seconds"] for r in shown], [max(r["off"], 1e-16) for r in shown], "o", color=colour, label=name)
    axes.set(xlabel="seconds", ylabel="above the proved bound, relative", title="Linear support vector machines")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.savefig(HERE / "benchmarks_machines.png", dpi=120)


def lassos():
    names = solvers("lasso 5000")
    rhos = ["0", "0.5", "0.95", "0.99"]
    figure, axes = plt.subplots(figsize=(8, 3.8), layout="constrained")
    bars(axes, [f"lasso 5000 x 500, rho = {r}, lambda_max / 200" for r in rhos], rhos, names)
    axes.set(title="The lasso, 5,000 x 500", xlabel="correlation of neighbouring columns")
    figure.savefig(HERE / "benchmarks_lassos.png", dpi=120)


def signals():
    figure, both = plt.subplots(1, 2, figsize=(8.5, 3.6), layout="constrained", sharey=True)
    for axes, kind in zip(both, ("total variation", "trend filtering"), strict=True):
        for name, colour in colours(solvers(kind)).items():
            shown = [r for r in ROWS if r["problem"].startswith(kind) and r["solver"] == name and r["seconds"]]
            points = [int(r["problem"].split()[-2]) for r in shown]
            axes.loglog(points, [r["seconds"] for r in shown], "o-", color=colour, label=name)
        axes.set(title=kind, xlabel="points of the signal")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    both[0].set_ylabel("seconds")
    figure.savefig(HERE / "benchmarks_signals.png", dpi=120)


def at_a_glance():
    """The picture of the front page: what users have today, beside this; its halves apart for phones."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 2.9), layout="constrained")
    beside_others(left)
    above_the_optimum(right)
    figure.savefig(HERE / "at_a_glance.png", dpi=120)
    for draw, name in ((beside_others, "seconds"), (above_the_optimum, "errors")):
        figure, axes = plt.subplots(figsize=(4.75, 2.9), layout="constrained")
        draw(axes)
        figure.savefig(HERE / f"at_a_glance_{name}.png", dpi=120)


def beside_others(axes):
    """Seconds of quantile regression."""
    problem = "quantile regression 20000 x 50"
    named = {
        "scikit-learn QuantileRegressor": "scikit-learn",
        "scikit-learn, highs-ipm": "scikit-learn, ipm",
        "statsmodels QuantReg": "statsmodels",
        "R quantreg pfn": "R quantreg",
    }
    names = [*named, "varopt"]
    seconds = [row(problem, name)["seconds"] for name in names]
    drawn = axes.barh([named.get(n, n) for n in names], seconds, color=[*["C0"] * len(named), OURS])
    axes.bar_label(drawn, [f" {s:.2g} s" for s in seconds])
    axes.set(xscale="log", xlim=(0.01, 400), title="Quantile regression, 20,000 x 50", xlabel="seconds")


def above_the_optimum(axes):
    """How far two support vector machines end above the optimum."""
    machine = "linear SVM, raw breast_cancer, C = {}"
    strengths = ["0.001", "1", "100", "10000"]
    for name, colour, label in (("LIBLINEAR (scikit-learn)", "C0", "LIBLINEAR"), ("varopt", OURS, "varopt")):
        off = [max(row(machine.format(C), name)["off"], 1e-16) for C in strengths]
        axes.loglog([float(C) for C in strengths], off, "o-", color=colour, label=label)
    axes.set(title="SVM on raw data: how far off", xlabel="C", ylabel="above the proved bound")
    axes.legend()


if __name__ == "__main__":
    for draw in (quantiles, machines, lassos, signals, at_a_glance):
        draw()
