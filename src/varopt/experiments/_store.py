"""Results on disk: one JSON line per method and repetition, appended as it finishes, so that a run can be resumed."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from varopt.experiments._tasks import ExperimentTask, Row

__all__ = ["Store"]


class Store:
    """The results of a folder.

    Each row carries the machine and the versions it was measured with: rows of others are kept in the file, and not
    counted as done.

    Parameters
    ----------
    path : Path
        A file of JSON lines; made when the first row is written.
    environment : mapping
        The machine and the versions of this run.
    """

    def __init__(self, path: Path, environment: Mapping[str, Any]) -> None:
        self.path, self.environment = path, json.loads(json.dumps(environment))
        self._rows: dict[tuple[Any, ...], Row] = {}
        self.foreign = 0  # rows of another machine or other versions
        for row in self._read():
            if row.pop("environment", None) == self.environment:
                self._rows[self._key(row)] = row
            else:
                self.foreign += 1

    def _read(self) -> Iterable[Row]:
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:  # the line that was being written when the power went
                continue

    @staticmethod
    def _key(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in ("experiment", "size", "seed", "repetition", "budget", "method"))

    def clear(self) -> None:
        """Forget every row, on disk too."""
        self.path.unlink(missing_ok=True)
        self._rows.clear()
        self.foreign = 0

    def missing(self, task: ExperimentTask, methods: Sequence[str]) -> list[str]:
        """The methods that have not been run on this repetition."""
        return [method for method in methods if (*task.key, method) not in self._rows]

    def add(self, rows: Sequence[Row]) -> None:
        """Append rows; they are on disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        torn = self.path.exists() and self.path.stat().st_size > 0 and not self.path.read_bytes().endswith(b"\n")
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" * torn)
            for row in rows:
                file.write(json.dumps({**row, "environment": self.environment}) + "\n")
        self._rows.update((self._key(row), row) for row in rows)

    def rows(self, tasks: Iterable[ExperimentTask]) -> list[Row]:
        """The rows of these repetitions."""
        wanted = {task.key for task in tasks}
        return [row for key, row in self._rows.items() if key[:-1] in wanted]

    def export(self, rows: Sequence[Row], folder: Path, facts: Mapping[str, Any]) -> None:
        """Write ``results.csv`` and ``results.json``, the latter with the machine, the versions and the seed."""
        columns = list(dict.fromkeys(name for row in rows for name in row))
        with (folder / "results.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        content = {**facts, **self.environment, "rows": list(rows)}
        (folder / "results.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
