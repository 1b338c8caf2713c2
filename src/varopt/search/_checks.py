"""Arguments and values, checked with the sentences users see."""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Found",
    "FoundColumns",
    "Measured",
    "as_found",
    "as_reports",
    "as_seed",
    "as_value",
    "as_values",
    "constraint_count",
    "positive",
    "sentence",
    "signs",
    "whole",
]

LONGEST = 2000  # characters of an error that are kept


def whole(name: str, value: Any, least: int | None = None) -> int:
    """A whole number, at least `least`, or a `ValueError` that names it."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (least is not None and number < least):
        raise ValueError(f"{name} must be a whole number{'' if least is None else f' >= {least}'}; got {value!r}.")
    return number


def constraint_count(value: Any) -> int:
    """How many constraints are measured; functions, which are known in advance, are told where they go."""
    if not isinstance(value, numbers.Number):
        raise ValueError(
            "constraints must be how many numbers the function returns after its value; give functions of the point, "
            f"which are known in advance, as subject_to; got {value!r}."
        )
    return whole("constraints", value, 0)


def positive(name: str, value: Any, meaning: str) -> float:
    """A positive finite number, or a `ValueError` that names it."""
    try:
        number = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0.0 < number < math.inf:
        raise ValueError(f"{name} must be {meaning}; got {value!r}.")
    return number


class Measured(NamedTuple):
    """What an evaluation gave: its value, what is wrong with it, other numbers, and the values on its way."""

    value: float
    error: str | None = None
    others: tuple[float, ...] = ()
    reports: tuple[float, ...] = ()
    stopped: bool = False

    @classmethod
    def of(cls, y: Any, width: int = 1) -> Measured:
        """Whatever a function returned, as `width` numbers."""
        if width == 1:
            return cls(*as_value(y))
        if y is None or isinstance(y, BaseException):
            return cls(*as_value(y))
        numbers = [as_value(number) for number in _flat(y)]
        if len(numbers) != width:
            return cls(math.nan, f"the function must give {width} numbers; got {len(numbers)}")
        wrong = next((f"number {i}: {text}" for i, (_, text) in enumerate(numbers) if text is not None), None)
        first, *others = (number for number, _ in numbers)
        return cls(math.nan, wrong) if wrong else cls(first, None, tuple(others))


Found = float | Measured
"""What an evaluation gave: a float that is finite stands for itself, with nothing besides."""


class FoundColumns(NamedTuple):
    """What several evaluations gave: a column for each field of `Measured`."""

    value: list[float]
    error: list[str | None]
    others: list[tuple[float, ...]]
    reports: list[tuple[float, ...]]
    stopped: list[bool]

    @classmethod
    def of(cls, found: list[Found]) -> FoundColumns:
        """Of at least one."""
        count, plain = len(found), [y for y in found if type(y) is float]
        if len(plain) == count:
            return cls(plain, [None] * count, [()] * count, [()] * count, [False] * count)
        each = (y if isinstance(y, Measured) else Measured(y) for y in found)
        return cls(*map(list, zip(*each, strict=True)))


def as_found(y: Any, width: int = 1) -> Found:
    """Whatever a function returned, as `width` numbers."""
    return float(y) if width == 1 and isinstance(y, float) and math.isfinite(y) else Measured.of(y, width)


def _flat(y: Any) -> list[Any]:
    """Numbers, lists of numbers and so on, in their order."""
    if isinstance(y, (str, bytes)) or not hasattr(y, "__iter__") or getattr(y, "ndim", 1) == 0:
        return [y]
    return [number for part in y for number in _flat(part)]


def as_values(ys: Any, count: int, errors: Any, width: int = 1) -> FoundColumns:
    """What `count` points gave, and what is wrong with each; a `ValueError` if there are more or fewer."""
    given = list(ys) if hasattr(ys, "__len__") else [ys]
    if len(given) != count:
        raise ValueError(f"ys must have one value for each of the {count} points; got {len(given)}.")
    notes = [None] * count if errors is None else list(errors)
    if len(notes) != count:
        raise ValueError(f"errors must have one entry for each of the {count} points; got {len(notes)}.")
    columns = FoundColumns.of([as_found(y, width) for y in given])
    told = [error if note is None else note for error, note in zip(columns.error, notes, strict=True)]
    return columns._replace(error=told)


def as_reports(reports: Any) -> list[tuple[float, ...]]:
    """What every evaluation yielded on its way, or a `ValueError`."""
    found = []
    for way in reports:
        values = [as_value(value) for value in way] if hasattr(way, "__iter__") else [(math.nan, "no list")]
        wrong = next((text for _, text in values if text is not None), None)
        if wrong is not None:
            raise ValueError(
                f"reports must have a list of finite numbers for every point; got {way!r}. An evaluation that reports "
                "something else has failed."
            )
        found.append(tuple(value for value, _ in values))
    return found


def as_value(y: Any) -> tuple[float, str | None]:
    """A value as a float, and what is wrong with it, if anything is."""
    if isinstance(y, float) and math.isfinite(y):
        return float(y), None
    if isinstance(y, BaseException):
        return math.nan, sentence(y)
    if y is None:
        return math.nan, "no value"
    try:
        array = np.asarray(y)
    except Exception:  # a tensor with a gradient, or on a device
        array = np.empty((), dtype=object)
    if array.size == 1 and array.dtype.kind in "fiub":
        value = float(array.reshape(()))
    elif array.dtype.kind == "O" and hasattr(y, "__float__"):  # fractions, decimals, whole numbers of any size, tensors
        try:
            value = float(y)
        except Exception as error:
            return math.nan, f"the value must be one real number; {sentence(error)}"
    else:
        what = f"shape {array.shape}" if array.dtype.kind in "fiub" else f"a {type(y).__name__}"
        return math.nan, f"the value must be one real number; got {what}"
    return (value, None) if math.isfinite(value) else (math.nan, f"the value is {value}")


def sentence(error: BaseException) -> str:
    """An exception in one line; some cannot even be printed, and some say nothing."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:
        text = ""
    text = " ".join(f"{name}: {text}".split()) if text.strip() else name
    text = text.encode("utf-8", "replace").decode()  # half a character could not be kept
    return text if len(text) <= LONGEST else text[:LONGEST] + " ..."


def as_seed(seed: Any) -> int:
    """A seed, drawn if there is none."""
    if seed is None:
        return int(np.random.SeedSequence().entropy)  # type: ignore[arg-type]
    return whole("seed", seed, 0)


def signs(maximize: Any, objectives: int) -> NDArray[np.float64]:
    """1 where smaller is better, -1 where larger is."""
    if isinstance(maximize, str) or maximize is None:
        raise ValueError(f"maximize must be True or False, or a list of such; got {maximize!r}.")
    if isinstance(maximize, (list, tuple, np.ndarray)):
        if len(maximize) != objectives:
            raise ValueError(f"maximize must say it for each of {objectives} objectives; got {len(maximize)}.")
        return np.where(np.asarray(maximize, dtype=bool), -1.0, 1.0)
    return np.full(objectives, -1.0 if maximize else 1.0)
