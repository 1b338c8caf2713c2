"""What one part of a point may be: a box of reals, integers, booleans, choices, a permutation.

Inside, a point is one row of numbers ("flat"): reals and integers as they are, booleans as 0 and 1, a choice as the
index of its option. Rows are what is compared, kept in the journal and told to the distribution.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from varopt._domains import as_finite
from varopt._elsewhere import SEARCH_OPTIONS, advice
from varopt.search._checks import whole

if TYPE_CHECKING:
    from varopt.search._minimize import SearchResult

__all__ = ["Boolean", "Box", "Choice", "Dimension", "Integer", "Permutation", "Searchable"]

Array = NDArray[np.float64]

_WRITTEN_OUT = 12  # numbers of a list that are printed one by one


class Searchable:
    """What `varopt.minimize` and `varopt.maximize` call when they are given a function and a space."""

    black_box: ClassVar[Callable[..., SearchResult]]  # the loop, which lies above the spaces and sets it

    def minimize(self, f: Callable[[Any], Any], **options: Any) -> SearchResult:
        """Minimise a function of a point; the options are those of `varopt.search.minimize_black_box`."""
        for name in options.keys() - signature(self.black_box).parameters.keys():
            raise ValueError(f"minimize has no option {name!r} for a black box{advice(name, SEARCH_OPTIONS)}.")
        return self.black_box(f, self, **options)

    def maximize(self, f: Callable[[Any], Any], **options: Any) -> SearchResult:
        """Maximise a function of a point; the options are those of `varopt.search.minimize_black_box`."""
        return self.minimize(f, maximize=True, **options)


class Dimension(Searchable, ABC):
    """A part of a search space, or all of it.

    Attributes
    ----------
    columns : int
        How many numbers describe a value.
    scalar : bool
        Whether a value is a single thing rather than an array of things.
    """

    kind: ClassVar[str]
    columns: int
    scalar: bool

    @abstractmethod
    def decode(self, row: Array) -> Any:
        """The value that a row of numbers describes."""

    @abstractmethod
    def encode(self, value: Any) -> Array:
        """The row of numbers of a value, or a `ValueError` that says why it is not one."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What it is, as JSON; a journal keeps it and compares it."""

    @property
    def cardinality(self) -> float:
        """How many values there are; infinite for reals."""
        return math.inf

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dimension) and self.describe() == other.describe()

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        facts = {name: value for name, value in self.describe().items() if name != "kind" and value is not None}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in facts.items())})"

    def _row(self, value: Any) -> Array:
        row = as_finite("x", value).astype(np.float64).reshape(-1)
        if row.size != self.columns:
            raise ValueError(f"x must have {self.columns} entries for {self!r}; got {row.size}.")
        return row


