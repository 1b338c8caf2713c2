"""Which family rules which variables: the link between an objective and p(x|theta)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.families import AffineFamily, Bernoulli, Categorical, Family, Gaussian, LocationScale, Product, as_family
from varopt.model import Objective, Variable, unflatten

__all__ = ["Component", "Layout", "components_of", "lay_out", "marginals"]

Vector = NDArray[np.float64]

_SUITS = {
    "real": "Gaussian, Uniform, Laplace or Logistic",
    "binary": "Bernoulli",
    "categorical": "families.OneHotCategorical",
}


@dataclass(frozen=True, eq=False)
class Component:
    """One family and the variables it rules, which lie side by side in a flat point."""

    key: Any  # the key in a Product, None where one family rules all
    family: Family
    variables: tuple[Variable, ...]  # empty for a black box
    part: slice

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return int(self.part.stop - self.part.start)

    @property
    def is_gaussian(self) -> bool:
        return isinstance(self.family, Gaussian) or (isinstance(self.family, AffineFamily) and self.family.is_gaussian)

    @property
    def is_discrete(self) -> bool:
        return isinstance(self.family, (Bernoulli, Categorical))

    @property
    def is_own(self) -> bool:
        """Whether nothing is known of the family but its samples and its score."""
        return not isinstance(self.family, (LocationScale, Bernoulli, Categorical))

    @property
    def is_triangular(self) -> bool:
        """Whether its factor is a number, a vector or a Cholesky factor, which can be divided by."""
        return not isinstance(self.family, AffineFamily) or self.factor.ndim < 2

    @property
    def is_bits(self) -> bool:
        return isinstance(self.family, Bernoulli)

    @property
    def unit(self) -> float:
        """Standard deviation of the noise of a real family at scale one."""
        return float(np.sqrt(self.family.noise_variance))  # type: ignore[attr-defined]

    @cached_property
    def factor(self) -> Vector:
        """A number, vector or matrix C with covariance ``C C'``, of a real family."""
        return np.asarray(self.unit * self.family.scale)  # type: ignore[attr-defined]

    @property
    def location(self) -> str:
        """Name of the parameter that is the mean."""
        return "probability" if self.is_discrete else "mean"

    @property
    def dispersion(self) -> str:
        """Name of the other parameter of a real family."""
        return str(next(name for name in self.family.parameters if name != "mean"))

    @property
    def choices(self) -> int:
        """Coordinates that belong to one choice: the categories of a Categorical, one otherwise."""
        return self.family.probability.shape[1] if isinstance(self.family, Categorical) else 1

    @property
    def centre(self) -> Vector:
        """A point of the support in the middle: the mean, or the mode of bits."""
        return self.family.mode if self.is_discrete else self.family.mean


@dataclass(frozen=True)
class Layout:
    """An objective, a family, and the components that link them."""

    objective: Objective
    family: Family
    components: tuple[Component, ...]

    @cached_property
    def mean(self) -> Vector:
        """The flat mean, in the order of the objective's variables."""
        return np.concatenate([c.family.mean for c in self.components])

    @cached_property
    def points(self) -> dict[Variable, Vector]:
        """The mean by variable."""
        return unflatten(self.objective.variables, self.mean)

    def of(self, variables: tuple[Variable, ...]) -> list[Component]:
        """The components that rule any of the variables."""
        return [c for c in self.components if any(v in c.variables for v in variables)]

    def reorder(self, samples: Vector) -> Vector:
        """Samples of the family, (..., size), in the order of the objective's variables."""
        if not isinstance(self.family, Product):
            return samples
        return np.concatenate([samples[..., self.family.slices[c.key]] for c in self.components], axis=-1)


def components_of(family: Family) -> tuple[Component, ...]:
    """The components of a family over nameless coordinates, in its own order."""
    if isinstance(family, Product):
        for key, member in family.families.items():
            if isinstance(member, Product):
                raise ValueError(f"family must not nest products; its member {key!r} is a Product.")
        return tuple(Component(k, member, (), family.slices[k]) for k, member in family.families.items())
    return (Component(None, family, (), slice(0, family.size)),)


def marginals(layout: Layout, variables: tuple[Variable, ...]) -> list[Component]:
    """One component for each of some discrete variables, side by side."""
    result, start = [], 0
    for variable in variables:
        (c,) = layout.of((variable,))
        own = layout.objective.slices[variable]
        p = c.family.mean[own.start - c.part.start : own.stop - c.part.start]
        family = Bernoulli(p) if c.is_bits else Categorical(p.reshape(-1, c.choices))
        result.append(Component(variable, family, (variable,), slice(start, start + variable.size)))
        start += variable.size
    return result


def lay_out(objective: Objective, family: Any) -> Layout:
    """Match a family to an objective, or say what does not fit."""
    family = as_family(family)
    if not objective.variables:
        raise ValueError(f"f must depend on a variable; {objective} is constant.")
    if not isinstance(family, Product):
        components = [Component(None, family, objective.variables, slice(0, objective.size))]
    else:
        missing = ", ".join(str(v) for v in objective.variables if v not in family.families)
        extra = ", ".join(str(k) for k in family.families if k not in objective.variables)
        if missing or extra:
            what = [f"missing {missing}"] * bool(missing) + [f"not in it: {extra}"] * bool(extra)
            raise ValueError(f"family must be a Product over just the objective's variables; {'; '.join(what)}.")
        components = [
            Component(variable, family.families[variable], (variable,), objective.slices[variable])
            for variable in objective.variables
        ]
    for component in components:
        _check_fit(component)
    return Layout(objective, family, tuple(components))


def _check_fit(component: Component) -> None:
    family, names = component.family, ", ".join(map(str, component.variables))
    if family.size != component.size:
        raise ValueError(f"family must have {component.size} coordinates, one for each of {names}; got {family.size}.")
    if component.is_own:
        return  # what it draws is its own affair
    for variable in component.variables:
        fits = {
            "real": isinstance(family, LocationScale),
            "binary": isinstance(family, Bernoulli),
            "categorical": isinstance(family, Categorical) and component.choices == variable.dimensions[-1],
        }[variable.kind]
        if not fits:
            several = " (for variables of several kinds use vo.Product)" if len(component.variables) > 1 else ""
            shape = f" of {component.choices} categories" if isinstance(family, Categorical) else ""
            raise ValueError(
                f"family must suit the {variable.kind} variable {variable}: {_SUITS[variable.kind]}; "
                f"got {type(family).__name__}{shape}{several}."
            )
