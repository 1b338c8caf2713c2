"""A search, drawn: its course, its front, its constraints, what evaluations reported, and the parts of its points."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from varopt._display import Panels
from varopt.search._dimensions import Boolean, Choice, Integer
from varopt.search.goals import hypervolume, violations

if TYPE_CHECKING:
    from varopt.search._shown import Shown

__all__ = ["plot_history", "plot_search"]

Array = NDArray[np.float64]
KINDS = ("history", "front", "constraints", "reports", "parts")


def plot_search(search: Shown, axes: Any = None, kind: str | None = None) -> Any:
    """What `Search.plot` draws."""
    known = _default(search) if kind is None else kind
    if known not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}; got {kind!r}.")
    draw = {"front": _front, "constraints": _constraints, "reports": _reports, "parts": _parts}.get(known)
    return plot_history(search.history, axes) if draw is None else draw(search, axes)


def _default(search: Any) -> str:
    if search._archive is not None:
        return "front"
    if search._width > 1:
        return "constraints"
    return "history" if search._rungs is None else "reports"


def _panels(axes: Any, count: int = 2) -> Any:
    import matplotlib.pyplot as plt  # optional: the extra `plot`

    if axes is not None:
        return np.atleast_1d(np.asarray(axes, dtype=object)).reshape(-1)
    rows, columns = math.ceil(count / 2), min(count, 2)
    made = plt.subplots(rows, columns, figsize=(4.5 * columns, 3.4 * rows), layout="constrained", squeeze=False)[1]
    for empty in made.reshape(-1)[count:]:
        empty.set_axis_off()
    return made.reshape(-1)


def plot_history(history: dict[str, Array], axes: Any = None) -> Any:
    """Best value and bound on the first axes, spread of the distribution on the second, against evaluations."""
    axes = _panels(axes)
    count, best, mean = history["evaluations"], history["best"], history["mean"]
    quantile = stdtrit(np.maximum(history["samples"] - 1.0, 1.0), 0.975)  # Student's
    reach = np.nan_to_num(quantile * history["standard_error"])
    finite = best[np.isfinite(best)]
    positive = finite[finite > 0.0]
    decades = positive.size and finite.min() >= 0.0 and np.nanmax(mean, initial=0.0) > 100 * positive.min()
    if decades:  # an estimate of a few samples may be negative, and has no place there
        mean = np.where(mean > 0.0, mean, np.nan)
    axes[0].plot(count, mean, lw=1, color="C1", label=r"bound: $\langle f \rangle$, 95 % interval")
    axes[0].fill_between(count, mean - reach, mean + reach, color="C1", alpha=0.25, lw=0)
    axes[0].plot(count, best, color="C0", label="best value")
    if decades:
        axes[0].set_yscale("log", nonpositive="clip")  # a best value of zero leads out of the picture
        axes[0].set_ylim(bottom=0.5 * positive.min())
    elif finite.size and (course := float(np.ptp(finite))) > 0.0:  # a bound that begins anew is far from it
        low, high = axes[0].get_ylim()
        axes[0].set_ylim(max(low, finite.min() - course), min(high, finite.max() + course))
    axes[0].set(xlabel="evaluations", ylabel="objective", title="best value and bound")
    axes[0].legend()
    axes[1].semilogy(count, np.where(history["sigma"] > 0, history["sigma"], np.nan), color="C2")
    axes[1].set(xlabel="evaluations", ylabel="spread", title="dispersion of the distribution")
    return Panels.of(axes)


def _numbers(search: Any) -> tuple[Array, Array]:
    """The numbers of all evaluations that did not fail, smaller being better, and when they were told."""
    kept = [(record.number + 1, search._numbers(record)) for record in search.records if record.error is None]
    numbers = np.array([found for _, found in kept]).reshape(len(kept), -1)
    return numbers, np.array([number for number, _ in kept])


def _front(search: Any, axes: Any) -> Any:
    """All evaluations with their front, and the volume that it dominates against evaluations."""
    if search._archive is None:
        raise ValueError("kind 'front' is for several objectives.")
    axes = _panels(axes)
    numbers, when = _numbers(search)
    m, signs = search._signs.size, search._signs
    holds = violations(numbers, m) == 0.0
    values, front = numbers[:, :m], search._archive.values
    axes[0].scatter(*(signs[:2] * values[holds][:, :2]).T, s=8, color="C7", alpha=0.5, label="evaluated")
    if not holds.all():
        axes[0].scatter(
            *(signs[:2] * values[~holds][:, :2]).T, s=10, marker="x", color="C3", lw=0.7, label="breaks a constraint"
        )
    order = np.argsort(front[:, 0], kind="stable")
    shown = signs[:2] * front[order][:, :2]
    if m == 2:
        axes[0].step(*shown.T, where="post", color="C0", lw=1)
    axes[0].scatter(*shown.T, s=16, color="C0", label="front", zorder=3)
    if len(front):
        _look_at(axes[0], shown)
    axes[0].set(xlabel="objective 1", ylabel="objective 2", title=f"{len(front)} points on the front")
    axes[0].legend()
    if len(front) > 1:
        low, high = front.min(axis=0), front.max(axis=0)
        corner = high + 0.1 * np.where(high > low, high - low, 1.0)
        places = np.unique(np.linspace(1, len(values), min(len(values), 60)).round().astype(int))
        volumes = [hypervolume(values[:stop][holds[:stop]].reshape(-1, m), corner) for stop in places]
        axes[1].plot(when[places - 1], np.array(volumes) / hypervolume(front, corner), color="C0")
    axes[1].set(xlabel="evaluations", ylabel="share of the volume at the end", title="dominated volume", ylim=(0, 1.05))
    return Panels.of(axes)


def _look_at(ax: Any, shown: Array) -> None:
    """Keep what is far from the front out of sight."""
    low, high = shown.min(axis=0), shown.max(axis=0)
    reach = np.where(high > low, high - low, 1.0)
    ax.set_xlim(low[0] - reach[0], high[0] + reach[0])
    ax.set_ylim(low[1] - reach[1], high[1] + reach[1])


def _constraints(search: Any, axes: Any) -> Any:
    """Values of what satisfies the constraints and of what does not, and by how much these break them."""
    if search._width == search._signs.size:
        raise ValueError("kind 'constraints' is for constraints that are measured: give constraints=1, or more.")
    axes = _panels(axes)
    numbers, when = _numbers(search)
    m = search._signs.size
    broken = violations(numbers, m)
    holds, values = broken == 0.0, search._signs[0] * numbers[:, 0]
    axes[0].scatter(when[holds], values[holds], s=8, color="C0", alpha=0.6, label="satisfies all")
    axes[0].scatter(when[~holds], values[~holds], s=10, marker="x", lw=0.7, color="C3", label="breaks some")
    if holds.any() and m == 1:
        best = (np.minimum if search._sign > 0 else np.maximum).accumulate(values[holds])
        axes[0].step(when[holds], best, where="post", color="C0", lw=1.5, label="best")
    axes[0].set(xlabel="evaluations", ylabel="objective", title=f"{100 * holds.mean():.0f} % satisfy the constraints")
    axes[0].legend()
    for k, measured in enumerate(numbers[:, m:].T):
        axes[1].plot(when, measured, ".", ms=3, color=f"C{k}", label=f"constraint {k + 1}")
    axes[1].axhline(0.0, color="0.5", lw=1)
    axes[1].set_yscale("symlog", linthresh=max(float(np.abs(numbers[:, m:]).max(initial=0.0)) * 1e-4, 1e-300))
    axes[1].set(xlabel="evaluations", ylabel="measured, at most 0 where it holds", title="constraints")
    axes[1].legend()
    return Panels.of(axes)


def _reports(search: Any, axes: Any) -> Any:
    """What every evaluation reported on its way, and how many steps each took."""
    axes = _panels(axes)
    records = [record for record in search.records if record.reports]
    for record in records:
        steps = np.arange(1, len(record.reports) + 1)
        colour, end = ("C3", "x") if record.stopped else ("C0", "o")
        axes[0].plot(steps, record.reports, color=colour, lw=0.8, alpha=0.5)
        axes[0].plot(steps[-1:], record.reports[-1:], end, color=colour, ms=4)
    for label, colour, end in (("finished", "C0", "o"), ("stopped early", "C3", "x")):
        axes[0].plot([], [], color=colour, marker=end, ms=4, lw=0.8, label=label)
    everything = np.concatenate([record.reports for record in records]) if records else np.empty(0)
    if everything.size and everything.min() > 0 and everything.max() > 100 * everything.min():
        axes[0].set_yscale("log")
    if records and max(len(record.reports) for record in records) > 10:
        axes[0].set_xscale("log")
    axes[0].set(xlabel="step", ylabel="reported value", title="values on the way")
    axes[0].legend()
    steps = np.array([len(record.reports) for record in records])
    stopped = np.array([record.stopped for record in records], dtype=bool)
    numbers = np.array([record.number + 1 for record in records])
    axes[1].bar(numbers[~stopped], steps[~stopped], color="C0", width=0.8)
    axes[1].bar(numbers[stopped], steps[stopped], color="C3", width=0.8)
    share = 100.0 * (1.0 - steps.sum() / max(1, steps.size * steps.max(initial=1)))
    axes[1].set(xlabel="evaluation", ylabel="steps taken", title=f"{share:.0f} % of the steps were saved")
    return Panels.of(axes)


def _parts(search: Any, axes: Any) -> Any:
    """The values of every part against evaluations, the better the darker; what does not exist is not drawn."""
    layout = search._layout
    axes = _panels(axes, len(layout.parts))
    records = [record for record in search.records if record.error is None]
    rows = np.array([record.row for record in records]).reshape(len(records), layout.columns)
    exists = layout.active(rows)
    costs = np.array([np.ravel(search._numbers(record))[0] for record in records])
    ranks = np.argsort(np.argsort(costs, kind="stable"), kind="stable") / max(1, len(costs) - 1)
    when = np.array([record.number + 1 for record in records])
    for ax, (name, part) in zip(axes, layout.parts.items(), strict=False):
        where = layout.slices[name]
        for column in range(where.start, where.stop):
            here = exists[:, column]
            order = np.flatnonzero(here)[np.argsort(-ranks[here], kind="stable")]  # the best on top
            drawn = ax.scatter(when[order], rows[order, column], s=9, c=ranks[order], cmap="viridis", vmin=0, vmax=1)
        if isinstance(part, (Boolean, Choice)):
            ax.set_yticks(range(len(part.options)), [str(option) for option in part.options])
            ax.set_ylim(-0.5, len(part.options) - 0.5)
        elif layout.log[where].all():
            ax.set_yscale("log")
        elif isinstance(part, Integer):
            ax.yaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        shown = "" if exists[:, where.start].all() else f" (in {100 * exists[:, where.start].mean():.0f} % of points)"
        ax.set(xlabel="evaluations", title=(name or "x") + shown)
    bar = ax.figure.colorbar(drawn, ax=list(axes), ticks=[0.0, 1.0], aspect=40)
    bar.ax.set_yticklabels(["best", "worst"])
    return Panels.of(axes)