class Box(Dimension):
    """Real numbers between bounds, which count as inside.

    Parameters
    ----------
    low, high : float or array
        The bounds, finite, ``low < high``. Without a guess, give a generous range.
    log : bool or array of bool
        Whether orders of magnitude matter: search on a logarithmic scale (needs ``low > 0``).
    size : int, optional
        The number of coordinates, where both bounds are numbers.

    Notes
    -----
    Alone, samples beyond a bound are evaluated on it, and lose ranks the farther they are beyond, except where the
    distribution has found that the bound is better than the inside: an optimum on a bound is reached and not only
    approached, and one inside draws nothing to the bounds. Beside integers and choices samples are reflected.

    Examples
    --------
    >>> import varopt as vo
    >>> vo.Box(-5, 5, size=3).columns
    3
    >>> vo.Box([0, 1e-4], [1, 1e-1], log=[False, True])
    Box(low=[0.0, 0.0001], high=[1.0, 0.1], log=[False, True])
    """

    kind: ClassVar[str] = "real"

    def __init__(
        self, low: ArrayLike, high: ArrayLike, *, log: bool | Sequence[bool] = False, size: int | None = None
    ) -> None:
        bounds = [as_finite(name, value).astype(np.float64) for name, value in (("low", low), ("high", high))]
        size = _size(size)
        self.scalar = size is None and all(bound.ndim == 0 for bound in bounds)
        try:
            shape = np.broadcast_shapes(
                *(bound.shape for bound in bounds), np.shape(log), () if size is None else (size,)
            )
        except ValueError:
            shapes = ", ".join(str(bound.shape) for bound in bounds)
            raise ValueError(
                f"low, high, log and size must agree; got bounds of shapes {shapes}, size {size}."
            ) from None
        if len(shape) > 1 or shape == (0,):
            raise ValueError(f"low and high must be numbers or non-empty vectors; got shape {shape}.")
        shape = shape or (1,)
        self.low, self.high = (np.broadcast_to(bound, shape).copy() for bound in bounds)
        self.log = np.broadcast_to(np.asarray(log, dtype=bool), shape).copy()
        self.columns = self.low.size
        if not np.all(self.low < self.high):
            i = int(np.argmin(self.low < self.high))
            raise ValueError(f"low must be below high; got {self.low[i]:g} and {self.high[i]:g} at index {i}.")
        if np.any(self.high / 2 - self.low / 2 > np.finfo(np.float64).max / 2):
            raise ValueError("high - low must not overflow; narrow the bounds.")
        if np.any(self.log & (self.low <= 0.0)):
            raise ValueError(f"low must be positive where log is true; got {self.low[self.log].min():g}.")

    def decode(self, row: Array) -> Any:
        return float(row[0]) if self.scalar else row.copy()

    def encode(self, value: Any) -> Array:
        row = self._row(value)
        if np.any((row < self.low) | (row > self.high)):
            i = int(np.argmax((row < self.low) | (row > self.high)))
            raise ValueError(f"x must lie in the box [{self.low[i]:g}, {self.high[i]:g}]; got {row[i]:g} at index {i}.")
        return row

    def describe(self) -> dict[str, Any]:
        log = self.log.tolist() if self.log.any() else None
        bounds = {"low": self.low.tolist(), "high": self.high.tolist(), "log": log}
        return {"kind": "box"} | ({k: v and v[0] for k, v in bounds.items()} if self.scalar else bounds)

    def __repr__(self) -> str:
        ends = {"low": self.low, "high": self.high} | ({"log": self.log} if self.log.any() else {})
        facts = {name: _in_few_words(values.tolist()) for name, values in ends.items()}
        alike = all(np.all(values == values[0]) for values in ends.values())
        facts |= {"size": str(self.columns)} if alike and not self.scalar else {}
        return f"Box({', '.join(f'{name}={text}' for name, text in facts.items())})"


def _in_few_words(values: list[Any]) -> str:
    """What all are, if they are one; else the list, of many its ends."""
    if all(value == values[0] for value in values):
        return repr(values[0])
    if len(values) <= _WRITTEN_OUT:
        return repr(values)
    return f"[{', '.join(map(repr, values[:3]))}, ..., {values[-1]!r}]"


class Integer(Dimension):
    """Whole numbers from `low` to `high`, both included.

    Parameters
    ----------
    low, high : int
        The bounds, ``low < high``.
    log : bool
        Whether orders of magnitude matter (needs ``low >= 1``).
    size : int, optional
        For a vector of such numbers.
    """

    kind: ClassVar[str] = "integer"

    def __init__(self, low: int, high: int, *, log: bool = False, size: int | None = None) -> None:
        self.low, self.high = whole("low", low), whole("high", high)
        if not self.low < self.high:
            raise ValueError(f"low must be below high; got {self.low} and {self.high}.")
        if self.high - self.low >= 2**52:
            raise ValueError("high - low must be below 2**52; use a Box for such ranges.")
        if log and self.low < 1:
            raise ValueError(f"low must be at least 1 where log is true; got {self.low}.")
        self.log, self.size = bool(log), _size(size)
        self.scalar, self.columns = self.size is None, self.size or 1

    @property
    def cardinality(self) -> float:
        return float(self.high - self.low + 1) ** self.columns

    def decode(self, row: Array) -> Any:
        return int(row[0]) if self.scalar else row.astype(np.int64)

    def encode(self, value: Any) -> Array:
        row = self._row(value)
        if np.any((row != np.round(row)) | (row < self.low) | (row > self.high)):
            raise ValueError(f"x must be whole numbers from {self.low} to {self.high}; got {value!r}.")
        return row

    def describe(self) -> dict[str, Any]:
        return {"kind": "integer", "low": self.low, "high": self.high, "log": self.log or None, "size": self.size}


class Boolean(Dimension):
    """True or false, or a vector of such.

    Parameters
    ----------
    size : int, optional
        For a vector of bits.
    """

    kind: ClassVar[str] = "choice"

    def __init__(self, size: int | None = None) -> None:
        self.size = _size(size)
        self.scalar, self.columns = self.size is None, self.size or 1
        self.options: tuple[Any, ...] = (False, True)

    @property
    def cardinality(self) -> float:
        return 2.0**self.columns if self.columns < 1024 else math.inf

    def decode(self, row: Array) -> Any:
        return bool(row[0]) if self.scalar else row.astype(np.bool_)

    def encode(self, value: Any) -> Array:
        row = self._row(value)
        if np.any((row != 0.0) & (row != 1.0)):
            raise ValueError(f"x must be true or false; got {value!r}.")
        return row

    def describe(self) -> dict[str, Any]:
        return {"kind": "boolean", "size": self.size}


