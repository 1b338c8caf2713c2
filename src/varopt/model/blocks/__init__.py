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
)
from varopt.model.blocks._polynomial_block import PolynomialBlock, combined, written

__all__ = [
    "AffineBlock",
    "Block",
    "ComposedBlock",
    "Culprit",
    "NormBlock",
    "Points",
    "PolynomialBlock",
    "QuadraticBlock",
    "TermBlock",
    "combined",
    "weighted",
    "written",
]
