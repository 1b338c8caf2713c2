"""Which family rules which variables: the link between an objective and p(x|theta)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.families import Bernoulli, Categorical, Family, Gaussian, LocationScale, Product
from varopt.model import Objective, Variable

__all__ = ["Component", "Layout", "lay_out"]

Vector = NDArray[np.float64]

_FAMILY_OF = {"real": "Gaussian, Uniform, Laplace or Logistic", "binary": "Bernoulli", "categorical": "families.Categorical"}


@dataclass(frozen=True)
class Component:
    """One family and the variables it rules, which lie side by side in a flat point."""

    key: Any  # the variable in a Product, None where one family rules all
    family: Family
    variables: tuple[Variable, ...]
    part: slice

    @property
    def is_gaussian(self) -> bool:
        return isinstance(self.family, Gaussian)

    @property
    def is_discrete(self) -> bool:
        return not isinstance(self.family, LocationScale)

    @property
    def factor(self) -> Any:
        """A matrix, vector (its diagonal) or number C with covariance ``C C'``; for a Categorical only its diagonal blocks differ."""
        if isinstance(self.family, LocationScale):
            return np.sqrt(self.family.noise_variance) * self.family.scale
        return np.sqrt(self.family.variance)

    @property
    def location(self) -> str:
        """Name of the parameter that is the mean."""
        return "probability" if self.is_discrete else "mean"

    @property
    def choices(self) -> int:
        """Coordinates that belong to one choice: the categories of a Categorical, one otherwise."""
        return self.family.probability.shape[1] if isinstance(self.family, Categorical) else 1


@dataclass(frozen=True)
class Layout:
    """An objective, a family, and the components that link them."""

    objective: Objective
    family: Family
    components: tuple[Component, ...]

    @property
    def mean(self) -> Vector:
        """The flat mean, in the order of the objective's variables."""
        return np.concatenate([c.family.mean for c in self.components]) if self.components else np.empty(0)

    def of(self, variables: tuple[Variable, ...]) -> list[Component]:
        """The components that rule any of the variables."""
        return [c for c in self.components if any(v in c.variables for v in variables)]

    def reorder(self, samples: Vector) -> Vector:
        """Samples of the family, (..., size), in the order of the objective's variables."""
        if not isinstance(self.family, Product):
            return samples
        return np.concatenate([samples[..., self.family.slices[c.key]] for c in self.components], axis=-1)


def lay_out(objective: Objective, family: Any) -> Layout:
    """Match a family to an objective, or say what does not fit."""
    if not isinstance(family, Family):
        raise ValueError(f"family must be a varopt family such as vo.Gaussian(mean, sigma); got {type(family).__name__}.")
    components = []
    if isinstance(family, Product):
        missing = [str(v) for v in objective.variables if v not in family.families]
        extra = [str(k) for k in family.families if k not in objective.variables]
        if missing or extra:
            raise ValueError(
                "family must be a Product over just the objective's variables; "
                + "; ".join([*([f"missing {', '.join(missing)}"] if missing else []), *([f"not in it: {', '.join(extra)}"] if extra else [])])
                + "."
            )
        for variable in objective.variables:
            components.append(Component(variable, family.families[variable], (variable,), objective.slices[variable]))
    else:
        components.append(Component(None, family, objective.variables, slice(0, objective.size)))
    for component in components:
        _check(component)
    return Layout(objective, family, tuple(components))


def _check(component: Component) -> None:
    family, names = component.family, ", ".join(map(str, component.variables))
    size = sum(v.size for v in component.variables)
    if family.size != size:
        raise ValueError(f"family must have {size} coordinates, one for each of {names}; got {family.size}.")
    for variable in component.variables:
        fits = {
            "real": isinstance(family, LocationScale),
            "binary": isinstance(family, Bernoulli),
            "categorical": isinstance(family, Categorical) and family.probability.shape[1] == variable.dimensions[-1],
        }[variable.kind]
        if not fits:
            raise ValueError(
                f"family must suit the {variable.kind} variable {variable}: {_FAMILY_OF[variable.kind]}; got {type(family).__name__}"
                + (" (for variables of several kinds use families.Product)." if len(component.variables) > 1 else ".")
            )
