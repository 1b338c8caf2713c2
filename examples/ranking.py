"""Train a ranking on NDCG itself: exact smoothed NDCG and Spearman against soft ranks and the usual losses.

Run ``python examples/ranking.py``; it needs PyTorch and Matplotlib, takes about a minute, prints test NDCG@5 over six
seeds with standard errors and writes ``ranking.png``. Rivals that are not installed (torchsort, diffsort) are named as
absent; each that is there gets the best of its settings on validation data.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.metrics import ndcg_score

from varopt import nn

SEEDS = 6
STEPS = 150
ITEMS, FEATURES = 12, 8
Loss = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]


def queries(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Lists of items with relevances 0 to 4: a few matter, on a scale of the query's own that no feature tells."""
    rng = np.random.default_rng(seed)
    hidden = np.random.default_rng(99)
    first, second = (
        hidden.standard_normal(FEATURES),
        hidden.standard_normal((FEATURES, 3)),
    )
    x = rng.standard_normal((count, ITEMS, FEATURES))
    merit = (
        x @ first
        + 1.5 * np.tanh(x @ second).prod(axis=-1)
        + 1.2 * rng.standard_normal((count, ITEMS))
    )
    merit = merit + 4.0 * rng.standard_normal((count, 1))
    relevance = np.digitize(merit, [1.0, 3.0, 5.0, 7.0])
    return torch.tensor(x, dtype=torch.float32), torch.tensor(
        relevance, dtype=torch.float32
    )


# -- Losses: scores, relevances, and a number between 1 and 0 that falls during the training ---------------------------


def spread(scores: torch.Tensor) -> torch.Tensor:
    return scores.detach().std() + 1e-6


def smoothed_ndcg(
    scores: torch.Tensor, relevance: torch.Tensor, left: float
) -> torch.Tensor:
    return 1.0 - nn.ndcg(scores, relevance, spread(scores) * (0.1 + 0.9 * left), k=5)


def smoothed_spearman(
    scores: torch.Tensor, relevance: torch.Tensor, left: float
) -> torch.Tensor:
    return 1.0 - nn.spearman(scores, relevance, spread(scores) * (0.1 + 0.9 * left))


def squared(scores: torch.Tensor, relevance: torch.Tensor, left: float) -> torch.Tensor:
    return (scores - relevance).square().mean()


def pairwise(
    scores: torch.Tensor, relevance: torch.Tensor, left: float
) -> torch.Tensor:
    better = relevance[:, :, None] > relevance[:, None, :]
    losses = torch.nn.functional.softplus(scores[:, None, :] - scores[:, :, None])
    return losses[better].mean()


def listwise(
    scores: torch.Tensor, relevance: torch.Tensor, left: float
) -> torch.Tensor:
    return (
        -(torch.softmax(relevance, -1) * torch.log_softmax(scores, -1)).sum(-1).mean()
    )


def sigmoid_ranks(temperature: float) -> Loss:
    """NDCG of ranks made of sigmoids (Qin, Liu and Li, 2010)."""

    def loss(
        scores: torch.Tensor, relevance: torch.Tensor, left: float
    ) -> torch.Tensor:
        scaled = scores / spread(scores) / temperature
        place = 0.5 + torch.sigmoid(scaled[:, None, :] - scaled[:, :, None]).sum(-1)
        gains = 2.0**relevance - 1.0
        ideal = gains.sort(-1, descending=True).values / torch.log2(
            2.0 + torch.arange(ITEMS)
        )
        return (
            1.0
            - (
                (gains / torch.log2(1.0 + place)).sum(-1)
                / ideal.sum(-1).clamp_min(1e-6)
            ).mean()
        )

    return loss


def soft_ranks(strength: float, regularization: str = "l2") -> Loss:
    """Spearman of torchsort's ranks: projections on the permutahedron (Blondel et al., 2020)."""
    import torchsort

    def loss(
        scores: torch.Tensor, relevance: torch.Tensor, left: float
    ) -> torch.Tensor:
        ranks = torchsort.soft_rank(
            scores / spread(scores),
            regularization=regularization,
            regularization_strength=strength,
        )
        wanted = torchsort.soft_rank(relevance, regularization_strength=1e-3)
        ranks, wanted = (
            ranks - ranks.mean(-1, keepdim=True),
            wanted - wanted.mean(-1, keepdim=True),
        )
        return 1.0 - torch.nn.functional.cosine_similarity(ranks, wanted, dim=-1).mean()

    return loss


