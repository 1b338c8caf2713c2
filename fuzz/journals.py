"""Journals under random damage: every file is read, repaired with a warning, or refused by a sentence that names it.

``python -m fuzz.journals --count 100000`` tries so many damages, and prints those that break this with their numbers;
``--first N --count 1`` tries one of them again.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sqlite3
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import varopt as vo

__all__ = ["damage", "sound_journal", "sweep"]

COLUMNS = {
    "meta": ("key", "value"),
    "batch": ("number", "size", "told", "checksum"),
    "evaluation": ("number", "candidate", "x", "value", "error", "time", "began", "seconds", "worker", "others",
                   "reports", "stopped", "checksum"),
}  # fmt: skip
UNREADABLE = (sqlite3.Error, UnicodeDecodeError, IndexError)  # what is damaged already
MORE = (0,) * 10 + (1, 2, 3, 4, 8, 40)  # points to go on with; 0: only looked at
ENDINGS = ("", "-wal", "-shm", "-journal", ".lock")  # what SQLite and the journal put beside it, and itself
ODD = (None, -1, 0, 2**62, 1e308, float("inf"), "", "nan", "[1, 2", "[[1]]", "{}", b"\xff\xfe", "é" * 50)


def sound_journal(path: Path, kind: int = 0) -> vo.Search:
    """A search of thirty evaluations, some failed, and its journal: plain, constrained, or with reports."""
    space = vo.Space(
        {"x": vo.Box(-1, 1, size=2), "k": vo.Integer(0, 9), "c": ["a", "b"]}, when={"k": {"c": "a"}} if kind else None
    )
    options: dict[str, Any] = ({}, {"constraints": 1}, {"stop_early": True})[kind]
    with vo.Search(space, seed=1, journal=path, **options) as search:
        for count in (12, 12, 6):
            points = search.ask(count)
            values: list[Any] = [float((p["x"] ** 2).sum() + p.get("k", 0)) for p in points]
            values = [None if p.get("k") == 3 else value for p, value in zip(points, values, strict=True)]
            if kind == 1:
                values = [None if value is None else (value, value - 2.0) for value in values]
            reports = [[] if value is None else [2.0 * value, value] for value in values] if kind == 2 else None
            search.tell(points, values, reports=reports)
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
            size = min(rng.choice((1, 1, 2, 8, 100, 4096)), len(content) - at)
            content[at : at + size] = bytes(size) if kind == "zeros" else rng.randbytes(size)
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


def outcome(path: Path, whole: vo.Search, truth: list[str], *, more: int) -> str:
    """What loading does, to read or to evaluate so many more; an `AssertionError` for an untold change.

    Also for a message that does not name the file. `truth` is `_facts` of the whole search.
    """
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            search = vo.Search.load(path, read_only=not more)
        except (ValueError, OSError) as refusal:
            if path.name not in str(refusal):
                raise AssertionError("it does not name the journal") from refusal
            return "refused"
    with search:
        known = _facts(search)
        if known != truth[: len(known)] or (search.settings, search.space) != (whole.settings, whole.space):
            raise AssertionError("it loaded something else without a word")
        if more:
            try:
                _goes_on(search, path, more)
            except ValueError as refusal:  # a page that only writing looks at
                if f"{path.name} is damaged" not in str(refusal):
                    raise
                return "refused"
    return "repaired" if told else "as before" if len(known) == len(truth) else "shortened"


def _goes_on(search: vo.Search, path: Path, more: int) -> None:
    """Whether new evaluations and new batches find their places, and are found there."""
    width = 1 + search.settings["constraints"]
    for _ in range(2):  # what was under way, and a batch that is new
        points = search.ask(more)
        values: list[Any] = [1.0 if width == 1 else (1.0,) * width] * len(points)
        search.tell(points, values)
    search.close()
    with vo.Search.load(path, read_only=True) as again:
        if _facts(again) != _facts(search):
            raise AssertionError("what was evaluated since is not found again")


def _facts(search: vo.Search) -> list[str]:
    """All that is kept of its evaluations; NaN, where one failed, as text."""
    return [repr((record.row.tobytes(), record[:2], record[3:])) for record in search.records]


def sweep(count: int, seed: int = 0, first: int = 0) -> Iterator[tuple[int, str, str]]:
    """The number of a damage, its kind and the outcome, `count` times from the `first` on."""
    with tempfile.TemporaryDirectory() as folder:
        wholes = []
        for kind in range(3):
            original = Path(folder) / f"original{kind}.db"
            whole = sound_journal(original, kind)
            wholes.append((whole, _facts(whole), original.read_bytes()))
        for number in range(first, first + count):
            rng = random.Random(f"{seed} {number}")
            whole, truth, content = wholes[number % 3]
            path = Path(folder) / f"damaged{number}.db"
            path.write_bytes(content)
            kind = "+".join(damage(path, rng) for _ in range(rng.choice((1, 1, 1, 2))))
            try:
                found = outcome(path, whole, truth, more=rng.choice(MORE))
            except Exception as error:  # whatever is no refusal is a finding
                found = f"WRONG: {type(error).__name__}: {error}"
            yield number, kind, found
            for ending in ENDINGS:
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{path}{ending}").unlink()


def main() -> int:
    """Try many damages, and count what came of them."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.journals", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="damages (1000)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first (0)")
    parser.add_argument("--seed", type=int, default=0, help="of all of them (0)")
    options = parser.parse_args()
    outcomes: Counter[str] = Counter()
    wrong = 0
    for number, kind, found in sweep(options.count, options.seed, options.first):
        outcomes[found.partition(":")[0]] += 1
        if found.startswith("WRONG"):
            wrong += 1
            print(f"{number} ({kind}): {found}", flush=True)
        if (number + 1) % 10_000 == 0:
            print(number + 1, dict(outcomes), flush=True)
    print("\n".join(f"{count:8d}  {name}" for name, count in outcomes.most_common()))
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
