"""Figures 1 to 3: the bound of |w| and of the lasso, its gap, and the smoothed hinge beside the Huber loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray
from scipy.special import ndtr

import varopt as vo
from varopt.experiments._tasks import Experiment, Plan, Row
from varopt.experiments.report import Column, Section
from varopt.experiments.rivals.chapelle import huber

__all__ = ["Figure1", "Figure2", "Figure3"]

Vector = NDArray[np.float64]


def bound_on(f: Any, means: Vector, sigma: float) -> Vector:
    """E along the mean, for an objective of one variable."""
    return np.array([vo.bound(f, vo.Gaussian([mean], sigma)).value for mean in means])


class Figure1(Experiment):
    """The bound of |w|, and two lassos in one coefficient."""

    name = "figure1"

    def section(self, rows: Sequence[Row], plan: Plan, seed: int) -> Section:
        """The three panels, with the optima of the two lassos."""
        section = Section(self.name, "Figure 1: the bound of |w| and of the lasso")
        w = vo.Variable(1, name="w")
        grid = np.linspace(-2.0, 2.0, 201)
        curves = {sigma: bound_on(vo.norm1(w), grid, sigma) for sigma in (0.1, 0.5, 1.0)}

        def absolute(axes: Any) -> None:
            axes.plot(grid, np.abs(grid), label="|w|")
            for sigma, curve in curves.items():
                axes.plot(grid, curve, "--", label=f"⟨|w|⟩, σ = {sigma:g}")
            axes.set(xlabel="μ")
            axes.legend()

        panels = {"(a) |w| and its bounds": absolute}
        optima = []
        for letter, b, span in (("b", -1.0, (-1.0, 1.5)), ("c", -7.0, (-0.5, 2.0))):
            f = 2.0 * vo.sum_squares(w) + b * vo.sum(w) + 4.0 * vo.norm1(w)
            panels[f"({letter}) the lasso, b = {b:g}"] = partial(_lasso, f=f, means=np.linspace(*span, 201))
            exact = vo.minimize(f)
            optima += [(b, sigma, float(exact.x[0]), _argmin(f, sigma)) for sigma in (0.5, 0.1, 0.01)]
        section.figure(
            self.name,
            "(a) |w| (solid) and its bound for σ in {0.1, 0.5, 1}. (b), (c) The lasso objective 2 w² + b w + 4 |w| for "
            "b = −1 and b = −7 with its bound at σ = 0.5.",
            panels,
        )
        columns = [Column("b", "g"), Column("σ", "g"), Column("argmin f", ".6f"), Column("argmin E", ".6f")]
        section.table("figure1-optima", "Optima of the two lassos and of their bounds", columns, optima)
        shifted = [row[3] - row[2] for row in optima if row[0] == -1.0]
        section.verdict(
            "With b = −1 the optimum is 0 and that of the bound slightly larger: no weight is forced to exactly zero.",
            "argmin E is " + ", ".join(f"{s:.2g}" for s in shifted) + " at σ = 0.5, 0.1, 0.01.",
            all(s > 0.0 for s in shifted),
            rule="argmin E is above zero at each of the three σ",
        )
        far = abs(optima[3][3] - optima[3][2])
        apart = max(abs(row[3] - row[2]) for row in optima if row[0] == -7.0 and row[1] <= 0.1)
        section.verdict(
            "With b = −7 the two optima are numerically very close.",
            f"They differ by at most {apart:.0e} for σ ≤ 0.1, and by {far:.1g} at σ = 0.5.",
            apart < 1e-6,
            rule="they differ by less than 10⁻⁶ for σ up to 0.1",
        )
        at_zero = [float(bound_on(vo.norm1(w), np.zeros(1), sigma)[0]) for sigma in curves]
        section.equal("⟨|w|⟩ at 0 is 2σ/√(2π)", at_zero, [2.0 * s / math.sqrt(2.0 * math.pi) for s in curves])
        section.check("the bound is above |w| everywhere", [np.all(c >= np.abs(grid)) for c in curves.values()])
        return section


def _lasso(axes: Any, f: Any, means: Vector) -> None:
    axes.plot(means, [f([mean]) for mean in means], label="f")
    axes.plot(means, bound_on(f, means, 0.5), "--", label="E, σ = 0.5")
    axes.set(xlabel="w")
    axes.legend()


def _argmin(f: Any, sigma: float) -> float:
    def derivative(mean: float) -> float:
        return float(vo.bound(f, vo.Gaussian([mean], sigma)).gradient["mean"][0])

    return float(scipy.optimize.brentq(derivative, -5.0, 5.0, xtol=1e-14))


class Figure2(Experiment):
    """The gap of |w|, in units of sigma."""

    name = "figure2"

    def section(self, rows: Sequence[Row], plan: Plan, seed: int) -> Section:
        """The gap and its maximum."""
        section = Section(self.name, "Figure 2: how far the bound is above |w|")
        z = np.linspace(-4.0, 4.0, 321)
        gap = np.asarray(vo.terms.abs_().gap(z, np.ones_like(z)))
        printed = z * (1.0 - 2.0 * ndtr(-z)) + math.sqrt(2.0 / math.pi) * np.exp(-0.5 * z**2) - np.abs(z)

        def draw(axes: Any) -> None:
            axes.plot(z, gap)
            axes.set(xlabel="z = μ / σ")

        section.figure(
            self.name, "z (1 − 2Φ(−z)) + √(2/π) exp(−z²/2) − |z|: the gap of |w| in units of σ.", {"the gap": draw}
        )
        section.verdict(
            "The gap is largest at z = 0, where it is √(2/π).",
            f"Largest at z = {z[np.argmax(gap)]:g}, where it is {gap.max():.6f}; √(2/π) = {math.sqrt(2 / math.pi):.6f}",
            bool(z[np.argmax(gap)] == 0.0) and math.isclose(gap.max(), math.sqrt(2.0 / math.pi), rel_tol=1e-12),
            rule="the largest of a grid is at 0, and equal to √(2/π) to 10⁻¹²",
        )
        section.equal("the library's gap is the printed function", gap, printed, rtol=1e-9, atol=1e-14)
        return section


class Figure3(Experiment):
    """Hinge, smoothed hinge and Huber loss, and their slopes."""

    name = "figure3"

    def section(self, rows: Sequence[Row], plan: Plan, seed: int) -> Section:
        """The four panels."""
        section = Section(self.name, "Figure 3: the smoothed hinge and the Huber loss")
        xi = np.linspace(-2.0, 2.0, 401)
        widths = (0.1, 0.5, 1.0)
        smoothed = {s: vo.terms.pos().derivatives(xi, np.full_like(xi, s)) for s in widths}
        value, derivative, curvature = ({s: smoothed[s][k] for s in widths} for k in range(3))
        losses = {h: huber(xi, h) for h in widths}
        kink = np.maximum(xi, 0.0)

        def draw(axes: Any, curves: dict[str, Vector], solid: Vector, name: str) -> None:
            axes.plot(xi, solid, label=name)
            for label, curve in curves.items():
                axes.plot(xi, curve, "--", label=label)
            axes.set(xlabel="ξ = 1 − y (w'x + b)")
            axes.legend()

        step = (xi > 0.0).astype(np.float64)
        panels = {
            "(a) hinge and its VO smoothing": partial(
                draw, curves={f"ς = {s:g}": value[s] for s in widths}, solid=kink, name="hinge"
            ),
            "(b) hinge and Huber loss": partial(
                draw, curves={f"h = {h:g}": losses[h][0] for h in widths}, solid=kink, name="hinge"
            ),
            "(c) slope of the smoothed hinge": partial(
                draw, curves={f"ς = {s:g}": derivative[s] for s in widths}, solid=step, name="hinge"
            ),
            "(d) slope of the Huber loss": partial(
                draw, curves={f"h = {h:g}": losses[h][1] for h in widths}, solid=step, name="hinge"
            ),
        }
        section.figure(
            self.name,
            "The hinge with its smoothing by a Gaussian and with the corrected Huber loss, and the slopes.",
            panels,
        )
        section.check("both are above the hinge", [np.all(value[s] >= kink) for s in widths])
        section.check("so is the Huber loss", [np.all(losses[h][0] >= kink - 1e-15) for h in widths])
        section.equal("the slope of the smoothed hinge is Φ(ξ/ς)", derivative[0.5], ndtr(xi / 0.5), atol=1e-15)
        rates = [float(np.max(np.abs(np.diff(curvature[s])) / np.diff(xi))) for s in widths]
        section.verdict(
            "The Hessian changes more quickly in the solution space when the variance is larger; large variance avoids "
            "overshooting.",
            f"The curvature of the smoothed hinge changes at a rate of at most {rates[0]:.2f}, {rates[1]:.2f}, "
            f"{rates[2]:.2f} at ς = 0.1, 0.5, 1: as 1/ς², so less quickly when the variance is larger. The conclusion, "
            "that a large variance avoids overshooting, follows from this and not from what is printed.",
            rates[0] < rates[-1],
            rule="the largest third derivative grows with ς",
        )
        return section
