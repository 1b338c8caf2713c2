"""Journals under random damage: every file is read, repaired with a warning, or refused by a sentence that names it."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import varopt as vo

__all__ = ["damage", "sound_journal", "sweep"]

COLUMNS = {
    "meta": ("key", "value"),
    "batch": ("number", "size", "told", "checksum"),
    "evaluation": ("number", "candidate", "x", "value", "error", "time", "began", "seconds", "worker", "checksum"),
}
UNREADABLE = (sqlite3.Error, UnicodeDecodeError, IndexError)  # what is damaged already
ODD = (None, -1, 0, 2**62, 1e308, float("inf"), "", "nan", "[1, 2", "[[1]]", "{}", b"\xff\xfe", "é" * 50)


def sound_journal(path: Path) -> vo.Search:
    """A search of thirty evaluations, some failed, and its journal."""
    space = vo.Space({"x": vo.Box(-1, 1, size=2), "k": vo.Integer(0, 9), "c": ["a", "b"]})
    with vo.Search(space, seed=1, journal=path) as search:
        for count in (12, 12, 6):
            points = search.ask(count)
            search.tell(points, [None if p["k"] == 3 else float((p["x"] ** 2).sum() + p["k"]) for p in points])
    return search


def damage(path: Path, rng: random.Random) -> str:
    """Change something: bytes of the file, its length, or what a table says."""
    kind = rng.choice(("bytes", "bytes", "zeros", "cut", "cell", "cell", "row", "table", "copy"))
    if kind in ("bytes", "zeros", "cut"):
        content = bytearray(path.read_bytes())
        at = rng.randrange(len(content) or 1)
        if kind == "cut":
            del content[at:]
        else:
            for i in range(at, min(len(content), at + rng.choice((1, 1, 2, 8, 100, 4096)))):
                content[i] = 0 if kind == "zeros" else rng.randrange(256)
        path.write_bytes(content)
        return kind
    table = rng.choice(tuple(COLUMNS))
    with contextlib.closing(sqlite3.connect(path)) as database, contextlib.suppress(*UNREADABLE):
        rows = [row for (row,) in database.execute(f"SELECT rowid FROM {table}")]
        row = rng.choice(rows)
        match kind:
            case "cell":
                column = rng.choice(COLUMNS[table])
                database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (rng.choice(ODD), row))
            case "row":
                database.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
            case "table":
                database.execute(rng.choice((f"DROP TABLE {table}", f"DELETE FROM {table}")))
            case "copy":
                columns = ", ".join(COLUMNS[table][1:])
                shift = rng.choice((1, 100))
                key = "number + ?" if table != "meta" else "key || ?"
                database.execute(
                    f"INSERT INTO {table} SELECT {key}, {columns} FROM {table} WHERE rowid = ?", (shift, row)
                )
        database.commit()
    return kind


def outcome(path: Path, whole: vo.Search, *, read_only: bool) -> str:
    """What loading does; an `AssertionError` for an untold change or a message without the file's name."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            search = vo.Search.load(path, read_only=read_only)
        except (ValueError, OSError) as refusal:
            if path.name not in str(refusal):
                raise AssertionError("it does not name the journal") from refusal
            return "refused"
    with search:
        known = [(r.candidate, r.row.tobytes(), r.error) for r in search.records]
        truth = [(r.candidate, r.row.tobytes(), r.error) for r in whole.records]
        if known != truth[: len(known)] or (search.settings, search.space) != (whole.settings, whole.space):
            raise AssertionError("it loaded something else without a word")
        np.testing.assert_array_equal([r.value for r in search.records], [r.value for r in whole.records[: len(known)]])
        search.ask(3)
    return "repaired" if told else "as before" if len(known) == len(truth) else "shortened"


def sweep(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """The kind of damage and the outcome, `count` times."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder) / "original.db"
        whole = sound_journal(original)
        content = original.read_bytes()
        for number in range(count):
            path = Path(folder) / f"damaged{number}.db"
            path.write_bytes(content)
            kind = "+".join(damage(path, rng) for _ in range(rng.choice((1, 1, 1, 2))))
            yield kind, outcome(path, whole, read_only=rng.random() < 0.5)
            for file in Path(folder).glob(f"{path.name}*"):
                file.unlink()


def main(count: int, seed: int = 0) -> Any:
    """Count outcomes."""
    return Counter(result for _, result in sweep(count, seed))
