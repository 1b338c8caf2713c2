"""`bound`: the expectation of an objective under a family, as a function of the family's parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from varopt.bounds._analytic import Expectation, expectation, gap_bound
from varopt.bounds._layout import Component, Layout, lay_out
from varopt.families import Family, Product
from varopt.model import Expression, as_objective

__all__ = ["AnalyticBound", "Bound", "Gradient", "Verdict", "bound"]

Vector = NDArray[np.float64]
Form = Literal["dense", "diagonal", "operator"]
METHODS = ("closed_form", "quadrature", "sampled")


@dataclass(frozen=True)
class Verdict:
    """A fact and the reason for it; true or false in a condition."""

    holds: bool
    reason: str

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        return f"{'yes' if self.holds else 'not known'}: {self.reason}"


class Gradient(Mapping[Any, Any]):
    """Gradient of a bound in every parameter of its family.

    A mapping: ``gradient["mean"]``, ``gradient["sigma"]``; for a `Product` first by variable. As an array, ``np.asarray(gradient)``, it is the
    gradient in the mean (for bits: in the probabilities), flat: what a solver descends.
    """

    def __init__(self, parts: Mapping[Any, Any], location: Vector) -> None:
        self._parts, self._location = dict(parts), location

    def __getitem__(self, key: Any) -> Any:
        return self._parts[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Vector:
        return np.array(self._location, dtype=dtype)

    def __repr__(self) -> str:
        return f"Gradient({self._parts!r})"


class Bound(ABC):
    """The bound ``E(theta) = <f(x)>_{p(x|theta)}`` at one theta. Made by `varopt.bound`; what is asked for is computed once.

    For every theta, min f <= E <= max f: an upper bound on the minimum and a lower bound on the maximum.
    """

    method: str
    family: Family

    @property
    @abstractmethod
    def value(self) -> float:
        """E."""

    @property
    @abstractmethod
    def gradient(self) -> Gradient:
        """The gradient of E in every parameter of the family."""

    @abstractmethod
    def hessian(self, form: Form = "dense") -> Any:
        """Second derivatives of E in the mean: an array, its diagonal, or a `LinearOperator`."""

    @property
    @abstractmethod
    def gap(self) -> float:
        """E minus f at the mean (at the mode, for bits): how much the smoothing adds here."""

    @property
    @abstractmethod
    def max_gap(self) -> float:
        """An upper bound on ``|gap|`` over all means, for this dispersion."""

    @property
    @abstractmethod
    def convex(self) -> Verdict:
        """Whether E is known to be convex in theta, with the reason (Theorem 1)."""

    @property
    def standard_error(self) -> float:
        """Standard error of `value`: zero unless it was sampled."""
        return 0.0

    @property
    def gradient_standard_error(self) -> Gradient:
        """Standard error of `gradient`, entry by entry: zero unless it was sampled."""
        return Gradient({}, np.zeros(0))

    def __repr__(self) -> str:
        error = f" +- {self.standard_error:.2g}" if self.standard_error else ""
        return f"<bound {self.value:.10g}{error}, {self.method}, under {type(self.family).__name__} of {self.family.size} coordinates>"


def assemble(layout: Layout, by_component: list[dict[str, Any]], location: Vector) -> Gradient:
    """Gradients of the components in the shape of the family's parameters."""
    if isinstance(layout.family, Product):
        return Gradient({c.key: parts for c, parts in zip(layout.components, by_component, strict=True)}, location)
    return Gradient(by_component[0] if by_component else {}, location)


def theorem_one(layout: Layout) -> Verdict:
    """Theorem 1: a convex f under an expectation affine family has a convex bound."""
    if not layout.family.expectation_affine:
        return Verdict(False, f"{type(layout.family).__name__} is not expectation affine, which Theorem 1 asks for")
    if layout.objective.curvature.is_convex:
        return Verdict(True, "Theorem 1: f is convex and the family is expectation affine")
    return Verdict(False, f"f is {layout.objective.curvature.description}: see f.explain()")


