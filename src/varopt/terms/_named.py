"""The named terms: each is a declaration of knots and coefficients, and an entry of `REGISTRY`.

To add one, write a function that returns a `PiecewisePolynomial` and decorate it with `declare`: its value,
expectation, derivatives, curvature, conjugate and gap follow, the test suite checks them against 50-digit references,
and the table in the documentation shows it. Pieces are written in powers of ``z`` minus their left knot (the first
piece: minus the first knot), or minus the centre given for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from varopt._domains import POSITIVE, REAL, Domain
from varopt.terms._piecewise import PiecewisePolynomial
from varopt.terms.polynomials import own

__all__ = [
    "REGISTRY", "Declaration", "abs_", "capped_abs", "clip", "dead_zone", "epsilon_insensitive", "hinge", "huber",
    "mcp", "pinball", "pos", "ramp", "scad", "square", "squared_hinge", "step", "zero_one",
]  # fmt: skip


@dataclass(frozen=True)
class Declaration:
    """A registered term: how to build it, what its parameters may be, and the formula the documentation shows."""

    name: str
    build: Callable[..., PiecewisePolynomial]
    formula: str
    parameters: Mapping[str, Domain]
    defaults: Mapping[str, float]

    def validate(self, **values: Any) -> dict[str, Any]:
        """The parameters as floats or arrays of their own, or a `ValueError` naming the one outside its domain."""
        unknown = sorted(set(values) - set(self.parameters))
        if unknown:
            accepted = ", ".join(self.parameters) or "no parameters"
            raise TypeError(f"{self.name} takes {accepted}; got {', '.join(unknown)}.")
        checked = {name: self.parameters[name].validate(name, value) for name, value in values.items()}
        for name, array in checked.items():
            if array.ndim > 1 or array.size == 0:
                raise ValueError(
                    f"{name} must be a number, or an array with one entry per row; got shape {array.shape}."
                )
        lengths = sorted({array.size for array in checked.values() if array.ndim})
        if len(lengths) > 1:
            raise ValueError(f"{' and '.join(checked)} must have one length where they differ by row; got {lengths}.")
        return {name: float(v) if v.ndim == 0 else own(v) for name, v in checked.items()}


_SHARED_TERMS = 256  # terms of each name that are kept

_REGISTRY: dict[str, Declaration] = {}
REGISTRY: Mapping[str, Declaration] = MappingProxyType(_REGISTRY)


def declare(
    name: str, formula: str, **parameters: tuple[float, Domain]
) -> Callable[[Callable[..., PiecewisePolynomial]], Callable[..., PiecewisePolynomial]]:
    """Register a term: its public name, its formula, and for each parameter a default and a domain."""

    def register(build: Callable[..., PiecewisePolynomial]) -> Callable[..., PiecewisePolynomial]:
        defaults = {k: default for k, (default, _) in parameters.items()}
        domains = {k: domain for k, (_, domain) in parameters.items()}
        shared: dict[Any, PiecewisePolynomial] = {}  # terms of numbers: immutable, and their facts are computed once

        def construct(*args: Any, **kwargs: Any) -> PiecewisePolynomial:
            key = (args, *kwargs.items()) if all(type(v) is float for v in (*args, *kwargs.values())) else None
            if key in shared:
                return shared[key]
            twice = sorted(set(kwargs) & set(list(defaults)[: len(args)]))
            if len(args) > len(defaults) or twice:
                accepted = ", ".join(defaults) or "no parameters"
                got = f"{', '.join(twice)} twice" if twice else f"{len(args)} values"
                raise TypeError(f"{name} takes {accepted}; got {got}.")
            values = declaration.validate(**{**defaults, **dict(zip(defaults, args, strict=False)), **kwargs})
            try:
                with np.errstate(over="ignore"):  # of what overflows is told below
                    term = build(**values)
            except ValueError as error:
                if str(error).startswith(tuple(values)):
                    raise
                names = " and ".join(values)
                raise ValueError(f"{names} must give {name} finite knots and coefficients: {error}") from None
            object.__setattr__(term, "name", name)
            object.__setattr__(term, "parameters", values)
            if key is not None:
                if len(shared) >= _SHARED_TERMS:
                    shared.clear()
                shared[key] = term
            return term

        construct.__name__ = construct.__qualname__ = build.__name__
        construct.__doc__, construct.__module__ = build.__doc__, build.__module__
        declaration = Declaration(name, construct, formula, MappingProxyType(domains), MappingProxyType(defaults))
        _REGISTRY[name] = declaration
        return construct

    return register


_QUANTILE_LEVEL = Domain(0.0, 1.0, low_open=True, high_open=True, typical=(0.05, 0.95))
_NONNEGATIVE = Domain(low=0.0, typical=(0.0, 2.0))


@declare("abs", "|z|")
def abs_() -> PiecewisePolynomial:
    """``|z|``: the lasso's penalty, the loss of least absolute deviations."""
    return PiecewisePolynomial((0.0,), ((0.0, -1.0), (0.0, 1.0)))


@declare("pos", "max(z, 0)")
def pos() -> PiecewisePolynomial:
    """``max(z, 0)``: the positive part."""
    return PiecewisePolynomial((0.0,), ((0.0,), (0.0, 1.0)))


@declare("hinge", "max(1 - z, 0)")
def hinge() -> PiecewisePolynomial:
    """``max(1 - z, 0)`` of a margin: the loss of the support vector machine."""
    return PiecewisePolynomial((1.0,), ((0.0, -1.0), (0.0,)))


@declare("squared_hinge", "max(1 - z, 0)^2")
def squared_hinge() -> PiecewisePolynomial:
    """``max(1 - z, 0)^2`` of a margin."""
    return PiecewisePolynomial((1.0,), ((0.0, 0.0, 1.0), (0.0,)))


