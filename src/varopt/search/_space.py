"""Search spaces: named dimensions together, and rows of numbers for points."""

from __future__ import annotations

import json
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds

from varopt.search._conditions import active_columns, as_conditions, told
from varopt.search._dimensions import Boolean, Box, Choice, Dimension, Integer, Permutation, Searchable

__all__ = ["Space", "SpaceLayout", "as_space", "space_from_json", "starting_rows"]

Array = NDArray[np.float64]


class Space(Searchable):
    """Named parts of a point; a point is a dictionary with the same names.

    Parameters
    ----------
    parts : mapping from names to dimensions
        `Box`, `Integer`, `Boolean`, `Choice`, `Permutation`, or a plain list of options.
    when : mapping, optional
        Parts that exist only where others have some values: ``{"gamma": {"kernel": ["rbf", "poly"]}}`` says that there
        is a ``gamma`` only where ``kernel`` is one of the two. Several conditions must all hold, and a part whose
        condition names a part that does not exist does not exist either, so that choices form trees. The parts that
        are named in conditions are single choices, booleans or integers.

    Examples
    --------
    >>> import varopt as vo
    >>> space = vo.Space({"rate": vo.Box(1e-4, 1, log=True), "layers": vo.Integer(1, 8), "kind": ["relu", "tanh"]})
    >>> r = vo.minimize(lambda p: (p["rate"] - 0.1) ** 2 + abs(p["layers"] - 3) + (p["kind"] == "relu"), space,
    ...                 budget=40, seed=0)
    >>> r.x["layers"], r.x["kind"]
    (3, 'tanh')

    A point has only the parts that exist:

    >>> space = vo.Space({"kernel": ["linear", "rbf"], "gamma": vo.Box(1e-3, 1, log=True)},
    ...                  when={"gamma": {"kernel": "rbf"}})
    >>> sorted({tuple(point) for point in vo.Search(space, seed=0).ask(20)})
    [('kernel',), ('kernel', 'gamma')]
    """

    def __init__(
        self, parts: Mapping[str, Dimension | Sequence[Any]], *, when: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
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
        self.when = as_conditions(self.parts, when)

    def __repr__(self) -> str:
        return f"Space({self.parts!r}{f', when={self.when!r}' if self.when else ''})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self.describe() == other.describe()

    def __hash__(self) -> int:
        return hash(json.dumps(self.describe(), sort_keys=True, default=str))

    def describe(self) -> dict[str, Any]:
        """What it is, as JSON."""
        described: dict[str, Any] = {
            "kind": "space",
            "parts": {name: part.describe() for name, part in self.parts.items()},
        }
        if self.when:
            described["when"] = {
                name: {parent: _plain(self.parts[parent], values) for parent, values in condition.items()}
                for name, condition in self.when.items()
            }
        return described


def _plain(part: Dimension, values: Sequence[Any]) -> list[Any]:
    """Values as JSON; options as their part describes them."""
    if isinstance(part, Choice):
        options = part.describe()["options"]
        return [options[int(part.encode(value)[0])] for value in values]
    return [part.decode(part.encode(value)) for value in values]


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))


def as_space(space: Any) -> Space | Dimension:
    """`space` itself if it is one, what a dictionary or SciPy's bounds stand for, or a `ValueError`."""
    if isinstance(space, (Space, Dimension)):
        return space
    if isinstance(space, Mapping):
        return Space(space)
    if isinstance(space, Bounds):
        return Box(*np.broadcast_arrays(np.atleast_1d(space.lb), space.ub))
    if _are_pairs(space):
        return Box([low for low, _ in space], [high for _, high in space])
    raise ValueError(
        "space must be a vo.Box(low, high), a list of pairs (low, high), a vo.Space or another dimension of "
        f"varopt.search; got {space!r}. A point to start from is x0."
    )


