"""The parts of an objective: terms, quadratics and norms of affine maps, and polynomials of bits."""

from varopt.model.blocks._blocks import (
    AffineBlock,
    Block,
    ComposedBlock,
    Culprit,
    NormBlock,
    Points,
    QuadraticBlock,
    TermBlock,
    weighted,
    written_term,
)
from varopt.model.blocks._largest_block import LargestBlock
from varopt.model.blocks._polynomial_block import PolynomialBlock, block_sizes, combined, written

__all__ = [
    "AffineBlock",
    "Block",
    "ComposedBlock",
    "Culprit",
    "LargestBlock",
    "NormBlock",
    "Points",
    "PolynomialBlock",
    "QuadraticBlock",
    "TermBlock",
    "block_sizes",
    "combined",
    "weighted",
    "written",
    "written_term",
]