@declare("pinball", "level z for z >= 0, (level - 1) z for z < 0", level=(0.5, _QUANTILE_LEVEL))
def pinball(level: Any) -> PiecewisePolynomial:
    """The check loss of a residual ``y - prediction``: minimised in expectation by the `level` quantile."""
    return PiecewisePolynomial((0.0,), ((0.0, level - 1.0), (0.0, level)))


@declare("epsilon_insensitive", "max(|z| - epsilon, 0)", epsilon=(0.1, _NONNEGATIVE))
def epsilon_insensitive(epsilon: Any) -> PiecewisePolynomial:
    """``max(|z| - epsilon, 0)``: the loss of support vector regression; ``|z|`` where epsilon is 0."""
    if np.any(np.asarray(epsilon) == 0.0):
        if np.any(np.asarray(epsilon) != 0.0):
            raise ValueError("epsilon must be zero for all rows or for none: without a flat part there is one knot.")
        return PiecewisePolynomial((0.0,), ((0.0, -1.0), (0.0, 1.0)))
    return PiecewisePolynomial((-epsilon, epsilon), ((0.0, -1.0), (0.0,), (0.0, 1.0)))


@declare("huber", "z^2 / 2 for |z| <= delta, delta (|z| - delta / 2) beyond", delta=(1.0, POSITIVE))
def huber(delta: Any) -> PiecewisePolynomial:
    """Huber's loss: quadratic up to `delta`, linear beyond."""
    half = 0.5 * delta * delta
    return PiecewisePolynomial((-delta, delta), ((half, -delta), (0.0, 0.0, 0.5), (half, delta)), (-delta, 0.0, delta))


@declare("step", "1 for z >= 0, 0 for z < 0")
def step() -> PiecewisePolynomial:
    """``1[z >= 0]``, the paper's first example [SB12, section 1.1]."""
    return PiecewisePolynomial((0.0,), ((0.0,), (1.0,)))


@declare("zero_one", "1 for z <= 0, 0 for z > 0")
def zero_one() -> PiecewisePolynomial:
    """``1[z <= 0]`` of a margin: an error counts one, and so does a margin of zero."""
    return PiecewisePolynomial((0.0,), ((1.0,), (0.0,)), at_knot="left")


@declare("ramp", "min(1, max(1 - z, 0))")
def ramp() -> PiecewisePolynomial:
    """``min(1, max(1 - z, 0))`` of a margin: a hinge that stops at one, so that outliers do not matter."""
    return PiecewisePolynomial((0.0, 1.0), ((1.0,), (0.0, -1.0), (0.0,)), (0.0, 1.0, 1.0))


@declare("capped_abs", "min(|z|, cap)", cap=(1.0, POSITIVE))
def capped_abs(cap: Any) -> PiecewisePolynomial:
    """``min(|z|, cap)``: capped L1."""
    return PiecewisePolynomial((-cap, 0.0, cap), ((cap,), (0.0, -1.0), (0.0, 1.0), (cap,)), (0.0,) * 4)


@declare(
    "mcp", "lam |z| - z^2 / (2 gamma) for |z| <= gamma lam, gamma lam^2 / 2 beyond",
    lam=(1.0, POSITIVE), gamma=(3.0, Domain(1.0, low_open=True, typical=(1.5, 4.0))),
)  # fmt: skip
def mcp(lam: Any, gamma: Any) -> PiecewisePolynomial:
    """The minimax concave penalty (Zhang, 2010)."""
    end, top, half = gamma * lam, 0.5 * gamma * lam * lam, -0.5 / gamma  # half of the curvature
    return PiecewisePolynomial((-end, 0.0, end), ((top,), (0.0, -lam, half), (0.0, lam, half), (top,)), (0.0,) * 4)


@declare(
    "scad", "lam |z| for |z| <= lam, then a parabola that is flat from |z| = a lam on",
    lam=(1.0, POSITIVE), a=(3.7, Domain(2.0, low_open=True, typical=(2.5, 5.0))),
)  # fmt: skip
def scad(lam: Any, a: Any) -> PiecewisePolynomial:
    """The smoothly clipped absolute deviation penalty (Fan and Li, 2001)."""
    end, top, half = a * lam, 0.5 * (a + 1.0) * lam * lam, -0.5 / (a - 1.0)  # half of the curvature
    return PiecewisePolynomial(
        (-end, -lam, 0.0, lam, end),
        ((top,), (lam * lam, -lam, half), (0.0, -lam), (0.0, lam), (lam * lam, lam, half), (top,)),
        (-end, -lam, 0.0, 0.0, lam, end),
    )


@declare("clip", "min(max(z, low), high)", low=(-1.0, REAL), high=(1.0, REAL))
def clip(low: Any, high: Any) -> PiecewisePolynomial:
    """``min(max(z, low), high)``."""
    if not np.all(np.asarray(low) < np.asarray(high)):
        raise ValueError(f"low must be less than high; got low={low}, high={high}.")
    return PiecewisePolynomial((low, high), ((low,), (0.0, 1.0), (high,)), (0.0,) * 3)


@declare("dead_zone", "0 for |z| <= width, z - width sign(z) beyond", width=(1.0, POSITIVE))
def dead_zone(width: Any) -> PiecewisePolynomial:
    """``z - clip(z, -width, width)``: no response inside the zone."""
    return PiecewisePolynomial((-width, width), ((0.0, 1.0), (0.0,), (0.0, 1.0)))


@declare("square", "z^2")
def square() -> PiecewisePolynomial:
    """``z^2``, the one term without a knot."""
    return PiecewisePolynomial((), ((0.0, 0.0, 1.0),))
