"""Bounds on the optimum of a callable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from varopt.bounds._analytic import NoClosedForm
from varopt.bounds._bound import Bound
from varopt.bounds._quadrature import product_rule_bound
from varopt.bounds._sampled import SamplingOptions, sampled_bound
from varopt.bounds._target import black_box_target
from varopt.families import Family

__all__ = ["black_box_bound"]


def black_box_bound(function: Callable[..., Any], family: Family, method: str, options: dict[str, Any]) -> Bound:
    """The bound of a black box, by sampling or, in few coordinates, by a product rule."""
    options = dict(options)
    box = {name: options.pop(name) for name in ("vectorized", "gradient") if name in options}
    if method == "closed_form":
        name = getattr(function, "__name__", type(function).__name__)
        raise NoClosedForm(f"the callable {name} has no closed form: it is a black box. Use method='sampled', or 'quadrature' in few dimensions.")
    target = black_box_target(function, family, **box)
    if method == "quadrature":
        if options:
            raise ValueError(f"unknown option for method 'quadrature': {', '.join(sorted(options))}.")
        return product_rule_bound(target)
    return sampled_bound(target, SamplingOptions.parse(options))
