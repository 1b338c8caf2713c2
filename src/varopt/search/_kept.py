"""Searches in files: a search is its records, and is repeated from them."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from varopt._version import __version__
from varopt.search._batch import Batch, Stretch
from varopt.search._coding import Coding
from varopt.search._dimensions import Dimension
from varopt.search._space import Space, SpaceLayout, as_space, space_from_json
from varopt.search.journal import Courses, Journal, OtherJournal, Record, damaged

__all__ = ["Kept", "Replay", "starting_points"]

Array = NDArray[np.float64]


class Kept:
    """What a `Search` can do with files."""

    if TYPE_CHECKING:  # what it has besides

        @property
        def records(self) -> list[Record]: ...
        @property
        def evaluations(self) -> int: ...

        _layout: SpaceLayout
        _coding: Coding
        _journal: Journal | None
        _batches: list[tuple[int, int]]
        _queue: deque[Stretch]

        def __init__(self, space: Any, **settings: Any) -> None: ...

        settings: dict[str, Any]
        space: Space | Dimension

        def _draw(self, count: int | None) -> None: ...

        def _doubtful(self) -> list[Array]: ...
        def _use(self, record: Record, batch: Batch | None, position: int) -> None: ...
        def _tell_rows(self, rows: Array, values: list[float], errors: list[str | None], courses: Courses) -> None: ...

    def _meta(self) -> dict[str, str]:
        return {
            "varopt": __version__,
            "numpy": np.__version__,
            "space": json.dumps(self.space.describe()),
            "settings": json.dumps(self.settings),
        }

    def close(self) -> None:
        """Close the journal, so that another process may open it."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def save(self, path: str | Path) -> None:
        """Write the search to a new SQLite file, in the format of the journal; `load` goes on from there.

        Parameters
        ----------
        path : path
            It must not exist yet.
        """
        journal = Journal.create(Path(path), self._meta())
        try:
            for number, (size, told) in enumerate(self._batches):
                journal.add_batch(number, size, told)
            journal.add(self.records)
        finally:
            journal.close()

    @classmethod
    def load(cls, path: str | Path, space: Any = None, *, read_only: bool = False, subject_to: Any = None) -> Self:
        """Go on with a search from its journal, exactly where it stopped; further evaluations are appended to it.

        Parameters
        ----------
        path : path
            A journal, or what `save` wrote.
        space : space, optional
            Needed where options of a `Choice` are neither numbers nor strings; checked against the journal otherwise.
        read_only : bool
            Look at it only: nothing is appended, and another process may be writing.
        subject_to : callable, or list of them, optional
            The constraints known in advance that it was begun with, which no file can keep.

        Notes
        -----
        The search is repeated from its records, without evaluating anything: about 20 microseconds a record.
        """
        journal = Journal.open(Path(path), read_only=read_only)
        try:
            search = cls._from_meta(journal, space, subject_to=subject_to)
            batches, records = journal.contents()
            with damaged(journal.path):
                search._replay(batches, records, f"journal {journal.path}")
        except BaseException:
            journal.close()
            raise
        if read_only:
            journal.close()
        else:
            search._journal = journal
        return search

    @classmethod
    def salvage(cls, path: str | Path, new: str | Path, space: Any = None, *, subject_to: Any = None) -> Self:
        """Begin a new search, with a journal of its own, from whatever is sound in a damaged one.

        Parameters
        ----------
        path, new : path
            The damaged journal, which is only read, and the new one, which must not exist yet.
        space : space, optional
            Needed where not even its description is sound.
        subject_to : callable, or list of them, optional
            As in `load`.

        Notes
        -----
        Every evaluation that matches its checksum is told to the new search as a point from elsewhere: none is lost or
        made again, but the new search does not go on bit for bit.
        """
        journal = Journal.open(Path(path), read_only=True)
        try:
            if space is None:
                search = cls._from_meta(journal, None, new, subject_to=subject_to)
            else:
                search = cls(space, journal=new, subject_to=subject_to)
            records = [record for record in journal.sound() if record.row.size == search._layout.columns]
            for record in records:
                search._tell_rows(record.row[None], [record.value], [record.error], Courses.of([record.course]))
        finally:
            journal.close()
        return search

    @classmethod
    def _from_meta(
        cls, journal: Journal, space: Any, path: str | Path | None = None, *, subject_to: Any = None
    ) -> Self:
        """A search with the settings of a journal, and nothing told."""
        meta = journal.meta()
        with damaged(journal.path):
            described, settings = json.loads(meta["space"]), json.loads(meta["settings"])
        space = space_from_json(described) if space is None else as_space(space)
        if isinstance(space, Space):  # rows have the order of the parts with which the journal was begun
            names = described.get("parts", {})
            if set(space.parts) == set(names):
                space = Space({name: space.parts[name] for name in names}, when=space.when)
        if _as_text(space.describe()) != _as_text(described):
            raise ValueError(f"space differs from the one in {journal.path}: {json.dumps(described)}.")
        points = starting_points(space, settings.pop("x0"))
        rules = settings.pop("subject_to", 0)
        if rules and subject_to is None:
            raise ValueError(
                f"subject_to must be given: the search in {journal.path} was begun with {rules} constraints known in "
                "advance, which are functions and no file keeps them."
            )
        return cls(space, x0=points, journal=path, subject_to=subject_to, **settings)

    def _replay(self, batches: list[tuple[int, int]], records: list[Record], name: str) -> None:
        replay = Replay(self, name)
        replay.advance(batches, records)
        # What was handed out and never told is handed out again, in the order in which it was drawn.
        told = {record.candidate for record in records}
        self._queue.extend(Stretch(b, i, i + 1) for number, (b, i) in enumerate(replay.places) if number not in told)


