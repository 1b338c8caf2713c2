"""Data files: CSV, Parquet and LIBSVM in, a matrix with named columns out, or one sentence that says what is wrong."""

from __future__ import annotations

import bz2
import csv
import gzip
import itertools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FORMATS", "Table", "columns_of", "format_of", "read_libsvm", "read_table"]

Vector = NDArray[np.float64]

FORMATS = {
    "csv": (".csv", ".tsv", ".txt", ".csv.gz", ".csv.bz2", ".tsv.gz"),
    "parquet": (".parquet", ".pq"),
    "libsvm": (".libsvm", ".svm", ".svmlight", ".libsvm.gz", ".libsvm.bz2"),
}


@dataclass(frozen=True)
class Table:
    """Features and a target; X is dense, or sparse from a LIBSVM file."""

    X: Any
    y: NDArray[Any] | None
    features: list[str]


def format_of(path: Path, given: str | None) -> str:
    """The format, by what was given or by the ending of the name."""
    if given is not None:
        return given
    for name, endings in FORMATS.items():
        if path.name.lower().endswith(endings):
            return name
    raise ValueError(f"{path}: the name does not tell the format; say --format csv, parquet or libsvm.")


def read_table(
    path: Path, kind: str, *, target: str | None, features: Sequence[str] | None, labels: bool, drop: Sequence[str] = ()
) -> Table:
    """Read columns by name: those of `features`, or all but the target and `drop`; labels stay text."""
    names = columns_of(path, kind)
    for name in [*(features or []), *drop, *([target] if target else [])]:
        if name not in names:
            raise ValueError(f"{path}: there is no column {name!r}; the columns are {_listed(names)}.")
    chosen = list(features) if features else [name for name in names if name != target and name not in drop]
    if not chosen:
        raise ValueError(f"{path}: no feature is left; the columns are {_listed(names)}.")
    X = _numbers(path, kind, names, chosen)
    if X.shape[0] == 0:
        raise ValueError(f"{path}: there is no row below the header.")
    if target is None:
        return Table(X, None, chosen)
    y = _texts(path, kind, names, target) if labels else _numbers(path, kind, names, [target])[:, 0]
    return Table(X, y, chosen)


def read_libsvm(path: Path, features: int | None = None) -> Table:
    """Read a LIBSVM file: its labels are the target, its features are named by their numbers."""
    from sklearn.datasets import load_svmlight_file

    try:
        X, y = load_svmlight_file(str(path), n_features=features)
    except ValueError as error:
        raise ValueError(f"{path}: not read as LIBSVM: {error}") from None
    if X.shape[0] == 0:
        raise ValueError(f"{path}: there is no row in it.")
    return Table(X, y, [str(i + 1) for i in range(X.shape[1])])


def columns_of(path: Path, kind: str) -> list[str]:
    """The names of the columns."""
    if kind == "parquet":
        return [str(name) for name in _parquet().read_schema(path).names]
    with _open(path) as file:
        names = next(csv.reader(file, delimiter=_delimiter(path)), [])
    names = [name.strip() for name in names]
    if not names:
        raise ValueError(f"{path}: the file is empty.")
    if all(map(_is_number, names)):
        raise ValueError(f"{path}: the first line has to name the columns; it holds numbers: {_listed(names)}.")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{path}: two columns are called {twice[0]!r}.")
    return names


def _numbers(path: Path, kind: str, names: list[str], chosen: list[str]) -> Vector:
    if kind == "parquet":
        return _parquet_numbers(path, chosen)
    places = [names.index(name) for name in chosen]
    try:
        with _open(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no row is refused by whoever asked
            # C reads the file at once; where it stumbles, Python looks again for the cell to name.
            values = np.loadtxt(
                file, delimiter=_delimiter(path), skiprows=1, usecols=places, ndmin=2, quotechar='"', comments=None
            )
    except ValueError as error:
        for line, row in _rows(path):
            for name, place in zip(chosen, places, strict=True):
                _check_cell(path, line, name, row[place] if place < len(row) else "")
        raise ValueError(f"{path}: not read as numbers: {error}") from None
    if values.size and not np.all(np.isfinite(values)):
        row_index, column = np.argwhere(~np.isfinite(values))[0]
        raise ValueError(
            f"{path}: column {chosen[column]!r} is not finite in row {row_index + 1}: {values[row_index, column]}."
        )
    return np.asarray(values, dtype=np.float64).reshape(-1, len(chosen))


def _check_cell(path: Path, line: int, name: str, text: str) -> None:
    if not text.strip():
        raise ValueError(f"{path}, line {line}: column {name!r} has no value; fill it or leave it out with --drop.")
    if not _is_number(text):
        raise ValueError(
            f"{path}, line {line}: column {name!r} has to be a number; got {text.strip()!r}. "
            "Encode it, or leave it out with --drop."
        )


def _texts(path: Path, kind: str, names: list[str], name: str) -> NDArray[Any]:
    if kind == "parquet":
        cells = [str(value) for value in _parquet().read_table(path, columns=[name]).column(name).to_pylist()]
    else:
        place = names.index(name)
        cells = [row[place].strip() if place < len(row) else "" for _, row in _rows(path)]
    if "" in cells:
        raise ValueError(f"{path}: column {name!r} has no value in row {cells.index('') + 1}.")
    return np.array(cells)


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ValueError("reading Parquet needs pyarrow: pip install 'varopt[parquet]'.") from None
    return pyarrow.parquet


def _parquet_numbers(path: Path, chosen: list[str]) -> Vector:
    table = _parquet().read_table(path, columns=chosen)
    columns = []
    for name in chosen:
        values = table.column(name)
        try:
            column = np.asarray(values.to_numpy(), dtype=np.float64)
        except (ValueError, TypeError):
            raise ValueError(
                f"{path}: column {name!r} has to hold numbers; it holds {values.type}. Encode it, or leave it out with "
                "--drop."
            ) from None
        if not np.all(np.isfinite(column)):
            where = int(np.flatnonzero(~np.isfinite(column))[0]) + 1
            raise ValueError(f"{path}: column {name!r} has no finite value in row {where}.")
        columns.append(column)
    return np.column_stack(columns)


def _open(path: Path) -> IO[str]:
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, open)
    file: IO[str] = opener(path, "rt", encoding="utf-8-sig", newline="")
    return file


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows below the header that are not blank, with the number of their line."""
    with _open(path) as file:
        reader = csv.reader(file, delimiter=_delimiter(path))
        for row in itertools.islice(reader, 1, None):
            if row:
                yield reader.line_num, row


def _delimiter(path: Path) -> str:
    """What the header is separated by most: a comma, a semicolon or a tab."""
    with _open(path) as file:
        header = file.readline()
    return max(",;\t", key=header.count)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _listed(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
