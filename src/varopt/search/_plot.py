"""The course of a search, drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from varopt._display import Panels

__all__ = ["plot_history"]


def plot_history(history: dict[str, NDArray[np.float64]], axes: Any = None) -> Any:
    """Best value and bound on the first axes, spread of the distribution on the second, against evaluations."""
    import matplotlib.pyplot as plt  # optional: the extra `plot`

    axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")[1] if axes is None else axes
    count, best, mean = history["evaluations"], history["best"], history["mean"]
    quantile = stdtrit(np.maximum(history["samples"] - 1.0, 1.0), 0.975)  # Student's
    reach = np.nan_to_num(quantile * history["standard_error"])
    axes[0].plot(count, mean, lw=1, color="C1", label=r"bound: $\langle f \rangle$, 95 % interval")
    axes[0].fill_between(count, mean - reach, mean + reach, color="C1", alpha=0.25, lw=0)
    axes[0].plot(count, best, color="C0", label="best value")
    finite = best[np.isfinite(best)]
    if finite.size and finite.min() > 0 and np.nanmax(mean, initial=0.0) > 100 * finite.min():
        axes[0].set_yscale("log")
    axes[0].set(xlabel="evaluations", ylabel="objective", title="best value and bound")
    axes[0].legend()
    axes[1].semilogy(count, np.where(history["sigma"] > 0, history["sigma"], np.nan), color="C2")
    axes[1].set(xlabel="evaluations", ylabel="spread", title="dispersion of the distribution")
    return Panels.of(axes)
