"""`bound`: the expectation of an objective or a callable under a family, by one of three methods."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from varopt.bounds._bound import Bound, NoClosedForm
from varopt.bounds._family_bound import FamilyBound
from varopt.bounds._layout import Layout, lay_out
from varopt.bounds._points_bound import SamplingOptions, sampled_bound
from varopt.bounds._quadrature import product_rule_bound
from varopt.bounds._target import black_box_target, objective_target
from varopt.families import Bernoulli, Family, LocationScale, OneHotCategorical, Product
from varopt.model import Expression, as_objective

__all__ = ["bound"]

_OPTIONS = {
    "closed_form": (),
    "quadrature": ("nodes",),
    "sampled": ("samples", "seed", "estimator", "antithetic", "quasi"),
}
_OF_CALLABLES = ("vectorized", "gradient")
_DEFAULT_NODES = 24


def bound(f: Any, family: Family, *, method: str | None = None, **options: Any) -> Bound:
    r"""The bound :math:`E(\theta) = \langle f(x) \rangle_{p(x|\theta)}` on the optimum of f.

    Parameters
    ----------
    f : objective or callable
        An objective of variables; or a function of a flat point, a black box.
    family : Family
        p(x|theta): `Gaussian`, `Bernoulli`, ...; over several variables either one family of all coordinates in the
        order of ``f.variables``, or a `Product` keyed by variable. Of one's own: `varopt.families.AffineFamily`, or any
        object that samples itself (`varopt.families.OwnFamily` says what it may have), for sampled bounds.
    method : {"closed_form", "quadrature", "sampled"}, optional
        By default closed form for objectives and sampling for callables. What has no closed form is refused by name.
        Quadrature takes rows one by one where every row is one-dimensional, enumerates bits and choices, and has a
        product rule for what is left: up to 4 real coordinates, 2^18 points in all. A kink across several coordinates
        costs such a rule digits: about four are right in 2, three in 3, two in 4; sampling states its error.
    **options
        Of quadrature: ``nodes``, the Gauss nodes of each panel (24 for rows; 20, 10, 5 in a product rule over 2, 3, 4).

        Of sampling: ``samples`` (4096); ``seed``; ``estimator``, "score" (the default where the family has one) or
        "reparameterized" (of lower variance, for continuous f); ``antithetic``; ``quasi``, scrambled Sobol points in
        16 independent replicates.

        Of callables: ``vectorized``, where f takes all points at once, an array of shape (points, coordinates); and
        ``gradient``, a function that returns the gradient of f, for the reparameterised estimator.

    Returns
    -------
    Bound
        With ``value``, ``gradient``, ``hessian()``, ``gap``, ``max_gap``, ``convex``, ``standard_error``.

    Notes
    -----
    In closed form the value costs one product with the data and, once for an objective, their row norms; the gradient
    in the mean one product more. The gradient in a scalar sigma is then free, in a vector one more pass; in a Cholesky
    factor it costs one weighted Gram matrix, as ``hessian("dense")`` does. Nothing of size rows x rows is formed, and
    memory is a few vectors of one number per row. The data must not be changed while an objective refers to them.

    A score does not see what never happens: sampled gradients in a probability of 0 or 1 are zero, with infinite
    standard error.

    Examples
    --------
    >>> import numpy as np, varopt as vo
    >>> w = vo.Variable(2, name="w")
    >>> f = vo.sum_squares(np.eye(2) @ w - 1.0) + 0.5 * vo.norm1(w)
    >>> E = vo.bound(f, vo.Gaussian([1.0, 0.0], 0.1))
    >>> print(f"{E.value:.4f} above {f([1.0, 0.0]):.4f} by {E.gap:.4f}, nowhere by more than {E.max_gap:.4f}")
    1.5599 above 1.5000 by 0.0599, nowhere by more than 0.0998
    >>> bool(E.convex), E.gradient["mean"].round(3)
    (True, array([ 0.5, -2. ]))

    The probability that two coin flips agree, from a function:

    >>> vo.bound(lambda x: float(x[0] == x[1]), vo.Bernoulli([0.5, 0.25]), method="quadrature").value
    0.5
    """
    found = _bound(f, family, method, dict(options))
    seed = options.get("seed")
    stream = {**options, "seed": np.random.default_rng(seed)} if found.method == "sampled" else options
    layout = found._target.layout
    f = f if layout is None else layout.objective  # whose composite form is kept
    found._again = partial(bound, f, method=found.method, **stream)
    found._mirrored = partial(bound, _minus(f), family, method=found.method, **_minus_gradient(options))
    return found


def _minus(f: Any) -> Any:
    """Minus an objective or a function."""
    return (lambda x: -np.asarray(f(x))) if _is_black_box(f) else -as_objective(f)


def _minus_gradient(options: dict[str, Any]) -> dict[str, Any]:
    gradient = options.get("gradient")
    return options if gradient is None else {**options, "gradient": lambda x: -np.asarray(gradient(x))}


def _is_black_box(f: Any) -> bool:
    return callable(f) and not isinstance(f, Expression)


def _bound(f: Any, family: Any, method: str | None, options: dict[str, Any]) -> Bound:
    if method is not None and method not in tuple(_OPTIONS):  # a tuple: what a user passes need not be hashable
        raise ValueError(f"method must be one of {', '.join(_OPTIONS)}; got {method!r}.")
    if _is_black_box(f):
        method = method or "sampled"
        _check_options(method, options, _OF_CALLABLES)
        box = {name: options.pop(name) for name in _OF_CALLABLES if name in options}
        target = black_box_target(f, family, **box)
        if method == "closed_form":
            raise NoClosedForm(
                f"the callable {target.name} has no closed form: it is a black box. "
                "Use method='sampled', or method='quadrature' in up to 4 real coordinates and 18 bits."
            )
        if method == "quadrature":
            if _is_own(family):
                raise NoClosedForm(f"nothing is known of {family!r} but its samples. Use method='sampled'.")
            return product_rule_bound(target, _nodes(options))
    else:
        method = method or ("sampled" if _is_own(family) else "closed_form")
        _check_options(method, options, ())
        layout = lay_out(as_objective(f).checked, family)
        own = next((c for c in layout.components if c.is_own), None)
        if own is not None and method != "sampled":
            raise NoClosedForm(f"nothing is known of {own.family!r} but its samples. Use method='sampled'.")
        if method == "closed_form":
            return FamilyBound(layout, method, _DEFAULT_NODES)
        if method == "quadrature":
            return _quadrature(layout, _nodes(options))
        target = objective_target(layout)
    return sampled_bound(target, SamplingOptions(**options))


def _is_own(family: Any) -> bool:
    """Whether nothing is known of a family but its samples and its score."""
    return not isinstance(family, (LocationScale, Bernoulli, OneHotCategorical, Product))


def _check_options(method: str, options: dict[str, Any], more: tuple[str, ...]) -> None:
    accepted = (*_OPTIONS[method], *more)
    unknown = sorted(set(options) - set(accepted))
    if unknown:
        known = ", ".join(accepted) or "none"
        raise ValueError(f"method {method!r} has no option {', '.join(unknown)}; accepted here: {known}.")


def _nodes(options: dict[str, Any]) -> int | None:
    nodes = options.get("nodes")
    if nodes is None:
        return None
    if isinstance(nodes, bool) or not isinstance(nodes, (int, np.integer)) or not 2 <= nodes <= 200:
        raise ValueError(f"nodes must be an integer from 2 to 200; got {nodes!r}.")
    return int(nodes)


def _quadrature(layout: Layout, nodes: int | None) -> Bound:
    """Block by block where every block allows it, else over all coordinates at once."""
    try:
        return FamilyBound(layout, "quadrature", nodes or _DEFAULT_NODES)
    except NoClosedForm as refusal:
        if all(c.is_discrete for c in layout.components):
            raise  # too many states in a block: there are no fewer in all
        try:
            return product_rule_bound(objective_target(layout), nodes)
        except NoClosedForm as too_large:
            reason = str(refusal).partition(". Use ")[0].replace("has no closed form", "has no rule of its own")
            raise NoClosedForm(f"{reason}; {too_large}") from None
