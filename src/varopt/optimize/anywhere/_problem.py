"""An objective some of whose rows are elsewhere, and the small objectives that stand for it in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.certificates import Lines
from varopt.composite import NotComposite, rows_of
from varopt.model import Affine, Objective, Variable
from varopt.model.blocks import AffineBlock, Block, QuadraticBlock, TermBlock
from varopt.model.maps import Map, Matrix, Sparse
from varopt.places import DataColumn, DataPart, Table, columns_in, table_of

__all__ = ["Problem"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """An objective, cut into the blocks whose rows are elsewhere and those in memory."""

    objective: Objective

    def __post_init__(self) -> None:
        for block in self.objective.blocks:
            if block.stored and not isinstance(block, TermBlock):
                raise NotComposite(
                    f"{block.describe()} is not summed over rows: of data {block.stored[0].where} only sums of terms "
                    "are minimised, one term a row. See f.explain()."
                )
            if (
                isinstance(block, TermBlock)
                and block.stored
                and (not block.curvature.is_convex or block.term.degree > 2)
            ):
                reason = f"{block.describe()} has rows {block.stored[0].where}"
                raise NotComposite(f"{reason}: only convex terms with pieces of degree at most 2 are minimised there.")
            if not block.curvature.is_convex:
                raise NotComposite(f"{block.describe()} is not known to be convex: {block.curvature_and_reason[1]}.")
        _ = self.table

    @property
    def variables(self) -> tuple[Variable, ...]:
        """In the order of a flat point."""
        return self.objective.variables

    @property
    def size(self) -> int:
        """Number of variables."""
        return self.objective.size

    @cached_property
    def blocks(self) -> tuple[TermBlock, ...]:
        """Those whose rows are elsewhere."""
        return tuple(block for block in self.objective.blocks if block.stored and isinstance(block, TermBlock))

    @cached_property
    def others(self) -> tuple[Block, ...]:
        """Those in memory: penalties."""
        return tuple(block for block in self.objective.blocks if not block.stored)

    @cached_property
    def columns(self) -> list[DataColumn]:
        """What is read in a pass."""
        return columns_in([stored for block in self.blocks for stored in block.stored])

    @cached_property
    def table(self) -> Table:
        """Where it is read from."""
        return table_of(self.columns)

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.table.count

    @property
    def curved(self) -> bool:
        """Whether pieces are curved, so that lines lose what the rows move."""
        return any(block.term.degree > 1 for block in self.blocks)

    @property
    def knotted(self) -> bool:
        """Whether there are knots at all."""
        return any(block.term.knots for block in self.blocks)

    @property
    def row_bytes(self) -> int:
        """What a row takes in memory, in double precision."""
        return 8 * sum(int(np.prod(c.shape[1:])) + 1 for c in self.columns)

    def on(self, part: DataPart, factor: float = 1.0) -> Objective:
        """The objective of some rows, their weights times a factor."""
        blocks = [_scaled(block.at(part), factor) for block in self.blocks]
        return self._objective([*blocks, *self.others])

    def small(
        self,
        kept: Sequence[DataPart | None],
        lines: Sequence[Lines],
        hessian: Vector | None = None,
        x: Vector | None = None,
        spared: NDArray[np.intp] | None = None,
    ) -> tuple[Objective, Vector, float]:
        """The objective of the rows kept, with lines for the others and, where given, their Hessian around x.

        Variables that are spared do not occur. Returned with the error of its linear part and of its constant.
        """
        whole = lines[0]
        for more in lines[1:]:
            whole = whole + more
        gradient, constant = whole.gradient.ball(), whole.constant.ball()
        rows = [b.at(p) for b, p in zip(self.blocks, kept, strict=True) if p is not None and p.count]
        if spared is not None and spared.size:
            rows = [self._without(block, spared) for block in rows]
            gradient.middle[spared] = gradient.radius[spared] = 0.0
            if hessian is not None:
                hessian = np.array(hessian)
                hessian[spared] = hessian[:, spared] = 0.0
        blocks: list[Block] = list(rows)
        line = self._affine(gradient.middle[None, :], float(constant.middle))
        blocks.append(AffineBlock(Affine(line.maps, float(constant.middle), ())))
        if hessian is not None and x is not None:
            places = sp.eye_array(self.size, format="csc")
            maps: dict[Variable, Map] = {v: Sparse(places[:, part]) for v, part in self.objective.slices.items()}
            blocks.append(QuadraticBlock(Affine(maps, -x, (self.size,)), Matrix(hessian), 0.5))
        return self._objective([*blocks, *self.others]), gradient.radius, float(constant.radius)

    def _without(self, block: TermBlock, spared: NDArray[np.intp]) -> TermBlock:
        """Rows in memory that do not see some variables."""
        matrix = np.array(rows_of(block, self.variables).linear.dense(), dtype=np.float64)
        matrix[:, spared] = 0.0
        maps: dict[Variable, Map] = {v: Matrix(matrix[:, part]) for v, part in self.objective.slices.items()}
        return replace(block, argument=Affine(maps, block.argument.offset, block.argument.shape))

    def _affine(self, matrix: Vector, offset: Any) -> Affine:
        maps = {v: Matrix(matrix[:, part]) for v, part in self.objective.slices.items()}
        return Affine(maps, offset, (matrix.shape[0],))

    def _objective(self, blocks: Sequence[Block]) -> Objective:
        """With all variables in it, so that points have one order."""
        objective = Objective(blocks)
        missing = [v for v in self.variables if v not in objective.variables]
        zeros = [AffineBlock(Affine({v: Matrix(np.zeros((1, v.size)))}, 0.0, ())) for v in missing]
        return Objective([*blocks, *zeros]) if zeros else objective


def _scaled(block: TermBlock, factor: float) -> TermBlock:
    return block if factor == 1.0 else replace(block, weights=factor * block.weights)
