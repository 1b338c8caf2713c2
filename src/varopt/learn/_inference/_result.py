"""What is known of coefficients, and how it shows itself."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import f as fisher

from varopt._display import Panels, card, not_echoed, table

__all__ = ["Inference", "JointTest"]

Matrix = NDArray[np.float64]

_COLUMNS = ("coef", "std err", "t", "p", "lower", "upper")


class JointTest(NamedTuple):
    """An F test of several coefficients at once."""

    statistic: float
    df: tuple[int, int]
    pvalue: float


@dataclass(frozen=True, repr=False)
class Inference:
    """What is known of the coefficients of a regression; `varopt.learn.inference` makes it.

    Attributes
    ----------
    names : tuple of str
        Of the coefficients, the intercept first.
    levels : ndarray
        The levels of quantiles; empty for Huber's regression.
    coef : ndarray of shape (n_levels, n_coefficients)
    lower, upper, pvalue, error : ndarray of the same shape
        The interval, the p-value of the coefficient being zero, the standard error (None for rank tests).
    covariance : ndarray or None
        Of all coefficients, level after level.
    draws : ndarray of shape (refits, n_levels, n_coefficients), or None
        The coefficients of a bootstrap's refits.
    method, level, count
        How, with which confidence, and from how many rows.
    clusters : int or None
        How many clusters a bootstrap drew, if it drew clusters.
    """

    names: tuple[str, ...]
    levels: NDArray[np.float64]
    coef: Matrix
    method: str
    level: float
    count: int
    lower: Matrix
    upper: Matrix
    pvalue: Matrix
    error: Matrix | None = None
    covariance: Matrix | None = None
    draws: Any = field(default=None)
    clusters: int | None = None

    def __repr__(self) -> str:
        return self.summary()

    def summary(self) -> str:
        """A table for each level, as text."""
        width = max(len(name) for name in self.names)
        parts = [self._title()]
        for k in range(self.coef.shape[0]):
            columns = self._columns(k)
            if self.levels.size:
                parts.append(f"\nquantile {self.levels[k]:g}")
            parts.append(" ".join([" " * width, *(f"{name:>11}" for name in columns)]))
            for j, name in enumerate(self.names):
                cells = (f"{values[j]:>11.4g}" for values in columns.values())
                parts.append(" ".join([f"{name:<{width}}", *cells]))
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        tables = [
            ("" if not self.levels.size else f"<p>quantile {self.levels[k]:g}</p>")
            + table({"": self.names} | self._columns(k), most=len(self.names))
            for k in range(self.coef.shape[0])
        ]
        return card("Coefficients and their intervals", self._facts(), *tables)

    def to_frame(self) -> Any:
        """A pandas frame with a row for each level and coefficient."""
        frames = importlib.import_module("pandas")  # only here: it is optional
        levels, names = len(self.coef), len(self.names)
        frame = frames.DataFrame({"name": list(self.names) * levels})
        if self.levels.size:
            frame.insert(0, "quantile", np.repeat(self.levels, names))
        columns = [self._columns(k) for k in range(levels)]
        for name in columns[0]:
            frame[name] = np.concatenate([c[name] for c in columns])
        return frame

    def plot(self, names: Any = None, axes: Any = None) -> Any:
        """Each coefficient across the levels, with a band of its intervals; of a single level, bars.

        Needs Matplotlib (the extra `plot`); returns the axes.
        """
        import matplotlib.pyplot as plt

        chosen = self._places(self.names if names is None else names)
        if not chosen:
            raise ValueError("plot got no names of coefficients to draw.")
        if self.levels.size <= 1:
            return self._bars(plt, chosen, axes)
        if axes is None:
            across = min(3, len(chosen))
            down = -(-len(chosen) // across)
            axes = plt.subplots(down, across, figsize=(3.2 * across, 2.5 * down), layout="constrained", squeeze=False)[
                1
            ]
        panels = np.ravel(axes)
        for panel, j in zip(panels, chosen, strict=False):
            lower, upper, limits = _drawn(self.coef[:, j], self.lower[:, j], self.upper[:, j])
            panel.fill_between(self.levels, lower, upper, alpha=0.25, lw=0)
            panel.plot(self.levels, self.coef[:, j], "o-", ms=3)
            panel.axhline(0.0, color="grey", lw=0.8)
            if limits is not None:
                panel.set_ylim(*limits)
            panel.set(title=self.names[j], xlabel="quantile")
        for panel in panels[len(chosen) :]:
            panel.set_axis_off()
        return Panels.of(axes)

    def equal_slopes(self, names: Any = None) -> JointTest:
        """Whether coefficients are the same at all levels: an F test, of all but the intercept by default.

        The test of Koenker and Bassett (1982), as `anova` of R's `quantreg` makes it; of G clusters with G - 1 degrees
        of freedom in the denominator.
        """
        if self.levels.size < 2:
            raise ValueError("equal_slopes compares levels, and there is only one: fit several quantiles.")
        if self.covariance is None:
            raise ValueError('equal_slopes needs a covariance, which method="rank" does not give.')
        slopes = [name for name in self.names if name != "intercept"]
        chosen = self._places(slopes if names is None else names)
        levels, p = self.coef.shape
        if not chosen:
            raise ValueError("equal_slopes got no names of coefficients to compare.")
        if len(np.unique(self.levels)) < levels:
            raise ValueError("equal_slopes compares levels, and one of them was given twice.")
        differences = np.kron(np.diff(np.eye(levels), axis=0), np.eye(p)[chosen])
        value = differences @ self.coef.ravel()
        self._check_count(value.size)
        spread = differences @ self.covariance @ differences.T
        first, second = value.size, self.count * levels - value.size if self.clusters is None else self.clusters - 1
        statistic = float(value @ np.linalg.solve(spread, value)) / first
        return JointTest(statistic, (first, second), float(fisher.sf(statistic, first, second)))

    def _check_count(self, differences: int) -> None:
        """Whether a covariance of so few refits, or clusters, can be inverted."""
        drawn = [(self.clusters, "clusters"), (None if self.draws is None else len(self.draws), "refits")]
        for count, name in drawn:
            if count is not None and count <= differences:
                raise ValueError(
                    f"equal_slopes compares {differences} differences at once, and {count} {name} tell of less: compare"
                    " fewer levels or names" + (", or take more refits." if name == "refits" else ".")
                )

    def _places(self, names: Any) -> list[int]:
        names = [names] if isinstance(names, str) else list(names)
        if unknown := [name for name in names if name not in self.names]:
            raise ValueError(f"There is no coefficient {unknown[0]!r}; there are {', '.join(self.names)}.")
        return [self.names.index(name) for name in names]

    def _bars(self, plt: Any, chosen: list[int], axes: Any) -> Any:
        if axes is None:
            axes = plt.subplots(figsize=(6, 0.35 * len(chosen) + 1.2), layout="constrained")[1]
        places, coef = np.arange(len(chosen)), self.coef[0, chosen]
        lower, upper, limits = _drawn(coef, self.lower[0, chosen], self.upper[0, chosen])
        axes.errorbar(coef, places, xerr=np.abs([coef - lower, upper - coef]), fmt="o", capsize=3)
        axes.axvline(0.0, color="grey", lw=0.8)
        if limits is not None:
            axes.set_xlim(*limits)
        axes.set_yticks(places, [self.names[j] for j in chosen])
        axes.invert_yaxis()
        axes.set(xlabel=f"coefficient, with its {100 * self.level:g} % interval")
        return not_echoed(axes)

    def _columns(self, k: int) -> dict[str, Any]:
        shown: list[Any] = [self.coef[k]]
        if self.error is None:
            names = [name for name in _COLUMNS if name not in ("std err", "t")]
        else:
            names = list(_COLUMNS)
            with np.errstate(divide="ignore", invalid="ignore"):
                shown += [self.error[k], self.coef[k] / self.error[k]]
        return dict(zip(names, [*shown, self.pvalue[k], self.lower[k], self.upper[k]], strict=True))

    def _facts(self) -> list[tuple[str, str]]:
        facts = [("method", self.method), ("confidence", f"{100 * self.level:g} %"), ("rows", str(self.count))]
        return facts if self.clusters is None else [*facts, ("clusters", str(self.clusters))]

    def _title(self) -> str:
        within = "" if self.clusters is None else f" in {self.clusters} clusters"
        return f"{100 * self.level:g} % intervals by {self.method}, {self.count} rows{within}"


def _drawn(coef: Matrix, lower: Matrix, upper: Matrix) -> tuple[Matrix, Matrix, tuple[float, float] | None]:
    """Ends that can be drawn; where some are infinite, limits of the picture that these run out of."""
    values = np.concatenate([coef, lower, upper, [0.0]])
    finite = values[np.isfinite(values)]
    if finite.size == values.size:
        return lower, upper, None
    low, high = float(finite.min()), float(finite.max())
    margin = 0.1 * (high - low) or 1.0
    beyond = np.maximum(lower, low - 2.0 * margin), np.minimum(upper, high + 2.0 * margin)
    return *beyond, (low - margin, high + margin)
