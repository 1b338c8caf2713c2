"""Results of problems whose variables have names: nodes of a graph, keys of a mapping, variables of a model."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._display import not_echoed
from varopt._domains import as_finite
from varopt.optimize import Result
from varopt.solvers.discrete import doubles

__all__ = ["MOST_VARIABLES", "LabelledResult", "is_label", "labelled", "mapping_matrix", "mapping_vector"]

MOST_VARIABLES = 10_000_000  # that a number may announce: as the header of a file, an index, or a literal


@dataclass(frozen=True, repr=False)
class LabelledResult(Result):
    """A `Result` that knows what its coordinates are called.

    Attributes
    ----------
    labels : tuple
        The names of the coordinates, in their order: nodes of a networkx graph, labels of a mapping or a model, else
        0, 1, 2, ...
    """

    labels: tuple[Hashable, ...] = ()
    graph: Any = None  # the networkx graph of a cut

    @property
    def sample(self) -> dict[Hashable, int]:
        """The value of each variable, by its label."""
        return dict(zip(self.labels, (int(value) for value in self.x), strict=True))

    @property
    def partition(self) -> tuple[set[Hashable], set[Hashable]]:
        """The labels whose variable is 0, or -1, and those whose variable is 1: the two sides of a cut."""
        ones = {label for label, value in zip(self.labels, self.x.tolist(), strict=True) if value > 0.5}
        return set(self.labels) - ones, ones

    def plot(self, axes: Any = None) -> Any:
        """The bracket of the optimum over time: the best value found, and what none exceeds. Returns the axes.

        Parameters
        ----------
        axes : Matplotlib axes, optional
            Where to draw. Bounds that are many times as far as the last are beyond the frame.

        Notes
        -----
        Needs Matplotlib.
        """
        import matplotlib.pyplot as plt

        axes = plt.subplots(figsize=(6, 3.5), layout="constrained")[1] if axes is None else axes
        time = np.r_[self.history["time"], self.time]
        ends = {side: np.r_[self.history[side], getattr(self, side)] for side in ("upper", "lower")}
        for side, values in ends.items():
            axes.step(time, np.where(np.isfinite(values), values, np.nan), where="post", label=side)
        width = max(self.gap, 0.01 * abs(self.fun), 1e-12)
        if np.isfinite(width):
            axes.set_ylim(self.lower - 3.0 * width, self.upper + 3.0 * width)
        axes.set(xlabel="seconds", ylabel="objective")
        axes.legend(title="bracket of the optimum")
        return not_echoed(axes)

    def draw(self, axes: Any = None, **options: Any) -> Any:
        """A cut, drawn on its graph: the sides in two colours, edges that are cut dashed. Returns the axes.

        Parameters
        ----------
        axes : Matplotlib axes, optional
            Where to draw.
        **options
            Of `networkx.draw_networkx_nodes`; ``pos``, positions of the nodes, else a spring layout.

        Notes
        -----
        Needs networkx and Matplotlib, and a result of `max_cut` of a networkx graph.
        """
        if self.graph is None:
            raise ValueError("draw needs the result of max_cut of a networkx graph; this one was given as a matrix.")
        import matplotlib.pyplot as plt
        import networkx as nx  # type: ignore[import-untyped]

        axes = options.pop("ax", None) if axes is None else axes  # as networkx has it
        axes = plt.subplots(figsize=(6, 5), layout="constrained")[1] if axes is None else axes
        where = options.pop("pos", None) or nx.spring_layout(self.graph, seed=0)
        sides = self.sample
        colours = ["#2f6f9f" if sides[node] else "#e39a3b" for node in self.graph.nodes]
        cut = [(a, b) for a, b in self.graph.edges() if sides[a] != sides[b]]
        held = [(a, b) for a, b in self.graph.edges() if sides[a] == sides[b]]
        nx.draw_networkx_edges(self.graph, where, held, ax=axes, width=1.6)
        nx.draw_networkx_edges(self.graph, where, cut, ax=axes, style="dashed", edge_color="0.55")
        nx.draw_networkx_nodes(self.graph, where, ax=axes, **{"node_color": colours, "node_size": 120, **options})
        proved = "no cut is larger" if self.gap == 0.0 else f"no cut exceeds {self.upper:g}"
        axes.set_title(f"cut {self.fun:g}, {proved}")
        axes.set_axis_off()
        return not_echoed(axes)


def labelled(result: Result, labels: Sequence[Hashable] | None = None, graph: Any = None) -> LabelledResult:
    """A result with names for its coordinates; numbers where there are none."""
    known = {field.name: getattr(result, field.name) for field in fields(Result)}
    return LabelledResult(**known, labels=tuple(range(result.x.size) if labels is None else labels), graph=graph)


def is_label(part: Any) -> bool:
    """Whether a key may name a variable: fractions and truth values are taken for mistakes."""
    return not isinstance(part, (float, np.floating, bool))


def mapping_matrix(name: str, value: Mapping[Any, Any]) -> tuple[Any, list[Hashable] | None, float]:
    """A mapping from pairs of indices, or of labels, to numbers as a matrix; the labels, in order of appearance.

    And what the numbers lose to rounding.
    """
    for key in value:
        if not (isinstance(key, tuple) and len(key) == 2):
            raise ValueError(f"{name} must map pairs (i, j) to numbers; got the key {key!r}.")
        for part in key:
            if not is_label(part):
                raise ValueError(
                    f"{name} must map pairs of whole numbers, or of labels, to numbers; {part!r} in the key {key!r} is "
                    "neither."
                )
    flat = [part for key in value for part in key]
    labels: list[Hashable] | None = None
    if all(isinstance(part, (int, np.integer)) for part in flat):
        least, size = int(min(flat, default=0)), int(max(flat, default=-1)) + 1
        if least < 0:
            raise ValueError(f"{name} must have indices >= 0; got {least}.")
        if size > MOST_VARIABLES:
            raise ValueError(
                f"{name} must have indices below {MOST_VARIABLES}, as places in x; got {size - 1}. Names may be texts."
            )
    else:
        labels = list(dict.fromkeys(flat))
        place = {label: k for k, label in enumerate(labels)}
        flat, size = [place[part] for part in flat], len(labels)
    pairs = np.array(flat, dtype=np.intp).reshape(-1, 2)
    try:
        entries, lost = doubles(value.values())
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must map pairs to numbers; got a value that is none.") from None
    return sp.coo_array((entries, (pairs[:, 0], pairs[:, 1])), shape=(size, size)), labels, lost


def mapping_vector(
    name: str, value: Mapping[Any, Any], labels: Sequence[Hashable] | None, size: int
) -> tuple[NDArray[np.float64], float]:
    """A mapping from indices, or from labels, to numbers as a vector, zero elsewhere; what it loses to rounding."""
    place = {label: k for k, label in enumerate(range(size) if labels is None else labels)}
    for key in value:
        if not is_label(key) or key not in place:
            raise ValueError(f"{name} must map spins to numbers; {key!r} is none of the {size}.")
    try:
        entries, lost = doubles(value.values())
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must map spins to numbers; got a value that is none.") from None
    vector = np.zeros(size)
    vector[[place[key] for key in value]] = as_finite(f"the values of {name}", entries)
    return vector, lost