def _are_pairs(space: Any) -> bool:
    """Whether these are pairs of numbers, as SciPy's global optimisers take their bounds."""
    if not isinstance(space, (list, tuple, np.ndarray)) or not len(space):
        return False
    pairs = all(isinstance(pair, (list, tuple, np.ndarray)) and np.shape(pair) == (2,) for pair in space)
    return pairs and all(_is_number(end) for pair in space for end in pair)


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
        self.conditions = space.when if isinstance(space, Space) else {}
        self.middle = self._middle()

    def _middle(self) -> Array:
        """The row in the middle of everything: what parts that do not exist have in every row."""
        numeric = np.concatenate((self.real, self.integer))
        row = np.zeros(self.columns)
        middles = 0.5 * self.low + 0.5 * self.high
        middles[self.log] = np.sqrt(self.low[self.log]) * np.sqrt(self.high[self.log])
        middles[self.integer] = np.floor(middles[self.integer])
        row[numeric] = np.clip(middles, self.low, self.high)[numeric]
        for where in self.permutations:
            row[where] = np.arange(where.stop - where.start)
        return row

    def active(self, rows: Array) -> NDArray[np.bool_]:
        """Which columns of rows belong to parts that exist."""
        return active_columns(self.conditions, self.parts, self.slices, rows)

    def settled(self, rows: Array) -> Array:
        """Rows in which parts that do not exist are the same for all."""
        return np.where(self.active(rows), rows, self.middle) if self.conditions else rows

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
        exists = self.active(row[None])[0] if self.conditions else np.ones(self.columns, dtype=bool)
        return {
            name: part.decode(row[self.slices[name]])
            for name, part in self.parts.items()
            if exists[self.slices[name].start]
        }

    def row(self, point: Any, *, partial: bool = False) -> Array:
        """The row of a point, or a `ValueError` that says why it is none; a partial one has its rest in the middle."""
        if isinstance(self.space, Dimension):
            return self.space.encode(point)
        if not isinstance(point, Mapping) or not set(point) <= set(self.parts):
            raise ValueError(f"x must be a dictionary with the names {sorted(self.parts)}; got {point!r}.")
        row = self.middle.copy()
        for name, value in point.items():
            try:
                row[self.slices[name]] = self.parts[name].encode(value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        exists = self.active(row[None])[0]
        for name in self.parts:
            here = exists[self.slices[name].start]
            if name in point and not here:
                raise ValueError(f"x must not have {name!r}, which exists only where {told(self.conditions[name])}.")
            if name not in point and here and not partial:
                raise ValueError(f"x must be a dictionary with the names {sorted(self.parts)}; {name!r} is missing.")
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


def starting_rows(layout: SpaceLayout, x0: Any) -> Array | None:
    """The rows of one point or of several, or a `ValueError` that names the one that is none."""
    if x0 is None:
        return None
    if not _is_several(layout.space, x0):
        return layout.row(x0, partial=True)[None]
    if not len(x0):
        raise ValueError("x0 must have at least one point; got none.")
    rows = []
    for number, point in enumerate(x0):
        try:
            rows.append(layout.row(point, partial=True))
        except ValueError as error:
            raise ValueError(f"x0[{number}]: {error}") from None
    return np.array(rows)


def _is_several(space: Space | Dimension, x0: Any) -> bool:
    if isinstance(space, Space):
        return isinstance(x0, (list, tuple))
    if isinstance(space, Box) or not space.scalar:  # a point is an array, or a list of options
        return np.ndim(np.empty(0) if isinstance(x0, str) else np.asarray(x0, dtype=object)) == 2
    return isinstance(x0, (list, np.ndarray)) and np.ndim(x0) == 1 and not _is_option(space, x0)


def _is_option(space: Dimension, value: Any) -> bool:
    return isinstance(space, Choice) and any(value is option for option in space.options)


def space_from_json(described: Mapping[str, Any]) -> Space | Dimension:
    """The space that `describe` described."""
    facts = {name: value for name, value in described.items() if name != "kind" and value is not None}
    match described["kind"]:
        case "space":
            parts = {name: _dimension(part) for name, part in described["parts"].items()}
            return Space(parts, when=described.get("when"))
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