def _as_text(described: Any) -> str:
    """A description to compare: NaN, which an option may be, differs from itself."""
    return json.dumps(described, sort_keys=True)


def starting_points(space: Space | Dimension, kept: list[Any] | None) -> list[Any] | None:
    """The points to begin with that a journal keeps."""
    if kept is None:
        return None
    rows = kept if isinstance(kept[0], list) else [kept]  # format 2 had one point at most
    return [SpaceLayout(space).point(np.array(row)) for row in rows]


class Replay:
    """A search that is told again what it was told once, as far as that is known.

    Parameters
    ----------
    search : Search
        A search with the settings of a journal, and nothing told.
    name : str
        What a sentence calls the journal.
    """

    def __init__(self, search: Kept, name: str = "the journal") -> None:
        self.search, self._name = search, name
        self.places: list[tuple[Batch, int]] = []  # of every candidate
        self._batches = 0

    def advance(self, batches: list[tuple[int, int]], records: list[Record]) -> None:
        """Go on to the end of what is known now: all batches and records from the first on."""
        for record in [*records[self.search.evaluations :], None]:
            while self._batches < len(batches) and batches[self._batches][1] <= self.search.evaluations:
                self._draw(batches[self._batches][0])
            if record is not None:
                self._tell(record)

    def _draw(self, size: int) -> None:
        self._batches += 1
        self.search._draw(max(1, size - len(self.search._doubtful())))
        batch, start, stop = self.search._queue.pop()
        if stop - start != size:
            raise OtherJournal(
                f"{self._name} was written by another version of varopt, or on a machine that rounds otherwise: batch "
                f"{self._batches} had {size} points, and has {stop - start} when it is repeated. Take its evaluations "
                "to a new journal with Search.salvage(path, new)."
            )
        self.places.extend((batch, position) for position in range(start, stop))

    def _tell(self, record: Record) -> None:
        search = self.search
        if record.row.size != search._layout.columns:
            raise ValueError(f"evaluation {record.number} has {record.row.size} numbers")
        if record.candidate < 0:
            search._use(record, None, -1)
            return
        batch, position = self.places[record.candidate]
        if batch.rows[position].tobytes() != record.row.tobytes():  # another machine rounds differently
            batch.rows[position] = record.row
            if position < batch.fresh:
                batch.latent[position] = search._coding.latent(record.row[None])[0]
        search._use(record, batch, position)
