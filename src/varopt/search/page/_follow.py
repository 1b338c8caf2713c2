"""Reading a journal again and again while a search writes it, without a trace in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from varopt.search._kept import Replay, starting_points
from varopt.search._search import Search
from varopt.search._space import SpaceLayout, space_from_json
from varopt.search.journal import Journal, Record
from varopt.search.page._content import Known, contents

__all__ = ["Follower"]


class Follower:
    """What is known of a journal, and what has become known since.

    Parameters
    ----------
    path : Path
        The journal. It is only read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._replay: Replay | None = None
        self._replayed = True  # as long as it could be
        self._seen: tuple[int, int] | None = None
        self._contents: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """The contents of the page as it should be now; the same object if nothing has changed."""
        journal = Journal.open(self.path, read_only=True)
        try:
            meta = journal.meta()
            try:
                records, note = journal.records(), ""  # before the batches, which are written before them
                batches = journal.batches()
            except ValueError as error:  # damaged: what is sound can be shown all the same
                records, batches, note = journal.sound(), [], str(error)
        finally:
            journal.close()
        if (len(records), len(batches)) != self._seen:
            self._seen = (len(records), len(batches))
            self._contents = self._made(meta, batches, records, note)
        return self._contents

    def _made(
        self, meta: dict[str, str], batches: list[tuple[int, int]], records: list[Record], note: str
    ) -> dict[str, Any]:
        settings, space = json.loads(meta["settings"]), space_from_json(_spelled(json.loads(meta["space"])))
        layout = SpaceLayout(space)
        records = [record for record in records if record.row.size == layout.columns]
        history = None if note else self._history(space, settings, batches, records)
        return contents(Known(self.path.name, meta, settings, layout, records, history, note))

    def _history(
        self, space: Any, settings: dict[str, Any], batches: list[tuple[int, int]], records: list[Record]
    ) -> dict[str, Any] | None:
        """The course of the distribution, by telling the search everything again; ``None`` where that cannot be."""
        if not self._replayed or settings.get("subject_to"):
            return None  # rules are functions, which no file keeps
        try:
            if self._replay is None:
                self._replay = Replay(_fresh(space, settings))
            self._replay.advance(batches, records)
        except Exception:  # a journal of another version may draw otherwise: the values are shown without it
            self._replayed, self._replay = False, None
            return None
        search = self._replay.search
        return search.history if isinstance(search, Search) else None


def _fresh(space: Any, settings: dict[str, Any]) -> Search:
    """A search with the settings of a journal, and nothing told."""
    plain = {name: value for name, value in settings.items() if name != "subject_to"}
    return Search(space, x0=starting_points(space, plain.pop("x0")), **plain)


def _spelled(described: Any) -> Any:
    """The description of a space with options that no file can keep replaced by their text."""
    if isinstance(described, dict):
        if set(described) == {"repr"}:
            return described["repr"]
        return {name: _spelled(value) for name, value in described.items()}
    return [_spelled(value) for value in described] if isinstance(described, list) else described
