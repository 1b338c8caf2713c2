"""Train on the error rate itself: the smoothed 0-1 loss against logistic and hinge, with outliers and wrong labels.

Run ``python examples/zero_one_classifier.py``; it needs PyTorch and Matplotlib, takes about a minute, prints test
accuracies over six seeds with standard errors and writes ``zero_one_classifier.png``.

The 0-1 loss has no gradient. Its average under noise in the scores has one, and bounds it; noise that falls from
several times the spread of the scores to a twentieth of it leads from a convex problem to the error rate.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from varopt import nn

SEEDS = 6
STEPS = 250
LOSSES = ("smoothed 0-1", "logistic", "hinge")


def with_outliers(seed: int) -> tuple[torch.Tensor, ...]:
    """Two clouds in the plane; a tenth of one class lies far out on the wrong side. Test points are clean."""
    rng = np.random.default_rng(seed)

    def clouds(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(0, 2, n)
        return rng.standard_normal((n, 2)) + np.where(
            y[:, None] == 1, [1.2, 0.6], [-1.2, -0.6]
        ), y

    x, y = clouds(300)
    far = np.flatnonzero(y == 1)[: y.sum() // 10]
    x[far] = rng.normal((-14.0, 4.0), 1.0, (far.size, 2))
    return tuple(torch.tensor(a, dtype=torch.float32) for a in (x, y, *clouds(4000)))


def with_wrong_labels(seed: int) -> tuple[torch.Tensor, ...]:
    """Breast cancer data; of the training labels of one class three in ten are wrong."""
    rng = np.random.default_rng(seed)
    x, y = load_breast_cancer(return_X_y=True)
    x, x_test, y, y_test = train_test_split(
        x, y, test_size=0.4, random_state=seed, stratify=y
    )
    centre, scale = x.mean(axis=0), x.std(axis=0)
    wrong = np.where((y == 1) & (rng.random(y.size) < 0.3), 1 - y, y)
    arrays = ((x - centre) / scale, wrong, (x_test - centre) / scale, y_test)
    return tuple(torch.tensor(a, dtype=torch.float32) for a in arrays)


def model_of(kind: str, features: int) -> torch.nn.Module:
    if kind == "linear":
        return torch.nn.Linear(features, 1)
    return torch.nn.Sequential(
        torch.nn.Linear(features, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
    )


def train(
    kind: str, loss: str, seed: int, x: torch.Tensor, y: torch.Tensor
) -> torch.nn.Module:
    torch.manual_seed(seed)
    model = model_of(kind, x.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03, weight_decay=1e-4)
    for step in range(STEPS):
        optimizer.zero_grad()
        scores = model(x)[:, 0]
        if loss == "smoothed 0-1":
            # Sigma in units of the scores' spread, so that larger weights do not make it small.
            sigma = (
                float(scores.detach().abs().median())
                * 4.0
                * (0.05 / 4.0) ** (step / (STEPS - 1))
                + 1e-6
            )
            value = nn.zero_one_loss(scores, y, sigma)
        elif loss == "logistic":
            value = torch.nn.functional.binary_cross_entropy_with_logits(scores, y)
        else:
            value = torch.relu(1.0 - (2.0 * y - 1.0) * scores).mean()
        value.backward()
        optimizer.step()
    return model


def accuracy(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return float(((model(x)[:, 0] > 0) == (y > 0.5)).float().mean())


def main(
    output: Path = Path("zero_one_classifier.png"), seeds: int = SEEDS
) -> dict[tuple[str, str, str], list[float]]:
    problems = {"outliers": with_outliers, "wrong labels": with_wrong_labels}
    results: dict[tuple[str, str, str], list[float]] = {}
    lines = {}
    for problem, make in problems.items():
        for seed in range(seeds):
            x, y, x_test, y_test = make(seed)
            for kind in ("linear", "network"):
                for loss in LOSSES:
                    model = train(kind, loss, seed, x, y)
                    results.setdefault((problem, kind, loss), []).append(
                        accuracy(model, x_test, y_test)
                    )
                    if (problem, kind, seed) == ("outliers", "linear", 0):
                        lines[loss] = [p.detach().numpy() for p in model.parameters()]
    picture(output, results, lines)
    return results


def picture(
    output: Path,
    results: dict[tuple[str, str, str], list[float]],
    lines: dict[str, list[np.ndarray]],
) -> None:
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10, 4), layout="constrained", width_ratios=(1, 1.2)
    )
    x, y, _, _ = with_outliers(0)
    left.scatter(*x.T, c=np.where(y > 0.5, "C1", "0.6"), s=6)
    across = np.linspace(-5.0, 5.0, 2)
    for colour, (loss, (weight, bias)) in zip(
        ("C0", "C2", "C3"), lines.items(), strict=True
    ):
        left.plot(
            across,
            -(weight[0, 0] * across + bias[0]) / weight[0, 1],
            color=colour,
            label=loss,
        )
    left.set(
        ylim=(-5, 8),
        xlim=(-17, 5),
        title="a tenth of the orange points is far out",
        xlabel="x1",
        ylabel="x2",
    )
    left.set_xticks((-15, -10, -5, 0, 5))
    left.legend(frameon=False)
    groups = list(dict.fromkeys((p, k) for p, k, _ in results))
    for i, (colour, loss) in enumerate(zip(("C0", "C2", "C3"), LOSSES, strict=True)):
        rows = [np.array(results[(*group, loss)]) for group in groups]
        means, errors = (
            [r.mean() for r in rows],
            [r.std(ddof=1) / np.sqrt(r.size) for r in rows],
        )
        right.bar(
            np.arange(len(groups)) + 0.26 * (i - 1),
            means,
            0.24,
            yerr=errors,
            color=colour,
            label=loss,
            capsize=2,
        )
    right.set(
        ylim=(0.7, 1.0),
        ylabel="test accuracy (mean, standard error)",
        title=f"{len(rows[0])} seeds",
    )
    right.set_xticks(
        range(len(groups)), [f"{problem},\n{kind}" for problem, kind in groups]
    )
    figure.savefig(output, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    outcome = main(*(Path(a) for a in sys.argv[1:2]))
    for (problem, kind, loss), values in outcome.items():
        error = np.std(values, ddof=1) / len(values) ** 0.5
        print(
            f"{problem:13s} {kind:8s} {loss:13s} {np.mean(values):.4f} +- {error:.4f}"
        )
