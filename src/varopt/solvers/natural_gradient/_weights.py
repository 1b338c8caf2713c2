"""What a sample is worth, by its rank or by its value.

Ranks make a search invariant under increasing transformations of f. They also change what is descended: the weighted
average of the ranked samples, not E(theta) itself; see mathematics of the sampled bound in `docs/eda.md`.

HO01: N. Hansen and A. Ostermeier, *Completely derandomized self-adaptation in evolution strategies*, Evolutionary
Computation 9(2), 2001. H16: N. Hansen, *The CMA evolution strategy: a tutorial*, arXiv:1604.00772. W14: D. Wierstra et
al., *Natural evolution strategies*, JMLR 15, 2014. SB12: J. Staines and D. Barber, *Variational Optimization*, 2012.
"""

from __future__ import annotations

import math

import numpy as np

from varopt.solvers.natural_gradient._update import Array

__all__ = ["log_weights", "nes_utilities", "raw_weights", "signed_log_weights", "truncation_weights"]


def log_weights(population: int) -> Array:
    """Positive weights of the better half, falling with the logarithm of the rank; they sum to one, as in [HO01]."""
    raw = math.log((population + 1) / 2) - np.log(np.arange(1, population + 1))  # [H16, eq. 49]
    raw = np.maximum(raw, 0.0)
    return np.asarray(raw / raw.sum())


def signed_log_weights(population: int) -> Array:
    """The same, continued below zero for the worse half: the positive ones sum to 1, the negative ones to -1."""
    raw = math.log((population + 1) / 2) - np.log(np.arange(1, population + 1))  # [H16, eq. 49]
    # [H16, eq. 53], but for the factor alpha of the negative ones
    return np.asarray(np.where(raw > 0.0, raw / raw[raw > 0.0].sum(), raw / -raw[raw < 0.0].sum()))


def nes_utilities(population: int) -> Array:
    """Utilities of the natural evolution strategies: log weights, centred so that they sum to zero."""
    # u_k = max(0, log(lambda / 2 + 1) - log k) / sum of these - 1 / lambda [W14, section 3.1]
    raw = np.maximum(0.0, math.log(population / 2 + 1) - np.log(np.arange(1, population + 1)))
    return np.asarray(raw / raw.sum() - 1.0 / population)


def truncation_weights(population: int, selected: int) -> Array:
    """Equal weights on the `selected` best: UMDA's selection, and PBIL's."""
    return np.where(np.arange(population) < selected, 1.0 / selected, 0.0)


def raw_weights(values: Array) -> Array:
    """Minus the values less their average, over their spread: the score function's own weights, with a baseline.

    These descend E(theta) itself. Failed samples count as the worst that did not fail.
    """
    finite = np.isfinite(values)
    if not finite.any():
        return np.zeros_like(values)
    filled = np.where(finite, values, values[finite].max())
    filled = filled / max(1.0, np.abs(filled).max())  # so that no square overflows
    spread = filled.std()
    # (b - f(x_k)) / n of grad E = <(f(x) - b) grad log p(x)>, b the average, in units of the deviation: from
    # [SB12, eq. 2], as grad p = p grad log p, and any b is free, as <grad log p> = 0
    return np.asarray((filled.mean() - filled) / (spread * values.size)) if spread > 0.0 else np.zeros_like(values)
