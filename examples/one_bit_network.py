"""A network with one-bit weights: exact smoothed signs against the straight-through estimator, on handwritten digits.

Run ``python examples/one_bit_network.py``; it needs PyTorch and Matplotlib, takes about a minute, prints test
accuracies over five seeds with standard errors and writes ``one_bit_network.png``.

The straight-through estimator uses sign(w) forward and the slope of the identity backward: the gradient of no function.
Here w is the mean of a Gaussian, the layer uses the average of its sign, and sigma falls until the average is the sign.
Tests always use sign(w). Every method gets its best learning rate of three, on a part of the training data.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from varopt import nn

Data = tuple[torch.Tensor, ...]

SEEDS = 5
EPOCHS = 30
RATES = (0.01, 0.03, 0.1)
METHODS = ("smoothed sign", "straight-through", "real weights")


class BitLinear(torch.nn.Module):
    """A linear layer whose weights are signs, with one real scale."""

    def __init__(self, inputs: int, outputs: int, method: str) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(outputs, inputs) * 0.5)
        self.scale = torch.nn.Parameter(torch.tensor(1.0 / inputs**0.5))
        self.bias = torch.nn.Parameter(torch.zeros(outputs))
        self.method, self.sigma = method, 1.0

    def bits(self) -> torch.Tensor:
        if self.method == "real weights":
            return self.weight
        if not self.training:
            return torch.sign(self.weight)
        if self.method == "smoothed sign":
            return nn.sign(self.weight, self.sigma)
        clipped = self.weight.clamp(-1.0, 1.0)  # the usual form: no gradient beyond one
        return clipped + (torch.sign(self.weight) - clipped).detach()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.scale * self.bits(), self.bias)


def train(
    method: str, seed: int, hidden: int, rate: float, data: Data, epochs: int = EPOCHS
) -> list[float]:
    """The test accuracy of sign(w) after every epoch."""
    torch.manual_seed(seed)
    x, x_test, y, y_test = data
    model = torch.nn.Sequential(
        BitLinear(64, hidden, method), torch.nn.ReLU(), BitLinear(hidden, 10, method)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    course = []
    for epoch in range(epochs):
        for layer in (
            model[0],
            model[2],
        ):  # sigma has fallen before the steps have become small
            layer.sigma = 0.02 ** min(1.0, epoch / (0.8 * epochs))
        for batch in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
        schedule.step()
        model.eval()
        with torch.no_grad():
            course.append(float((model(x_test).argmax(1) == y_test).float().mean()))
        model.train()
    return course


def best_rate(method: str, seed: int, hidden: int, data: Data) -> float:
    """The learning rate that does best on a part of the training data, in a shorter run."""
    x, _, y, _ = data
    cut = int(0.7 * len(x))
    inner = (x[:cut], x[cut:], y[:cut], y[cut:])
    return max(RATES, key=lambda rate: train(method, seed, hidden, rate, inner, 12)[-1])


def digits(seed: int) -> Data:
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(
        x / 16.0, y, test_size=0.4, random_state=seed, stratify=y
    )
    return tuple(torch.tensor(a, dtype=torch.float32) for a in (x, x_test)) + tuple(
        map(torch.tensor, (y, y_test))
    )


def main(
    output: Path = Path("one_bit_network.png"), seeds: int = SEEDS
) -> dict[tuple[int, str], list[float]]:
    results: dict[tuple[int, str], list[float]] = {}
    courses: dict[str, list[list[float]]] = {}
    for hidden in (16, 64):
        for seed in range(seeds):
            data = digits(seed)
            for method in METHODS:
                course = train(
                    method, seed, hidden, best_rate(method, seed, hidden, data), data
                )
                results.setdefault((hidden, method), []).append(course[-1])
                if hidden == 16:
                    courses.setdefault(method, []).append(course)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for colour, (method, rows) in zip(
        ("C0", "C3", "0.6"), courses.items(), strict=True
    ):
        mean, error = (
            np.mean(rows, axis=0),
            np.std(rows, axis=0, ddof=1) / np.sqrt(len(rows)),
        )
        left.plot(mean, color=colour, label=method)
        left.fill_between(
            np.arange(len(mean)),
            mean - error,
            mean + error,
            color=colour,
            alpha=0.25,
            lw=0,
        )
        for i, hidden in enumerate((16, 64)):
            values = np.array(results[hidden, method])
            place = i + 0.26 * (METHODS.index(method) - 1)
            error_bar = values.std(ddof=1) / np.sqrt(values.size)
            right.bar(
                place, values.mean(), 0.24, yerr=error_bar, color=colour, capsize=2
            )
    left.set(
        xlabel="epoch",
        ylabel="test accuracy of sign(w)",
        title="16 hidden units",
        ylim=(0.4, 1.0),
    )
    left.legend(frameon=False)
    right.set(
        ylim=(0.7, 1.0),
        title=f"after {EPOCHS} epochs, {seeds} seeds (mean, standard error)",
    )
    right.set_xticks((0, 1), ("16 hidden units", "64 hidden units"))
    figure.savefig(output, dpi=110)
    plt.close(figure)
    return results


if __name__ == "__main__":
    for (hidden, method), values in main(*(Path(a) for a in sys.argv[1:2])).items():
        print(
            f"{hidden:3d} {method:17s} {np.mean(values):.4f} +- {np.std(values, ddof=1) / len(values) ** 0.5:.4f}"
        )
