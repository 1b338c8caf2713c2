"""What a bound is: value, gradient, Hessian, gap and convexity at one theta."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from varopt.terms import Curvature

if TYPE_CHECKING:
    from varopt.bounds._layout import Component
    from varopt.bounds._target import Target

__all__ = ["Bound", "Form", "Gradient", "NoClosedForm", "Verdict", "assemble", "check_form", "in_form"]

Vector = NDArray[np.float64]
Form = Literal["dense", "diagonal", "operator"]


class NoClosedForm(ValueError):
    """What has no closed form under the family; the message names it, the reason and the alternative."""


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

    A mapping: ``gradient["mean"]``, ``gradient["sigma"]``; for a `Product` first by variable. As an array,
    ``np.asarray(gradient)``, it is the gradient in the mean (for bits: in the probabilities), flat and in the order of
    the objective's variables: what a solver descends. What is not asked for is not computed.

    Notes
    -----
    Probabilities of a choice move on the simplex: their gradient is that of ``E(p / sum p)``, the one whose average
    under p is zero.
    """

    def __init__(self, location: Vector, parts: Mapping[Any, Any]) -> None:
        self._location = location
        self._parts = dict(parts)  # a part may be a function of no arguments: it is called at first use

    def __getitem__(self, key: Any) -> Any:
        part = self._parts[key]
        if isinstance(part, Gradient) or not callable(part):
            return part
        self._parts[key] = part()
        return self._parts[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Vector:
        return np.array(self._location, dtype=dtype)

    def __repr__(self) -> str:
        return f"Gradient({dict(self)!r})"


def assemble(
    components: tuple[Component, ...], location: Vector, dispersion: Callable[[Component], Any] | None
) -> Gradient:
    """A gradient from its flat part in the mean and, for real components, a function that gives the rest."""
    members = []
    for c in components:
        if c.is_own:
            raise ValueError(f"{c.family!r} has no mean to take a gradient in.")
        own = location[c.part]
        parts: dict[str, Any] = {c.location: own.reshape(c.family.parameters[c.location].shape)}
        if dispersion is not None and not c.is_discrete:
            parts[c.dispersion] = lambda c=c: dispersion(c)
        members.append(Gradient(own, parts))
    if components[0].key is None:
        return members[0]
    return Gradient(location, {c.key: member for c, member in zip(components, members, strict=True)})


def check_form(form: Any) -> None:
    """Refuse an unknown form of a Hessian."""
    if form not in ("dense", "diagonal", "operator"):
        raise ValueError(f"form must be one of dense, diagonal, operator; got {form!r}.")


def in_form(matrix: Vector, form: Form) -> Any:
    """A dense Hessian in the form asked for."""
    if form == "diagonal":
        return np.diagonal(matrix).copy()
    if form == "operator":
        from scipy.sparse.linalg import aslinearoperator

        return aslinearoperator(matrix)
    return matrix.copy()


class Bound(ABC):
    """The bound ``E(theta) = <f(x)>_{p(x|theta)}`` at one theta, made by `varopt.bound`.

    For every theta, min f <= E <= max f: an upper bound on the minimum and a lower bound on the maximum. What is asked
    for is computed once, what is not is not computed.
    """

    method: str
    _again: Callable[[Any], Bound]  # both set by `varopt.bound`, which knows how it was made
    _mirrored: Callable[[], Bound]

    def __init__(self, target: Target, method: str) -> None:
        self._target, self.method = target, method

    @property
    def family(self) -> Any:
        """p(x|theta), as it was given."""
        return self._target.given

    def at(self, family: Any) -> Bound:
        """The bound of the same f under another family, by the same method."""
        return self._again(family)

    def mirrored(self) -> Bound:
        """The bound of minus f."""
        return self._mirrored()

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
        """Second derivatives of E in the mean: an array, its diagonal, or a `LinearOperator`.

        For bits and choices in the probabilities, along the simplex: E is linear in each, so that the entries of one
        choice are zero.
        """

    @cached_property
    def gap(self) -> float:
        """E minus f at the mean (at the mode, for bits): how much the smoothing adds here."""
        return self.value - self._target.at_centre()

    @cached_property
    def max_gap(self) -> float:
        """An upper bound on ``|gap|`` over all means, for this dispersion; infinite where f grows too fast."""
        return self._target.max_gap()

    @cached_property
    def convex(self) -> Verdict:
        """Whether E is known to be convex in theta, with the reason (Theorem 1)."""
        return self._target.curved(Curvature.CONVEX)

    @cached_property
    def concave(self) -> Verdict:
        """Whether E is known to be concave in theta, with the reason (Theorem 1, as the paper has it: to maximise)."""
        return self._target.curved(Curvature.CONCAVE)

    @property
    def standard_error(self) -> float:
        """Standard error of `value`: zero unless it was sampled."""
        return 0.0

    @property
    def gradient_standard_error(self) -> Gradient:
        """Standard error of `gradient`, entry by entry: zero unless it was sampled.

        Infinite for a probability of 0 or 1: samples never show the other value.
        """
        components = self._target.components
        zeros = np.zeros(self._target.size)
        return assemble(components, zeros, lambda c: np.zeros(np.shape(c.factor)))

    def __repr__(self) -> str:
        error = f" +- {self.standard_error:.2g}" if self.standard_error else ""
        family = f"{type(self.family).__name__} of {self._target.size} coordinates"
        return f"<bound {self.value:.10g}{error}, {self.method}, under {family}>"
