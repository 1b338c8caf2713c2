"""The figures of ``docs/eda.md``: run ``python docs/figures/eda.py`` to draw them anew beside this file."""

from pathlib import Path

import matplotlib as mpl
import numpy as np

import varopt as vo

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Ellipse

from varopt.solvers.natural_gradient import XNES, CategoricalUpdate, truncation_weights

FOLDER = Path(__file__).parent
BITS, POPULATION = 40, 40


def onemax(x):
    """Bits that are wrong: the optimum is 0."""
    return x.shape[1] - x.sum(axis=1)


def bits():
    """Berny, PBIL and UMDA: one update, three choices of weights and steps."""
    rows = {
        "Berny: values as weights, η = 0.5": (None, 0.5),
        "PBIL: the best tenth, η = 0.1": (truncation_weights(POPULATION, POPULATION // 10), 0.1),
        "UMDA: the better half, η = 1": (truncation_weights(POPULATION, POPULATION // 2), 1.0),
    }
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for color, (label, (weights, rate)) in enumerate(rows.items()):
        bounds, paths = [], []
        for seed in range(10):
            rng = np.random.default_rng(seed)
            model = CategoricalUpdate(np.full(BITS, 2), POPULATION, weights, rate, margin=1 / BITS)
            bound, path = [], []
            for _ in range(60):
                x = model.sample(rng, POPULATION)
                bound.append(BITS - model.theta[:, 1].sum())  # E(theta) itself: f is linear
                path.append(model.theta[0, 1])
                model.tell(x, onemax(x))
            bounds.append(bound)
            paths.append(path)
        generations = np.arange(60)
        axes[0].plot(generations, np.mean(bounds, axis=0), color=f"C{color}", label=label)
        axes[0].fill_between(
            generations, np.min(bounds, axis=0), np.max(bounds, axis=0), color=f"C{color}", alpha=0.15, lw=0
        )
        axes[1].plot(generations, np.array(paths).T, color=f"C{color}", lw=0.6, alpha=0.8)
    axes[0].set(xlabel="generation", ylabel="E(θ)", title="the bound on OneMax, 40 bits (optimum 0)")
    axes[0].legend(fontsize=8)
    axes[1].set(xlabel="generation", ylabel="θ₁", title="one probability, ten runs", ylim=(-0.02, 1.02))
    figure.savefig(FOLDER / "eda_bits.png", dpi=110)
    plt.close(figure)


def kinked(x):
    """A valley with a kink along its floor; the optimum is at (1, 1)."""
    return np.abs(x[:, 1] - x[:, 0]) * 4 + (x[:, 0] - 1) ** 2


def gaussians():
    """The natural gradient of the bound itself, and of ranks."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.0), layout="constrained", sharey=True)
    grid = np.stack(np.meshgrid(np.linspace(-3, 3, 200), np.linspace(-3, 3, 200)), axis=-1).reshape(-1, 2)
    levels = np.sqrt(kinked(grid)).reshape(200, 200)
    for axis, raw, title in zip(axes, (True, False), ("NES: values as weights", "xNES: ranks as weights"), strict=True):
        rng = np.random.default_rng(3)
        model = XNES(np.array([-2.0, 1.5]), 0.8, 20, raw=raw)
        axis.contour(
            grid[:, 0].reshape(200, 200), grid[:, 1].reshape(200, 200), levels, 12, colors="0.75", linewidths=0.6
        )
        means = [model.mean]
        for generation in range(31):
            if generation in (0, 3, 8, 16, 30):
                squares, turn = np.linalg.eigh(model.family.covariance)
                angle = np.degrees(np.arctan2(turn[1, 0], turn[0, 0]))
                axis.add_patch(Ellipse(model.mean, *(2 * squares**0.5), angle=angle, fill=False, color="C0", lw=1.2))
            x = model.sample(rng, model.population)
            model.tell(x, kinked(x))
            means.append(model.mean)
        axis.plot(*np.array(means).T, ".-", color="C3", ms=3, lw=0.8)
        axis.plot(1, 1, "k*", ms=9)
        axis.set(title=title, xlabel="x₁", xlim=(-3, 3), ylim=(-3, 3), aspect="equal")
    axes[0].set_ylabel("x₂")
    figure.savefig(FOLDER / "eda_gaussians.png", dpi=110)
    plt.close(figure)


def course():
    """What a search shows of itself."""
    space = vo.Box(-5, 5, size=5)
    result = vo.minimize(lambda x: 1 + float(np.abs(x - 1).sum() + (x * x).sum()), space, budget=1500, seed=0)
    axes = result.plot()
    axes[0].figure.savefig(FOLDER / "search_course.png", dpi=110)
    plt.close(axes[0].figure)


if __name__ == "__main__":
    bits()
    gaussians()
    course()
