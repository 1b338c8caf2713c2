"""Sums of the largest entries: a minimum over one more variable, which a solver is handed and a user never sees."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from varopt import terms
from varopt.model._affine import Affine, Variable
from varopt.model.blocks._blocks import AffineBlock, Block, Points, TermBlock
from varopt.terms import CONVEX, Curvature

__all__ = ["LargestBlock"]


@dataclass(frozen=True, eq=False)
class LargestBlock(Block):
    r"""The sum of the `count` largest entries of an affine z, or of their sizes; `count` may have a fraction.

    It is ``min_t count t + sum_i max(z_i - t, 0)``, whose minimum over t is at the count-th largest entry: a composite
    in one variable more [RockafellarUryasev00]. Of sizes, the rows ``-z`` are added.

    [RockafellarUryasev00] R. T. Rockafellar, S. Uryasev. Optimization of conditional value-at-risk. Journal of Risk
    2(3), 2000.
    """

    argument: Affine
    count: float
    sizes: bool = False
    name: str = "sum_largest"
    weights: float = 1.0

    rule = "the sum of the largest entries of an affine argument is convex."

    @property
    def variables(self) -> tuple[Variable, ...]:
        return self.argument.variables

    def value(self, points: Points) -> Any:
        z = self.argument.values(points)
        ordered = -np.sort(-(np.abs(z) if self.sizes else z), axis=-1)
        whole = int(self.count)
        total = ordered[..., :whole].sum(axis=-1)
        if whole < self.count:
            total = total + (self.count - whole) * ordered[..., whole]
        return self.weights * total

    @cached_property
    def threshold(self) -> Variable:
        """The variable t."""
        return Variable(name=f"threshold of {self.name}")

    def lifted(self) -> list[Block]:
        """Parts of a composite in one variable more, whose minimum over it is the block."""
        t = self.threshold
        rows = [self.argument - t, *([-self.argument - t] if self.sizes else [])]
        return [
            AffineBlock(t.scale(self.count), self.weights),
            *(TermBlock(terms.pos(), z, self.weights) for z in rows),
        ]

    @property
    def shape_curvature(self) -> tuple[Curvature, str]:
        return CONVEX, f"{self.name} is convex and its argument affine"

    def check(self) -> None:
        self.argument.check()

    def describe(self) -> str:
        count = f", {self.count:g}" if self.name == "sum_largest" else ""
        inner = f"abs({self.argument})" if self.sizes and self.name != "norm_inf" else str(self.argument)
        return f"{self.name}({inner}{count})"
