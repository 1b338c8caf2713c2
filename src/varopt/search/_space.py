"""Search spaces: named dimensions together, and rows of numbers for points."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.search._dimensions import Boolean, Box, Choice, Dimension, Integer, Permutation, Searchable

__all__ = ["Space", "SpaceLayout", "as_space", "space_from_json"]

Array = NDArray[np.float64]


class Space(Searchable):
    """Named parts of a point; a point is a dictionary with the same names.

    Parameters
    ----------
    parts : mapping from names to dimensions
        `Box`, `Integer`, `Boolean`, `Choice`, `Permutation`, or a plain list of options.

    Notes
    -----
    Every part always applies: parts that exist only under a condition on another are not supported. Give such a part a
    value anyway and ignore it in the objective.

    Examples
    --------
    >>> import varopt as vo
    >>> space = vo.Space({"rate": vo.Box(1e-4, 1, log=True), "layers": vo.Integer(1, 8), "kind": ["relu", "tanh"]})
    >>> r = vo.minimize(lambda p: (p["rate"] - 0.1) ** 2 + abs(p["layers"] - 3) + (p["kind"] == "relu"), space,
    ...                 budget=40, seed=0)
    >>> r.x["layers"], r.x["kind"]
    (3, 'tanh')
    """

    def __init__(self, parts: Mapping[str, Dimension | Sequence[Any]]) -> None:
        if not parts or not hasattr(parts, "items"):
            raise ValueError(f"Space needs a non-empty mapping from names to dimensions; got {parts!r}.")
        self.parts: dict[str, Dimension] = {}
        for name, part in parts.items():
            if not isinstance(name, str):
                raise ValueError(f"names of a Space must be strings; got {name!r}.")
            if isinstance(part, tuple) and len(part) == 2 and all(_is_number(end) for end in part):
                low, high = part
                raise ValueError(
                    f"the part {name!r} of a Space must not be a pair of numbers, which could mean two things: give "
                    f"vo.Box({low!r}, {high!r}) (or vo.Integer) for all between them, or the list [{low!r}, {high!r}] "
                    "for a choice of the two."
                )
            if isinstance(part, (list, tuple)):
                part = Choice(part)
            if not isinstance(part, Dimension):
                raise ValueError(
                    f"the part {name!r} of a Space must be a Box, Integer, Boolean, Choice, Permutation or a list of "
                    f"options; got {part!r}."
                )
            self.parts[name] = part

    def __repr__(self) -> str:
        return f"Space({self.parts!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self.describe() == other.describe()

    def __hash__(self) -> int:
        return hash(json.dumps(self.describe(), sort_keys=True, default=str))

    def describe(self) -> dict[str, Any]:
        """What it is, as JSON."""
        return {"kind": "space", "parts": {name: part.describe() for name, part in self.parts.items()}}


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))


def as_space(space: Any) -> Space | Dimension:
    """`space` itself if it is one, or a `ValueError`."""
    if isinstance(space, (Space, Dimension)):
        return space
    if isinstance(space, Mapping):
        return Space(space)
    raise ValueError(f"space must be a Box, a Space or another dimension of varopt.search; got {space!r}.")


class SpaceLayout:
    """Where the columns of a space lie, and how points become rows of numbers and back."""

    def __init__(self, space: Space | Dimension) -> None:
        self.space = space
        parts = space.parts if isinstance(space, Space) else {"": space}
        self.parts = parts
        ends = np.cumsum([part.columns for part in parts.values()]).tolist()
        self.slices = {
            name: slice(end - part.columns, end) for (name, part), end in zip(parts.items(), ends, strict=True)
        }
        self.columns = int(ends[-1])

        def of(kind: str) -> NDArray[np.intp]:
            chosen = [np.arange(self.columns)[self.slices[n]] for n, part in parts.items() if part.kind == kind]
            return np.concatenate(chosen) if chosen else np.zeros(0, dtype=np.intp)

        self.real, self.integer, self.choice = of("real"), of("integer"), of("choice")
        self.permutations = [self.slices[name] for name, part in parts.items() if isinstance(part, Permutation)]
        self.low, self.high = np.zeros(self.columns), np.ones(self.columns)
        self.log = np.zeros(self.columns, dtype=bool)
        self.options = np.zeros(self.columns, dtype=np.intp)
        for name, part in parts.items():
            where = self.slices[name]
            if isinstance(part, (Box, Integer)):
                self.low[where], self.high[where], self.log[where] = part.low, part.high, part.log
            elif isinstance(part, (Boolean, Choice)):
                self.options[where] = len(part.options)
            elif isinstance(part, Permutation):
                self.high[where] = part.columns - 1

    @property
    def cardinality(self) -> float:
        """How many points there are."""
        total = 1.0
        for part in self.parts.values():
            total = total * part.cardinality if part.cardinality < 1e300 and total < 1e300 else math.inf
        return total

    def decode(self, rows: Array) -> Any:
        """The batch of points that rows describe: an array for a Box, a list for anything else."""
        if isinstance(self.space, Box):
            return rows.copy()
        return [self.point(row) for row in rows]

    def point(self, row: Array) -> Any:
        """One point: an array for a Box, a dictionary for a Space."""
        if isinstance(self.space, Box):
            return row.copy()
        if isinstance(self.space, Dimension):
            return self.space.decode(row)
        return {name: part.decode(row[self.slices[name]]) for name, part in self.parts.items()}

    def row(self, point: Any) -> Array:
        """The row of one point, or a `ValueError` that says why it is none."""
        if isinstance(self.space, Dimension):
            return self.space.encode(point)
        if not isinstance(point, Mapping) or set(point) != set(self.parts):
            raise ValueError(f"x must be a dictionary with the names {sorted(self.parts)}; got {point!r}.")
        row = np.empty(self.columns)
        for name, part in self.parts.items():
            try:
                row[self.slices[name]] = part.encode(point[name])
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return row

    def rows(self, points: Any) -> Array:
        """The rows of a batch of points."""
        if isinstance(self.space, Box):
            array = np.array(points, dtype=np.float64)  # a copy: records are kept, and xs are the user's
            if array.ndim != 2 or array.shape[1] != self.columns:
                raise ValueError(f"xs must have shape (n, {self.columns}) for this Box; got {array.shape}.")
            if not np.all((array >= self.low) & (array <= self.high)):
                for row in array:
                    self.space.encode(row)  # names the entry
            return array
        if isinstance(points, (Mapping, str)) or not hasattr(points, "__len__"):
            raise ValueError("xs must be a list of points; a single point goes in a list of one.")
        return np.array([self.row(point) for point in points]).reshape(len(points), self.columns)


def space_from_json(described: Mapping[str, Any]) -> Space | Dimension:
    """The space that `describe` described."""
    facts = {name: value for name, value in described.items() if name != "kind" and value is not None}
    match described["kind"]:
        case "space":
            return Space({name: _dimension(part) for name, part in described["parts"].items()})
        case "box":
            return Box(**facts)
        case "integer":
            return Integer(**facts)
        case "boolean":
            return Boolean(**facts)
        case "choice":
            if any(isinstance(option, dict) for option in facts["options"]):
                raise ValueError("space must be given: the journal keeps only the text of some options of a Choice.")
            return Choice(**facts)
        case "permutation":
            return Permutation(**facts)
    raise ValueError(f"the journal describes an unknown kind of space: {described['kind']!r}.")


def _dimension(described: Mapping[str, Any]) -> Dimension:
    part = space_from_json(described)
    if isinstance(part, Space):
        raise ValueError("the journal describes a space inside a space.")
    return part