def sorting_network(steepness: float, distribution: str) -> Loss:
    """NDCG of diffsort's relaxed permutation (Petersen et al., 2021 and 2022)."""
    from diffsort import DiffSortNet

    network = DiffSortNet(
        "odd_even", ITEMS, steepness=steepness, distribution=distribution
    )

    def loss(
        scores: torch.Tensor, relevance: torch.Tensor, left: float
    ) -> torch.Tensor:
        _, permutation = network(-scores / spread(scores))
        gains = 2.0**relevance - 1.0
        discount = 1.0 / torch.log2(2.0 + torch.arange(ITEMS))
        gained = (torch.einsum("bij,bi->bj", permutation, gains) * discount).sum(-1)
        ideal = (gains.sort(-1, descending=True).values * discount).sum(-1)
        return 1.0 - (gained / ideal.clamp_min(1e-6)).mean()

    return loss


RIVALS: dict[str, tuple[str, list[Loss]]] = {}
if importlib.util.find_spec("torchsort"):
    RIVALS["torchsort, Spearman"] = (
        "torchsort",
        [
            *(soft_ranks(s) for s in (0.03, 0.1, 0.3, 1.0)),
            *(soft_ranks(s, "kl") for s in (0.1, 1.0)),
        ],
    )
if importlib.util.find_spec("diffsort"):
    RIVALS["diffsort, NDCG"] = (
        "diffsort",
        [
            sorting_network(s, d)
            for d in ("logistic", "cauchy")
            for s in (5.0, 10.0, 20.0)
        ],
    )
METHODS: dict[str, list[Loss]] = {
    "smoothed NDCG@5": [smoothed_ndcg],
    "smoothed Spearman": [smoothed_spearman],
    "sigmoid ranks, NDCG": [sigmoid_ranks(t) for t in (0.03, 0.1, 0.3)],
    **{name: losses for name, (_, losses) in RIVALS.items()},
    "pairwise logistic": [pairwise],
    "listwise softmax": [listwise],
    "squared error": [squared],
}


def gain(model: torch.nn.Module, x: torch.Tensor, relevance: torch.Tensor) -> float:
    with torch.no_grad():
        scores = model(x)[..., 0].numpy()
    return float(ndcg_score(2.0 ** relevance.numpy() - 1.0, scores, k=5))


def train(
    loss: Loss, seed: int, x: torch.Tensor, relevance: torch.Tensor
) -> torch.nn.Module:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 24), torch.nn.Tanh(), torch.nn.Linear(24, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(model(x)[..., 0], relevance, 1.0 - step / STEPS).backward()
        optimizer.step()
    return model


def main(
    output: Path = Path("ranking.png"), seeds: int = SEEDS
) -> dict[str, list[float]]:
    results: dict[str, list[float]] = {}
    for seed in range(seeds):
        train_set, validation, test = (
            queries(n, 1000 * i + seed) for i, n in enumerate((60, 200, 1000))
        )
        for method, losses in METHODS.items():
            models = [train(loss, seed, *train_set) for loss in losses]
            best = max(models, key=lambda m: gain(m, *validation))
            results.setdefault(method, []).append(gain(best, *test))
    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    for i, (method, values) in enumerate(results.items()):
        error = np.std(values, ddof=1) / np.sqrt(len(values))
        axes.barh(
            -i,
            np.mean(values),
            xerr=error,
            color="C0" if method.startswith("smoothed") else "0.7",
            capsize=2,
        )
    axes.set_yticks([-i for i in range(len(results))], list(results))
    lowest, highest = (pick(map(np.mean, results.values())) for pick in (min, max))
    axes.set(xlim=(lowest - 0.03, highest + 0.02), xlabel="test NDCG@5 (mean, standard error)",
             title=f"a small network, 60 training queries, {seeds} seeds")  # fmt: skip
    figure.savefig(output, dpi=110)
    plt.close(figure)
    return results


if __name__ == "__main__":
    for package in ("torchsort", "diffsort"):
        if not importlib.util.find_spec(package):
            print(f"{package}: not installed")
    for method, values in main(*(Path(a) for a in sys.argv[1:2])).items():
        print(
            f"{method:22s} {np.mean(values):.4f} +- {np.std(values, ddof=1) / len(values) ** 0.5:.4f}"
        )
