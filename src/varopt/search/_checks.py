"""Arguments and values, checked with the sentences users see."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

__all__ = ["as_value", "as_values", "positive", "whole"]


def whole(name: str, value: Any, least: int | None = None) -> int:
    """A whole number, at least `least`, or a `ValueError` that names it."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (least is not None and number < least):
        raise ValueError(f"{name} must be a whole number{'' if least is None else f' >= {least}'}; got {value!r}.")
    return number


def positive(name: str, value: Any, meaning: str) -> float:
    """A positive finite number, or a `ValueError` that names it."""
    try:
        number = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0.0 < number < math.inf:
        raise ValueError(f"{name} must be {meaning}; got {value!r}.")
    return number


def as_values(ys: Any, count: int, errors: Any) -> tuple[list[float], list[str | None]]:
    """Values of `count` points as floats, and what is wrong with each; a `ValueError` if there are more or fewer."""
    plain = errors is None and isinstance(ys, np.ndarray) and ys.dtype == np.float64 and ys.shape == (count,)
    if plain and np.isfinite(ys).all():
        return ys.tolist(), [None] * count
    given = list(ys) if hasattr(ys, "__len__") else [ys]
    if len(given) != count:
        raise ValueError(f"ys must have one value for each of the {count} points; got {len(given)}.")
    notes = [None] * count if errors is None else list(errors)
    if len(notes) != count:
        raise ValueError(f"errors must have one entry for each of the {count} points; got {len(notes)}.")
    values: list[float] = []
    texts: list[str | None] = []
    for y, note in zip(given, notes, strict=True):
        value, text = as_value(y)
        values.append(value)
        texts.append(text if note is None else note)
    return values, texts


def as_value(y: Any) -> tuple[float, str | None]:
    """A value as a float, and what is wrong with it, if anything is."""
    if isinstance(y, float) and math.isfinite(y):
        return float(y), None
    if isinstance(y, BaseException):
        return math.nan, f"{type(y).__name__}: {y}"
    if y is None:
        return math.nan, "no value"
    array = np.asarray(y)
    if array.size != 1 or array.dtype.kind not in "fiub":
        what = f"shape {array.shape}" if array.dtype.kind in "fiub" else f"a {type(y).__name__}"
        return math.nan, f"the value must be one real number; got {what}"
    value = float(array.reshape(()))
    return (value, None) if math.isfinite(value) else (math.nan, f"the value is {value}")