class Choice(Dimension):
    """One of several options without an order, or a list of such.

    Parameters
    ----------
    options : sequence
        At least two, all different. A journal keeps their text, less where in memory they are, so that an option should
        have a telling one.
    size : int, optional
        For a list of choices among the same options.
    """

    kind: ClassVar[str] = "choice"

    def __init__(self, options: Sequence[Any], *, size: int | None = None) -> None:
        if isinstance(options, (str, bytes, Set, Mapping)) or not isinstance(options, Iterable):
            raise ValueError(
                f"options must be a list, in an order that is always the same, as ['relu', 'tanh']; got {options!r}."
            )
        self.options = tuple(options)
        if len(self.options) < 2:
            raise ValueError(f"options must be at least two; got {self.options!r}.")
        if _some_equal(self.options):
            raise ValueError(f"options must be different from each other; got {self.options!r}.")
        self.size = _size(size)
        self.scalar, self.columns = self.size is None, self.size or 1

    @property
    def cardinality(self) -> float:
        try:
            return float(len(self.options)) ** self.columns
        except OverflowError:
            return math.inf

    def decode(self, row: Array) -> Any:
        chosen = [self.options[int(i)] for i in row]
        return chosen[0] if self.scalar else chosen

    def encode(self, value: Any) -> Array:
        values = [value] if self.scalar else list(value)
        if len(values) != self.columns:
            raise ValueError(f"x must have {self.columns} entries for {self!r}; got {len(values)}.")
        return np.array([self._index(v) for v in values], dtype=np.float64)

    def _index(self, value: Any) -> int:
        for i, option in enumerate(self.options):
            if type(option) is type(value) and _equal(option, value):
                return i
        for i, option in enumerate(self.options):
            if _equal(option, value):
                return i
        raise ValueError(f"x must be one of {list(self.options)!r}; got {value!r}.")

    def describe(self) -> dict[str, Any]:
        plain = (bool, int, float, str, type(None))
        options = [option if isinstance(option, plain) else {"repr": _text(option)} for option in self.options]
        return {"kind": "choice", "options": options, "size": self.size}


class Permutation(Dimension):
    """The orders of ``0, ..., n - 1``, as integer arrays.

    Parameters
    ----------
    n : int
        How many things are put in order, at least two.
    """

    kind: ClassVar[str] = "permutation"

    def __init__(self, n: int) -> None:
        self.columns = whole("n", n, 2)
        self.scalar = False

    @property
    def cardinality(self) -> float:
        return math.exp(math.lgamma(self.columns + 1)) if self.columns < 170 else math.inf

    def decode(self, row: Array) -> Any:
        return row.astype(np.int64)

    def encode(self, value: Any) -> Array:
        row = self._row(value)
        if not np.array_equal(np.sort(row), np.arange(self.columns)):
            raise ValueError(f"x must be a permutation of 0 to {self.columns - 1}; got {value!r}.")
        return row

    def describe(self) -> dict[str, Any]:
        return {"kind": "permutation", "n": self.columns}


def _equal(one: Any, other: Any) -> bool:
    """Whether two options are the same: arrays and frames if all that they hold is; what cannot tell is not."""
    if one is other:
        return True
    try:
        found = one == other
        if isinstance(found, bool):
            return found
        if np.ndim(found) == 0:
            return bool(found)
        return np.shape(one) == np.shape(other) and bool(np.all(found))
    except Exception:  # whatever they raise when they are compared
        return False


def _some_equal(options: Sequence[Any]) -> bool:
    """Whether any two options are of one type and the same."""
    known: set[Any] = set()
    unhashable: list[Any] = []
    for option in options:
        try:
            repeated = (type(option), option) in known
            known.add((type(option), option))
        except TypeError:
            repeated = any(type(other) is type(option) and _equal(other, option) for other in unhashable)
            unhashable.append(option)
        if repeated:
            return True
    return False


def _text(option: Any) -> str:
    """An option's text, without where in memory it and its parts are: that differs from run to run."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(option))


def _size(size: int | None) -> int | None:
    return None if size is None else whole("size", size, 1)
