"""The journal: an SQLite file with every evaluation, written before the evaluation is used.

Its format is plain and documented in ``docs/black-boxes.md``. Tables: ``meta`` (key, value), ``batch`` (how many
candidates were drawn when) and ``evaluation`` (one row for every value that was told, in that order). A checksum in
every row, and one of ``meta``, tells what is damaged from what is sound.
"""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
import tempfile
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["FORMAT", "Course", "Courses", "Journal", "OtherJournal", "Record", "damaged", "is_blank"]

FORMAT = 3
KEPT = {2: 9, 3: 12}  # columns of an evaluation, less the checksum, of every format that is read and written
COLUMNS = ("number", "candidate", "x", "value", "error", "time", "began", "seconds", "worker", "others", "reports",
           "stopped")  # fmt: skip
BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)  # what SQLite says of a damaged file, whatever it was asked

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE batch (
    number INTEGER PRIMARY KEY, size INTEGER NOT NULL, told INTEGER NOT NULL, checksum INTEGER NOT NULL
);
CREATE TABLE evaluation (
    number INTEGER PRIMARY KEY,   -- the order in which values were told, from 0
    candidate INTEGER NOT NULL,   -- the order in which points were drawn, from 0; -1 for a point of the user's own
    x TEXT NOT NULL,              -- a JSON list of numbers: reals, integers, 0 and 1, indices of options
    value REAL,                   -- NULL if the evaluation failed
    error TEXT,                   -- what went wrong, or NULL
    time REAL NOT NULL,           -- when it was told, in seconds since 1970
    began REAL,                   -- when it began, by the clock of its worker, or NULL
    seconds REAL,                 -- how long it took, or NULL
    worker TEXT,                  -- who evaluated, or NULL
    others TEXT,                  -- a JSON list of what was measured besides: objectives, constraints; or NULL
    reports TEXT,                 -- a JSON list of the values that it reported on its way, or NULL
    stopped INTEGER NOT NULL,     -- 1 if it was stopped early; its value is then the last that it reported
    checksum INTEGER NOT NULL     -- CRC-32 of all the others, joined by "|", reals in hexadecimal, NULL as a zero byte
);
"""


class Course(NamedTuple):
    """How an evaluation went, besides its value."""

    began: float = math.nan
    seconds: float = math.nan
    worker: str = ""
    others: tuple[float, ...] = ()
    reports: tuple[float, ...] = ()
    stopped: bool = False


class Courses(NamedTuple):
    """How several evaluations went: a column for each field of `Course`."""

    began: Sequence[float]
    seconds: Sequence[float]
    worker: Sequence[str]
    others: Sequence[tuple[float, ...]]
    reports: Sequence[tuple[float, ...]]
    stopped: Sequence[bool]

    @classmethod
    def of(cls, courses: Iterable[Course]) -> Courses:
        """Of at least one."""
        return cls(*zip(*courses, strict=True))

    @classmethod
    def unknown(cls, count: int) -> Courses:
        """Where nobody measured anything."""
        return cls.of([Course()] * count) if count else cls([], [], [], [], [], [])

    @property
    def took(self) -> float:
        """How long they took together, in seconds, as far as that is known."""
        return sum(seconds for seconds in self.seconds if seconds > 0.0)  # none is a NaN


class Record(NamedTuple):
    """One evaluation: what `Course` has follows the time."""

    number: int
    candidate: int
    row: NDArray[np.float64]
    value: float
    error: str | None
    time: float
    began: float = math.nan
    seconds: float = math.nan
    worker: str = ""
    others: tuple[float, ...] = ()
    reports: tuple[float, ...] = ()
    stopped: bool = False

    @property
    def course(self) -> Course:
        """How it went."""
        return Course(*self[6:])


class Journal:
    """An open journal. One process writes at a time; others may read, and change nothing by it.

    Parameters
    ----------
    path : Path
        The file.
    database, lock : sqlite3.Connection
        The journal, and what keeps other writers out (``None`` when only reading).
    """

    def __init__(self, path: Path, database: sqlite3.Connection, lock: sqlite3.Connection | None) -> None:
        self.path, self._database, self._lock = path, database, lock
        self._kept = KEPT[FORMAT]
        self._dropped = 0  # damaged records at the end, of which there is one at most

    @classmethod
    def create(cls, path: Path, meta: dict[str, str]) -> Self:
        """A new journal; a `ValueError` if the file is there already."""
        if not path.parent.is_dir():
            raise ValueError(f"journal {path} cannot be written: there is no folder {path.parent}.")
        _refuse_existing(path)
        with _writing(path, 0):
            lock = _locked(path)
            try:
                _refuse_existing(path)  # another process may have made it in the meantime
                database = _connect(path)
                with database:  # in one transaction: whoever is killed here leaves a blank file
                    database.executescript("BEGIN;" + _TABLES)
                    facts = {"format": str(FORMAT), **meta}
                    database.executemany("INSERT INTO meta VALUES (?, ?)", {**facts, "checksum": _seal(facts)}.items())
            except BaseException:
                lock.close()
                raise
        return cls(path, database, lock)

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Self:
        """An existing journal, to go on with or to read."""
        if not path.is_file():
            raise ValueError(f"journal {path} {'is a folder; name a file' if path.is_dir() else 'does not exist'}.")
        try:
            with path.open("rb") as file:
                known = file.read(16)
        except OSError as error:
            raise OSError(f"journal {path} cannot be read: {error.strerror}.") from None
        if known and known != b"SQLite format 3\0":
            raise ValueError(f"journal {path} is not a journal of varopt: it is no SQLite file.")
        if read_only:
            return cls(path, _connect_to_read(path), None)
        with _writing(path, 0):
            lock = _locked(path)
            try:
                return cls(path, _connect(path), lock)
            except BaseException:
                lock.close()
                raise

    def meta(self) -> dict[str, str]:
        """Format, versions, space and settings, or a `ValueError` that says what is wrong with them."""
        with damaged(self.path):
            tables = [name for (name,) in self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            if tables and not {"meta", "batch", "evaluation"} & set(tables):
                shown = ", ".join(map(repr, tables[:3]))
                raise OtherJournal(
                    f"journal {self.path} is not a journal of varopt: its tables are {shown} and others."
                )
            facts = dict(self._database.execute("SELECT key, value FROM meta").fetchall())
            found = str(facts.get("format"))
            if found.isdigit() and int(found) not in KEPT:
                known = " and ".join(map(str, KEPT))
                raise OtherJournal(f"journal {self.path} has format {found}; this version of varopt reads {known}.")
            seal = facts.pop("checksum", None)
            if seal != _seal(facts):
                raise ValueError("its settings do not match their checksum")
            self._kept = KEPT[int(found)]  # a search of an older version goes on in its format
        return facts

    def add_batch(self, number: int, size: int, told: int) -> None:
        """Note that `size` candidates were drawn after `told` evaluations."""
        with _writing(self.path, told):
            row = (number, size, told)
            self._database.execute("INSERT INTO batch VALUES (?, ?, ?, ?)", (*row, _checksum(row)))
            self._database.commit()

    def add(self, records: Iterable[Record]) -> None:
        """Append evaluations; they are on their way to the disk when this returns."""
        rows = [_to_sql(record, self._kept) for record in records]
        with _writing(self.path, rows[0][0] if rows else 0):
            self._database.executemany(f"INSERT INTO evaluation VALUES ({', '.join('?' * (self._kept + 1))})", rows)
            self._database.commit()

    def batches(self) -> list[tuple[int, int]]:
        """Size of every batch, and how many evaluations came before it."""
        with damaged(self.path):
            rows = self._database.execute("SELECT number, size, told, checksum FROM batch ORDER BY number").fetchall()
            for position, (*row, checksum) in enumerate(rows):
                if row[0] != position or checksum != _checksum(row):
                    raise ValueError(f"batch {position} does not match its checksum")
        return [(size, told) for _, size, told, _ in rows]

    def contents(self) -> tuple[list[tuple[int, int]], list[Record]]:
        """Batches and evaluations; an error where a batch was drawn after evaluations that are not there."""
        batches = self.batches()  # before the evaluations, of which another process may be writing more
        records = self.records()
        kept = [batch for batch in batches if batch[1] <= len(records)]
        with damaged(self.path):
            known = len(records) + self._dropped
            if batches and batches[-1][1] > known:
                raise ValueError(f"it has {known} evaluations, and once had {batches[-1][1]} at least")
        return kept, records

    def records(self) -> list[Record]:
        """All evaluations in order. A damaged last one is dropped with a warning; damage before it is an error."""
        with damaged(self.path):
            rows = self._database.execute(self._all).fetchall()
            records = [record for position, row in enumerate(rows) if (record := _from_sql(position, row)) is not None]
            if len(records) < len(rows) - 1 or (records and records[-1].number != len(records) - 1):
                first = next(i for i, row in enumerate(rows) if _from_sql(i, row) is None)
                raise ValueError(
                    f"evaluation {first} of {len(rows)} does not match its checksum, and records follow it"
                )
        self._dropped = len(rows) - len(records)
        if self._dropped:
            self._drop(rows[-1][0], len(records))
        return records

    @property
    def _all(self) -> str:
        return f"SELECT {', '.join(COLUMNS[: self._kept])}, checksum FROM evaluation ORDER BY number"

    def _drop(self, number: Any, position: int) -> None:
        warnings.warn(
            f"The last record of {self.path} (evaluation {position}) is damaged and was dropped; its point will be "
            "evaluated again.",
            stacklevel=4,
        )
        if self._lock is not None:
            with _writing(self.path, position):
                self._database.execute("DELETE FROM evaluation WHERE number IS ?", (number,))
                # What was drawn with it known is drawn again, and would not find its place.
                self._database.execute("DELETE FROM batch WHERE told > ?", (position,))
                self._database.commit()

    def sound(self) -> list[Record]:
        """The records that match their checksums, whatever happened to the rest."""
        records: list[Record] = []
        with suppress(sqlite3.Error, ValueError):
            for row in self._database.execute(self._all):
                record = _from_sql(None, row)
                if record is not None:
                    records.append(record)
        return records

    def close(self) -> None:
        """Close the file and let others write to it."""
        self._database.close()
        if self._lock is not None:
            self._lock.close()  # its file stays: removing it would race with whoever opens it now
            self._lock = None


class OtherJournal(ValueError):
    """A journal that is sound, but not ours to read."""


_UNREADABLE = (sqlite3.Error, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@contextmanager
def damaged(path: Path) -> Iterator[None]:
    """Turn whatever reading a damaged file raises into a sentence that names the file."""
    try:
        yield
    except (OtherJournal, OSError):
        raise
    except _UNREADABLE as error:
        text = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise _damage(path, text) from None


def _damage(path: Path, text: str) -> ValueError:
    return ValueError(
        f"journal {path} is damaged: {text.rstrip('.')}. Restore a copy of the file, or take what is sound to "
        "a new journal with Search.salvage(path, new)."
    )


@contextmanager
def _writing(path: Path, told: int) -> Iterator[None]:
    """Turn what SQLite raises when it cannot write into an `OSError` that names the file and what is safe.

    A page that only writing looks at may be damaged: then what reading says is said.
    """
    try:
        yield
    except sqlite3.Error as error:
        if isinstance(error, sqlite3.IntegrityError) or getattr(error, "sqlite_errorcode", 0) & 0xFF in BROKEN:
            raise _damage(path, str(error)) from None
        safe = f" The {told} evaluations before are in it: see to that and run the same again to go on." if told else ""
        look = " Search.load(path, read_only=True) only looks." if path.exists() and not told else ""
        raise OSError(f"journal {path} cannot be written: {error}.{safe}{look}") from None


def is_blank(path: Path) -> bool:
    """Whether a journal can begin at `path`: nothing is there, or what a process killed before it began left."""
    if not path.exists():
        return True
    if path.is_dir():
        return False
    try:
        database = _connect_to_read(path)
    except (OSError, ValueError):
        return False
    try:
        return not database.execute("SELECT name FROM sqlite_master").fetchall()
    except (sqlite3.Error, UnicodeDecodeError):
        return False
    finally:
        database.close()


def _refuse_existing(path: Path) -> None:
    if not is_blank(path):
        raise ValueError(f"journal {path} exists already; go on with it by Search.load, or name another file.")


def _connect(path: Path) -> sqlite3.Connection:
    # Search may be used from several threads, one at a time.
    # As a whole path: SQLite takes ":memory:" for no file at all.
    database = sqlite3.connect(path.absolute(), timeout=10.0, check_same_thread=False)
    try:
        # A write-ahead log survives a killed process, lets others read meanwhile, and needs no sync at every commit.
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.OperationalError:  # a read-only place, a full disk
        database.close()
        raise
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        pass  # damaged: what reads it next says so
    return database


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection that leaves no trace: as it is, where nobody writes; else with its log, or a copy of both."""
    log = path.with_name(path.name + "-wal")
    if not log.exists():
        return sqlite3.connect(path.resolve().as_uri() + "?immutable=1", uri=True, check_same_thread=False)
    database = sqlite3.connect(path.resolve().as_uri() + "?mode=ro", uri=True, check_same_thread=False)
    try:
        database.execute("SELECT name FROM sqlite_master").fetchall()
        return database
    except sqlite3.OperationalError:  # a folder where the index of the log cannot be made
        database.close()
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return database  # damaged: what reads it next says so
    with tempfile.TemporaryDirectory() as folder, damaged(path):
        for file in (path, log):
            shutil.copy(file, Path(folder) / file.name)
        with sqlite3.connect(Path(folder) / path.name) as copy:
            memory = sqlite3.connect(":memory:", check_same_thread=False)
            copy.backup(memory)
        copy.close()
    return memory


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _locked(path: Path) -> sqlite3.Connection:
    """Hold an exclusive SQLite lock on a file beside the journal: portable, and gone with the process that held it."""
    lock = sqlite3.connect(_lock_path(path), timeout=0.0, isolation_level=None, check_same_thread=False)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        lock.close()
        if "locked" not in str(error):
            raise
        raise ValueError(
            f"journal {path} is in use by another search. Close that one, or only look, with "
            "Search.load(path, read_only=True)."
        ) from None
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        lock.close()
        raise OSError(f"journal {path} cannot be written: {_lock_path(path)} is damaged. Remove that file.") from None
    return lock


