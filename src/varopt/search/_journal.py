"""The journal: an SQLite file with every evaluation, written before the evaluation is used.

Its format is plain and documented in ``docs/black-boxes.md``. Tables: ``meta`` (key, value), ``batch`` (how many
candidates were drawn when) and ``evaluation`` (one row for every value that was told, in that order). A checksum in
every row of ``evaluation`` tells a damaged record from a sound one.
"""

from __future__ import annotations

import json
import math
import sqlite3
import warnings
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["FORMAT", "Journal", "Record", "is_blank"]

FORMAT = 1

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE batch (number INTEGER PRIMARY KEY, size INTEGER NOT NULL, told INTEGER NOT NULL);
CREATE TABLE evaluation (
    number INTEGER PRIMARY KEY,   -- the order in which values were told, from 0
    candidate INTEGER NOT NULL,   -- the order in which points were drawn, from 0; -1 for a point of the user's own
    x TEXT NOT NULL,              -- a JSON list of numbers: reals, integers, 0 and 1, indices of options
    value REAL,                   -- NULL if the evaluation failed
    error TEXT,                   -- what went wrong, or NULL
    time REAL NOT NULL,           -- seconds since 1970
    checksum INTEGER NOT NULL     -- CRC-32 of "number|candidate|x|value|error", value in hexadecimal or empty
);
"""


class Record(NamedTuple):
    """One evaluation."""

    number: int
    candidate: int
    row: NDArray[np.float64]
    value: float
    error: str | None
    time: float


class Journal:
    """An open journal. One process writes at a time; others may read.

    Parameters
    ----------
    path : Path
        The file.
    database, lock : sqlite3.Connection
        The journal, and what keeps other writers out (``None`` when only reading).
    """

    def __init__(self, path: Path, database: sqlite3.Connection, lock: sqlite3.Connection | None) -> None:
        self.path, self._database, self._lock = path, database, lock

    @classmethod
    def create(cls, path: Path, meta: dict[str, str]) -> Self:
        """A new journal; a `ValueError` if the file is there already."""
        if not path.parent.is_dir():
            raise ValueError(f"journal {path} cannot be written: there is no folder {path.parent}.")
        _refuse_existing(path)
        lock = _locked(path)
        try:
            _refuse_existing(path)  # another process may have made it in the meantime
        except ValueError:
            lock.close()
            raise
        database = _connect(path)
        with database:  # in one transaction: whoever is killed here leaves a blank file
            database.executescript("BEGIN;" + _TABLES)
            database.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        return cls(path, database, lock)

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Self:
        """An existing journal, to go on with or to read."""
        if not path.is_file():
            raise ValueError(f"journal {path} {'is a folder; name a file' if path.is_dir() else 'does not exist'}.")
        lock = None if read_only else _locked(path)
        journal = cls(path, _connect(path), lock)
        try:
            found = journal.meta.get("format")
        except sqlite3.DatabaseError as error:
            journal.close()
            raise ValueError(f"journal {path} is not a journal of varopt: {error}.") from None
        if found != str(FORMAT):
            journal.close()
            raise ValueError(f"journal {path} has format {found}; this version of varopt reads format {FORMAT}.")
        return journal

    @property
    def meta(self) -> dict[str, str]:
        """Format, versions, space and settings."""
        return dict(self._database.execute("SELECT key, value FROM meta").fetchall())

    def add_batch(self, number: int, size: int, told: int) -> None:
        """Note that `size` candidates were drawn after `told` evaluations."""
        self._database.execute("INSERT INTO batch VALUES (?, ?, ?)", (number, size, told))
        self._database.commit()

    def add(self, records: Iterable[Record]) -> None:
        """Append evaluations; they are on their way to the disk when this returns."""
        self._database.executemany("INSERT INTO evaluation VALUES (?, ?, ?, ?, ?, ?, ?)", map(_to_sql, records))
        self._database.commit()

    def batches(self) -> list[tuple[int, int]]:
        """Size of every batch, and how many evaluations came before it."""
        return self._database.execute("SELECT size, told FROM batch ORDER BY number").fetchall()

    def records(self) -> list[Record]:
        """All evaluations in order. A damaged last one is dropped with a warning; damage before it is an error."""
        rows = self._database.execute(
            "SELECT number, candidate, x, value, error, time, checksum FROM evaluation ORDER BY number"
        ).fetchall()
        records = []
        for position, (number, candidate, x, value, error, when, checksum) in enumerate(rows):
            if number == position and checksum == _checksum(number, candidate, x, value, error):
                row = np.array(json.loads(x), dtype=np.float64)
                records.append(Record(number, candidate, row, math.nan if value is None else value, error, when))
                continue
            if position < len(rows) - 1:
                raise ValueError(
                    f"journal {self.path} is damaged at evaluation {position} of {len(rows)}: its checksum does not "
                    "match, and records follow it. Restore a copy of the file."
                )
            warnings.warn(
                f"The last record of {self.path} (evaluation {position}) is damaged and was dropped; its point will be "
                "evaluated again.",
                stacklevel=4,
            )
            if self._lock is not None:
                self._database.execute("DELETE FROM evaluation WHERE number = ?", (number,))
                self._database.commit()
        return records

    def close(self) -> None:
        """Close the file and let others write to it."""
        self._database.close()
        if self._lock is not None:
            self._lock.close()  # its file stays: removing it would race with whoever opens it now
            self._lock = None


def is_blank(path: Path) -> bool:
    """Whether a journal can begin at `path`: nothing is there, or what a process killed before it began left."""
    if not path.exists():
        return True
    if path.is_dir():
        return False
    database = sqlite3.connect(path.resolve().as_uri() + "?mode=ro", uri=True)
    try:
        return not database.execute("SELECT name FROM sqlite_master").fetchall()
    except sqlite3.DatabaseError:
        return False
    finally:
        database.close()


def _refuse_existing(path: Path) -> None:
    if not is_blank(path):
        raise ValueError(f"journal {path} exists already; go on with it by Search.load, or name another file.")


def _connect(path: Path) -> sqlite3.Connection:
    # Search may be used from several threads, one at a time.
    database = sqlite3.connect(path, timeout=10.0, check_same_thread=False)
    try:
        # A write-ahead log survives a killed process, lets others read meanwhile, and needs no sync at every commit.
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.DatabaseError:
        pass  # not a database, or a read-only place: what reads it next says so
    return database


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _locked(path: Path) -> sqlite3.Connection:
    """Hold an exclusive SQLite lock on a file beside the journal: portable, and gone with the process that held it."""
    lock = sqlite3.connect(_lock_path(path), timeout=0.0, isolation_level=None, check_same_thread=False)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        lock.close()
        raise ValueError(
            f"journal {path} is in use by another search. Close that one, or only look, with "
            "Search.load(path, read_only=True)."
        ) from None
    return lock


def _checksum(number: int, candidate: int, x: str, value: float | None, error: str | None) -> int:
    text = f"{number}|{candidate}|{x}|{'' if value is None else value.hex()}|{error or ''}"
    return zlib.crc32(text.encode())


def _to_sql(record: Record) -> tuple[int, int, str, float | None, str | None, float, int]:
    x = json.dumps(record.row.tolist())
    value = None if record.error is not None else float(record.value)
    checksum = _checksum(record.number, record.candidate, x, value, record.error)
    return record.number, record.candidate, x, value, record.error, record.time, checksum
