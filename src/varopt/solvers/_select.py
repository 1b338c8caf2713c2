"""The methods by name, which of them `auto` takes, and what takes over where one ends without a proof."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from varopt._clock import budget, deadline, left
from varopt.certificates import SmoothingGap
from varopt.composite import Composite
from varopt.solvers._method import Check, GaveUp, Method, Nested, State, Way
from varopt.solvers.descent import Newton
from varopt.solvers.finish import exact_minimum, is_small

__all__ = ["METHODS", "Auto"]


class _Home(NamedTuple):
    """Where a method is, and from how many variables on it pays, as it states itself: of fewer it is not loaded."""

    package: str
    kind: str
    fewest: int = 1


class _Methods(Mapping[str, Way]):
    """The methods by name. One is loaded when it is first asked for: most problems are solved by the same few."""

    def __init__(self, homes: dict[str, _Home]) -> None:
        self.homes = homes
        self._loaded: dict[str, Way] = {}

    def __getitem__(self, name: str) -> Way:
        if name not in self._loaded:
            home = self.homes[name]
            self._loaded[name] = getattr(importlib.import_module(f"varopt.solvers.{home.package}"), home.kind)()
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.homes)

    def __len__(self) -> int:
        return len(self.homes)

    def __contains__(self, name: object) -> bool:
        return name in self.homes

    def fewest(self, name: str) -> int:
        """Variables for which `auto` may take it."""
        return self._loaded[name].fewest if name in self._loaded else self.homes[name].fewest


# In order: the first that suits the problem and does not refuse it is taken.
_HOMES = {
    "taut-string": _Home("signals", "TautString"),
    "knots": _Home("signals", "Knots", 1000),
    "block-descent": _Home("lasso", "BlockDescent", 1000),
    "working-set": _Home("reductions", "WorkingSet", 31),
    "range": _Home("reductions", "Range", 201),
    "low-rank": _Home("reductions", "LowRank", 301),
    "pivoting": _Home("lasso", "Pivoting"),
    "multipliers": _Home("augmented_lagrangian", "Multipliers", 33),
    "interior-point": _Home("interior_point", "InteriorPoint", 33),
    "orthogonal": _Home("reductions", "Orthogonal"),
    "program": _Home("descent", "Program"),
    "newton": _Home("descent", "Newton"),
    "group-descent": _Home("lasso", "GroupDescent"),
    "conic": _Home("interior_point", "Conic"),
    "group-newton": _Home("descent", "GroupNewton"),
    "graduated": _Home("nonconvex", "Graduated"),
}
_ORDER = tuple(_HOMES)
METHODS = _Methods(_HOMES | {"diagonal-newton": _Home("descent", "DiagonalNewton"), "lbfgs": _Home("descent", "LBFGS")})

# What goes on where a method has ended without a proof, those that refuse left out. After a method that is not named
# here comes the next one that suits (after the paper's two the first), and what goes on after that; after a user's own
# method, and one that was told how many steps to take, nothing.
_THOROUGH = "newton, thoroughly"
_AT_LAST = ("interior-point", _THOROUGH)
_AFTER: dict[str, tuple[str, ...]] = {
    "taut-string": ("interior-point",),
    "knots": ("interior-point",),
    "pivoting": ("newton", *_AT_LAST),
    "multipliers": ("interior-point",),
    "interior-point": ("program", _THOROUGH),
    "program": ("newton", *_AT_LAST),
    "newton": _AT_LAST,
    "group-descent": ("conic", "group-newton"),
    "conic": ("group-newton",),
    "group-newton": (),
    "graduated": (),
}
_EXACT_METHODS = (
    "rational",
    "decimal",
)  # what comes between, where there are few variables: without norms, and beside them
_EXACT_SECONDS, _EXACT_SHARE = 0.5, 0.25  # after which others go on, and of the time that is left
# Variables of a sparse problem up to which dense methods go on after interior points.
_DENSE_AFTER_INTERIOR_POINT = 1000
_FORMED = 5000  # variables up to which what goes on after another may form their matrix, if it is dense


@dataclass(frozen=True)
class Auto:
    """The first method that suits a problem, and others where it ends without a proof.

    Parameters
    ----------
    first : Method or Reduction, optional
        What to begin with; chosen by default.
    but : tuple of str
        Names of methods that are left out, here and for smaller problems.
    """

    first: Way | None = None
    but: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if unknown := [name for name in self.but if name not in METHODS]:
            raise ValueError(f"but must name some of {', '.join(map(repr, METHODS))}; got {unknown[0]!r}.")

    def refusal(self, problem: Composite) -> str:
        """What the problem lacks for the first method, or for all; empty where one takes it."""
        if self.first is not None:
            return self.first.refusal(problem)
        if problem.structure(self._chosen) is not None:
            return ""
        return " ".join(dict.fromkeys(METHODS[name].refusal(problem) for name in _ORDER if name not in self.but))

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`, by one method after another until one has a proof.

        Each has the best point so far, and begins its path where the first began: at what another has found, the
        lengths of the path would be those of its errors.
        """
        state.alone = self.first is not None and (self.first.name not in METHODS or self.first.alone)
        began = state.latest, state.sigma
        tried = list(self.but)
        for way in itertools.islice(self._chain(problem), 1 if state.alone else None):
            state.latest, state.sigma = began
            state.runs([way.name])
            tried += [way.name] if way.name in METHODS else []
            if self._ends(way, problem, state, tol, check, tuple(tried)) and state.reached(tol):
                return
            few = is_small(problem) and not state.alone and not any(name in _EXACT_METHODS for name in state.ran)
            if few and self._is_exact(problem, state, tol, check):
                return
        if not np.isfinite(state.upper) and np.all(np.isfinite(state.x)):
            state.see(state.x, problem.value(state.x))

    def _is_exact(self, problem: Composite, state: State, tol: float, check: Check) -> bool:
        """Whether exact arithmetic finds the optimum of few variables: no other method is better then.

        Beside norms it may end before it is there.
        """
        if state.objective is None:  # of a reduced problem
            return False
        state.runs([_EXACT_METHODS[bool(problem.groups)]])
        with budget(_EXACT_SECONDS), deadline(_EXACT_SHARE * left()):
            found = exact_minimum(state.objective, state.x)
        if found is None:
            return False
        state.falls = not np.isfinite(found.lower)
        if not state.falls:
            state.see(found.x, found.upper, found.upper - found.lower)
            check(state)
        return state.falls or not problem.groups or state.reached(tol)

    def _ends(
        self, way: Way, problem: Composite, state: State, tol: float, check: Check, tried: tuple[str, ...]
    ) -> bool:
        """Run a method; whether it has done its work, and a smoothing gap is not all that there is."""
        try:
            if isinstance(way, Nested):
                way.solve(problem, state, tol, check, Auto(but=tried).solve)
            elif isinstance(way, Method):
                way.solve(problem, state, tol, check)
        except (GaveUp, np.linalg.LinAlgError):  # products of the data may overflow that another method does without
            return False
        return state.proof is not SmoothingGap

    def _chain(self, problem: Composite) -> Iterator[Way]:
        """What to run, and after it what goes on."""
        way = self.first or problem.structure(self._chosen)
        if way is None:
            raise ValueError(self.refusal(problem))
        yield way
        small = problem.size <= _FORMED or problem.is_sparse
        while way.name not in _AFTER:
            behind = _ORDER[_ORDER.index(way.name) + 1 if way.name in _ORDER else 0 :]
            behind = behind if small else tuple(name for name in behind if isinstance(METHODS[name], Nested))
            way = next(self._suitable(problem, behind), None)
            if way is None:
                return
            yield way
        if way.name == "interior-point" and problem.size > _DENSE_AFTER_INTERIOR_POINT:
            return
        if small or way.name == "newton":  # newton has formed the matrix by then
            yield from self._possible(problem, _AFTER.get(way.name, ()))

    def _chosen(self, problem: Composite) -> Way | None:
        """The first that suits, or does not refuse; to tell may take a look at the data, so that it is told once."""
        suitable, possible = self._suitable(problem, _ORDER), self._possible(problem, (*_AT_LAST, *_ORDER))
        return next(suitable, None) or next(possible, None)

    def _possible(self, problem: Composite, names: Iterable[str]) -> Iterator[Way]:
        ways = (Newton(thorough=True) if name == _THOROUGH else METHODS[name] for name in names)
        return (way for way in ways if way.name not in self.but and not way.refusal(problem))

    def _suitable(self, problem: Composite, names: tuple[str, ...]) -> Iterator[Way]:
        worth_a_look = (name for name in names if problem.size >= METHODS.fewest(name))
        return (way for way in self._possible(problem, worth_a_look) if way.suits(problem))
