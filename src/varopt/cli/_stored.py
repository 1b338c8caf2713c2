"""``varopt fit`` of Parquet files that need not fit in memory: patterns, folders, and what has a limit of memory."""

from __future__ import annotations

import argparse
import glob
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from varopt.places import rows

__all__ = ["StoredTable", "stored_table"]


@dataclass(frozen=True)
class StoredTable:
    """The columns of files, in the place of a table in memory."""

    table: Any
    name: str
    features: list[str]
    dropped: int = 0

    @property
    def X(self) -> Any:
        """The features."""
        return self.table.X

    def fit(self, estimator: Any, memory: Any) -> None:
        """Fit an estimator in passes over the files, which are shown where somebody watches."""
        shown = {"verbose": int(sys.stderr.isatty())} if "verbose" in estimator.get_params() else {}
        if "memory" not in estimator.get_params():
            raise ValueError(f"{type(estimator).__name__} needs its data in memory: name one file, without --memory.")
        estimator.set_params(memory=memory, **shown)
        estimator.fit(self.table, None)
        estimator.set_params(memory=None, **dict.fromkeys(shown, 0))


def stored_table(options: argparse.Namespace) -> StoredTable | None:
    """The files that DATA stands for, where they are to be read in passes; else None."""
    text = str(options.data)
    several = glob.has_magic(text) or Path(text).is_dir()
    if not several and options.memory is None:
        return None
    if not several and not text.endswith((".parquet", ".pq")):
        raise ValueError(f"{text}: --memory takes Parquet files; of others make one, or leave --memory out.")
    if options.target is None:
        raise ValueError("--target has to name the column to explain.")
    for name in ("cv", "plot", "missing"):
        if getattr(options, name) is not None:
            raise ValueError(f"--{name} needs data in memory: name one file, without --memory.")
    found = rows(text, X=options.features, y=options.target)
    if options.drop:
        kept = [name for name in found.features if name not in options.drop]
        found = rows(text, X=kept, y=options.target)
    return StoredTable(found, text, list(found.features))
