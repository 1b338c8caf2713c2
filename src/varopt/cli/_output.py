"""What a command writes: told before the work where it cannot be written, not after it."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["check_writable"]


def check_writable(path: Path | None) -> None:
    """Refuse a file that cannot be written."""
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f"{path}: this is a folder; name a file to write.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.absolute().parent} to write it to.")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise ValueError(f"{path}: it cannot be written; permission denied.")
