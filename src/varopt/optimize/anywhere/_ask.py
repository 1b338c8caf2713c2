"""What a problem asks of the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Ask"]


@dataclass
class Ask:
    """A request for a pass: a sample of so many rows (all of them for -1), or what to compute for each block."""

    rows: int = 0
    work: Sequence[Any] = ()