class AnalyticBound(Bound):
    """A bound whose expectations are computed: in closed form, or by one-dimensional quadrature."""

    def __init__(self, layout: Layout, method: str, nodes: int) -> None:
        self.layout, self.method, self.family = layout, method, layout.family
        self._expectation: Expectation = expectation(layout, method, nodes)

    @property
    def value(self) -> float:
        return self._expectation.value

    @cached_property
    def gradient(self) -> Gradient:
        parts = [self._component_gradient(c) for c in self.layout.components]
        return assemble(self.layout, parts, self._expectation.mean_gradient)

    def _component_gradient(self, c: Component) -> dict[str, Any]:
        e = self._expectation
        location = e.mean_gradient[c.part]
        if c.is_discrete:
            return {c.location: location.reshape(c.family.parameters[c.location].shape)}
        dispersion = next(name for name in c.family.parameters if name != "mean")
        unit = float(np.sqrt(c.family.noise_variance))  # type: ignore[attr-defined]
        factor = np.asarray(c.factor)
        if factor.ndim == 2:
            spread: Any = np.tril(e.heat.dense()[c.part, c.part] @ factor) * unit
        else:
            own = e.own_sigma[c.part] * unit
            spread = e.heat.diagonal()[c.part] * factor * unit + own
            if factor.ndim == 0:
                spread = np.asarray(spread.sum())
        return {"mean": location, dispersion: spread}

    def hessian(self, form: Form = "dense") -> Any:
        hessian = self._expectation.hessian
        forms: dict[str, Callable[[], Any]] = {"dense": hessian.dense, "diagonal": hessian.diagonal, "operator": hessian.operator}
        if form not in forms:
            raise ValueError(f"form must be one of {', '.join(forms)}; got {form!r}.")
        return forms[form]()

    @cached_property
    def gap(self) -> float:
        if any(c.is_discrete for c in self.layout.components):
            modes = [c.family.mode if c.is_discrete else c.family.mean for c in self.layout.components]
            return self.value - float(self.layout.objective.at(np.concatenate(modes)))
        return self._expectation.gap

    @cached_property
    def max_gap(self) -> float:
        return float(sum(gap_bound(self.layout)))

    @cached_property
    def convex(self) -> Verdict:
        return theorem_one(self.layout)


def bound(f: Any, family: Family, *, method: str | None = None, **options: Any) -> Bound:
    r"""The bound :math:`E(\theta) = \langle f(x) \rangle_{p(x|\theta)}` on the optimum of f.

    Parameters
    ----------
    f : objective or callable
        An objective of variables; or a function of a flat point, a black box.
    family : Family
        p(x|theta): `Gaussian`, `Bernoulli`, ...; over several variables either one family of all coordinates in the order of
        ``f.variables``, or `families.Product` keyed by variable.
    method : {"closed_form", "quadrature", "sampled"}, optional
        By default closed form for objectives and sampling for callables. What has no closed form is refused by name.
    **options
        ``nodes`` for quadrature (Gauss-Legendre nodes a panel). For sampling ``samples`` (4096), ``seed``, ``estimator``
        ("score", or "reparameterized": lower variance, for continuous f), ``antithetic``, ``quasi`` (scrambled Sobol points), ``vectorized``
        (a callable takes all points at once) and ``gradient`` (of a callable, for the reparameterised estimator).

    Returns
    -------
    Bound
        With ``value``, ``gradient``, ``hessian()``, ``gap``, ``max_gap``, ``convex``, ``standard_error``.

    Notes
    -----
    Closed form costs one product with the data for the value, one more for the gradient, and the row norms once; nothing of size n x n is
    formed. ``hessian("dense")`` costs one weighted Gram matrix.

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
    """
    if method is not None and method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}.")
    if callable(f) and not isinstance(f, Expression):
        from varopt.bounds._black_box import black_box_bound

        return black_box_bound(f, family, method or "sampled", options)
    objective = as_objective(f).checked
    layout = lay_out(objective, family)
    method = method or "closed_form"
    if method == "sampled":
        from varopt.bounds._sampled import SamplingOptions, sampled_bound
        from varopt.bounds._target import objective_target

        return sampled_bound(objective_target(layout), SamplingOptions.parse(options))
    nodes = options.pop("nodes", 24)
    if options:
        raise ValueError(f"unknown option{'s' if len(options) > 1 else ''} for method {method!r}: {', '.join(sorted(options))}.")
    if isinstance(nodes, bool) or not isinstance(nodes, (int, np.integer)) or nodes < 2:
        raise ValueError(f"nodes must be an integer of at least 2; got {nodes!r}.")
    if method == "quadrature":
        from varopt.bounds._quadrature import quadrature_bound

        return quadrature_bound(layout, int(nodes))
    return AnalyticBound(layout, method, int(nodes))
