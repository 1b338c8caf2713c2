"""Functions that are expensive to evaluate, as tuning has them: parameters by name, reals, integers and choices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["FUNCTIONS", "Parameter", "Problem", "function"]

Point = dict[str, Any]


@dataclass(frozen=True)
class Parameter:
    """A number between two ends, on a logarithmic scale if so said, an integer, or one of some options.

    `when` names another parameter and the option of it with which this one exists.
    """

    name: str
    low: float = 0.0
    high: float = 1.0
    kind: str = "real"  # or "log", "integer", "choice"
    options: tuple[str, ...] = ()
    when: tuple[str, str] | None = None

    def at(self, u: float) -> Any:
        """The value at a place in the unit interval."""
        if self.kind == "choice":
            return self.options[min(int(u * len(self.options)), len(self.options) - 1)]
        if self.kind == "integer":
            return int(min(self.low + np.floor(u * (self.high - self.low + 1)), self.high))
        if self.kind == "log":
            return float(np.exp(np.log(self.low) + u * (np.log(self.high) - np.log(self.low))))
        return float(self.low + u * (self.high - self.low))


@dataclass(frozen=True)
class Problem:
    """Parameters, and what they cost."""

    parameters: tuple[Parameter, ...]
    cost: Callable[[Point], float]

    @property
    def plain(self) -> bool:
        """Whether all parameters are reals between 0 and 1."""
        return all(p.kind == "real" and (p.low, p.high) == (0.0, 1.0) for p in self.parameters)

    def at(self, u: Any) -> float:
        """The cost at a point of the unit box."""
        return self.cost({p.name: p.at(float(x)) for p, x in zip(self.parameters, u, strict=True)})


def _branin(u: Any) -> float:
    a, b = 15.0 * u[0] - 5.0, 15.0 * u[1]
    ridge = (b - 5.1 / (4.0 * np.pi**2) * a * a + 5.0 / np.pi * a - 6.0) ** 2
    return float(ridge + 10.0 * (1.0 - 1.0 / (8.0 * np.pi)) * np.cos(a) + 10.0)


def _ackley(x: Any) -> float:
    return float(20.0 - 20.0 * np.exp(-0.2 * np.sqrt((x * x).mean())) + np.e - np.exp(np.cos(2 * np.pi * x).mean()))


def _rosenbrock(x: Any) -> float:
    return float((100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum())


def _levy(x: Any) -> float:
    w = 1.0 + (x - 1.0) / 4.0
    inner = ((w[:-1] - 1.0) ** 2 * (1.0 + 10.0 * np.sin(np.pi * w[:-1] + 1.0) ** 2)).sum()
    return float(np.sin(np.pi * w[0]) ** 2 + inner + (w[-1] - 1.0) ** 2 * (1.0 + np.sin(2 * np.pi * w[-1]) ** 2))


HEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
HARTMANN = {
    3: (np.array([[3, 10, 30], [0.1, 10, 35], [3, 10, 30], [0.1, 10, 35]]),
        1e-4 * np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]])),
    6: (np.array([[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8],
                  [17, 8, 0.05, 10, 0.1, 14]]),
        1e-4 * np.array([[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
                         [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]])),
}  # fmt: skip


def _hartmann(u: Any) -> float:
    rates, peaks = HARTMANN[len(u)]
    return float(-(HEIGHTS * np.exp(-(rates * (u - peaks) ** 2).sum(axis=1))).sum())


SHIFTED: dict[str, tuple[Callable[[Any], float], float]] = {
    "Ackley": (_ackley, 5.0), "Rosenbrock": (_rosenbrock, 2.0), "Levy": (_levy, 8.0),
}  # fmt: skip
FUNCTIONS = (
    "Branin", "Hartmann 3", "Hartmann 6",
    *(f"{name} {d}" for name in SHIFTED for d in (2, 5, 20)), *(f"{name} 6 mixed" for name in SHIFTED), "tree 6",
)  # fmt: skip


def function(name: str, seed: int) -> Problem:
    """A function of the unit box, moved by the seed where it can be; `mixed` has two integers and a choice in it."""
    kind, _, rest = name.partition(" ")
    if kind == "tree":
        return _tree(seed)
    if kind in ("Branin", "Hartmann"):
        d, f = (2, _branin) if kind == "Branin" else (int(rest), _hartmann)
        return _reals(d, f)
    size, _, mixed = rest.partition(" ")
    plain, half = SHIFTED[kind]
    d = int(size)
    shift = np.random.default_rng(1000 + seed).uniform(-0.2, 0.2, d)

    def moved(u: Any) -> float:
        return plain(2.0 * half * (np.asarray(u) - 0.5 - shift))

    return _mixed(d, moved, seed) if mixed else _reals(d, moved)


def _reals(d: int, f: Callable[[Any], float]) -> Problem:
    names = [f"x{i}" for i in range(d)]
    return Problem(tuple(map(Parameter, names)), lambda p: f(np.array([p[name] for name in names])))


def _mixed(d: int, f: Callable[[Any], float], seed: int) -> Problem:
    """Two coordinates are integers of 0 to 12, one is one of five options in no order."""
    options = tuple("abcde")
    places = dict(zip(options, np.random.default_rng(2000 + seed).permutation(np.linspace(0.1, 0.9, 5)), strict=True))
    reals = [f"x{i}" for i in range(d - 3)]

    def cost(p: Point) -> float:
        return f(np.array([*(p[name] for name in reals), p["k"] / 12.0, p["m"] / 12.0, places[p["c"]]]))

    whole = (Parameter("k", 0, 12, "integer"), Parameter("m", 0, 12, "integer"))
    return Problem((*map(Parameter, reals), *whole, Parameter("c", kind="choice", options=options)), cost)


def _tree(seed: int) -> Problem:
    """Two models to choose from, each with parameters of its own; optima by the seed."""
    a, b, c, d = np.random.default_rng(seed).uniform(0.2, 0.8, 4)

    def cost(p: Point) -> float:
        if p["kind"] == "one":
            return float((p["u"] - a) ** 2 + 3 * abs(p["v"] - b) + 0.1)
        return float(4 * (p["s"] - c) ** 2 + (p["t"] - d) ** 2 + 0.3 * abs(p["k"] - 3))

    one, two = ("kind", "one"), ("kind", "two")
    return Problem(
        (
            Parameter("kind", kind="choice", options=("one", "two")),
            Parameter("u", when=one), Parameter("v", when=one), Parameter("s", when=two), Parameter("t", when=two),
            Parameter("k", 1, 8, "integer", when=two),
        ),
        cost,
    )  # fmt: skip
