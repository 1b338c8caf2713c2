"""Arguments, checked with the sentences users see."""

from __future__ import annotations

import math
import operator
from typing import Any

__all__ = ["positive", "whole"]


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