def _checksum(fields: Iterable[Any]) -> int:
    parts = ("\0" if f is None else f.hex() if isinstance(f, float) else str(f) for f in fields)
    return zlib.crc32("|".join(parts).encode("utf-8", "surrogatepass"))


def _seal(facts: dict[str, str]) -> str:
    return str(_checksum(text for item in sorted(facts.items()) for text in item))


def _to_sql(record: Record, count: int) -> tuple[Any, ...]:
    times = (None if math.isnan(t) else float(t) for t in (record.time, record.began, record.seconds))
    kept = None if record.error is not None else float(record.value)
    lists = (json.dumps(list(numbers)) if numbers else None for numbers in (record.others, record.reports))
    point = json.dumps(record.row.tolist())
    fields = (record.number, record.candidate, point, kept, record.error, *times, record.worker or None, *lists,
              int(record.stopped))  # fmt: skip
    return (*fields[:count], _checksum(fields[:count]))


def _from_sql(position: int | None, fields: tuple[Any, ...]) -> Record | None:
    """The record, or ``None`` if it is damaged, or is not the one that belongs at this position."""
    *kept, checksum = fields
    try:
        number, candidate, x, value, error, time, began, seconds, worker, *rest = kept
        others, reports, stopped = rest or (None, None, 0)
        if checksum != _checksum(kept) or (position is not None and number != position):
            return None
        row = np.array(json.loads(x), dtype=np.float64)
        besides, way = (() if text is None else tuple(map(float, json.loads(text))) for text in (others, reports))
    except (TypeError, ValueError):
        return None
    value, time, began, seconds = (math.nan if t is None else float(t) for t in (value, time, began, seconds))
    return Record(number, candidate, row, value, error, time, began, seconds, worker or "", besides, way, bool(stopped))
