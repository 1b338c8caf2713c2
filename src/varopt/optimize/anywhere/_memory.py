"""How much memory a run may take."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

__all__ = ["available", "bytes_of"]

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_UNKNOWN = 4 << 30  # what is taken to be free where the system does not say


def bytes_of(memory: Any) -> int:
    """A number of bytes, or text such as "2GB"; by default a quarter of what is free."""
    if memory is None:
        return available() // 4
    if isinstance(memory, str):
        found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([KMGT]?)I?B?\s*", memory.upper())
        if found:
            return int(float(found[1]) * _UNITS[found[2]])
    elif isinstance(memory, (int, float)) and not isinstance(memory, bool) and memory > 0:
        return int(memory)
    raise ValueError(f"memory must be a number of bytes, or text such as '2GB'; got {memory!r}.")


def available() -> int:
    """Bytes that are free, as far as the system says."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) << 10
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return _UNKNOWN
