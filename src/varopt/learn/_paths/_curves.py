"""The validation curve of a search: what the folds lost along the paths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt._display import not_echoed

__all__ = ["Curves"]

Vector = NDArray[np.float64]

_MOST_DRAWN = 6  # paths that are drawn; of more, the one that was chosen


@dataclass(frozen=True)
class Curves:
    """Losses of shape (paths, settings, folds), those of scores negative, and the settings that were chosen."""

    paths: Sequence[Sequence[dict[str, float]]]
    losses: Vector
    chosen: dict[str, float]

    def draw(self, axis: str, measure: str, axes: Any = None) -> Any:
        """Mean and standard error over the folds, against what varies along a path; the axes."""
        import matplotlib.pyplot as plt

        axes = plt.subplots(figsize=(6, 3.6), layout="constrained")[1] if axes is None else axes
        best = next(k for k, path in enumerate(self.paths) if self.chosen in path)
        shown = range(len(self.paths)) if len(self.paths) <= _MOST_DRAWN else [best]
        sign = -1.0 if measure == "score" else 1.0
        for k in shown:
            values = np.array([settings[axis] for settings in self.paths[k]])
            losses = sign * self.losses[k]
            mean, error = losses.mean(axis=1), losses.std(axis=1, ddof=1) / math.sqrt(losses.shape[1])
            (line,) = axes.plot(values, mean, lw=1.6, label=self._label(k, axis))
            axes.fill_between(values, mean - error, mean + error, color=line.get_color(), alpha=0.2, lw=0)
            if len(shown) == 1:
                axes.plot(values, losses, color="0.6", lw=0.6, zorder=0)
            if k == best:
                place = int(np.argmin(sign * mean))
                axes.plot(values[place], mean[place], "o", color=line.get_color(), ms=5, label="best mean")
        axes.axvline(self.chosen[axis], color="0.3", lw=1, ls="--", label=f"chosen: {self.chosen[axis]:.3g}")
        if min(settings[axis] for settings in self.paths[best]) > 0.0:
            axes.set_xscale("log")
        axes.set(xlabel=axis, ylabel=measure)
        axes.legend(frameon=False, fontsize="small")
        return not_echoed(axes)

    def _label(self, k: int, axis: str) -> str:
        """What the settings of a path have in common; the number of folds where there is but one."""
        common = [f"{name} = {value:.3g}" for name, value in self.paths[k][0].items() if name != axis]
        return ", ".join(common) if common and len(self.paths) > 1 else f"mean of {self.losses.shape[2]} folds"
