"""Data files: CSV, Parquet and LIBSVM in, a matrix with named columns out, or one sentence that says what is wrong."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import importlib.util
import io
import lzma
import re
import stat
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FORMATS", "MISSING", "DataTable", "Source", "read_table"]

Vector = NDArray[np.float64]

FORMATS = {
    "csv": (".csv", ".tsv", ".txt"),
    "parquet": (".parquet", ".pq"),
    "libsvm": (".libsvm", ".svm", ".svmlight"),
}
MISSING = ("drop", "mean")  # what to do with rows that lack a value

_PACKED: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ": lzma.decompress,
}
_MARKS = {  # longest first: the mark of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
_LARGE = 2_000_000  # bytes from which on it pays to load pyarrow, which reads three times as fast
_ABSENT = ("", "na", "n/a", "nan", "null", "none", "?", "-")  # how people write that there is no value
_SPREADSHEETS = (".xlsx", ".xls", ".ods")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_LIBSVM = re.compile(rb"[^\s,;:]+(?: +\d+:[^\s:]+)+\s*(?:#.*)?$")


@dataclass(frozen=True)
class DataTable:
    """Features and a target; X is dense, or sparse from a LIBSVM file. Rows that were not `kept` lack a value."""

    X: Any
    y: NDArray[Any] | None
    features: list[str]
    kept: NDArray[np.bool_]

    @property
    def dropped(self) -> int:
        """How many rows were left out."""
        return int(np.count_nonzero(~self.kept))


@dataclass(frozen=True)
class Source:
    """A data file, or standard input (``-``), read once: a pipe gives what is in it only once.

    Parameters
    ----------
    path : Path
        The file; ``-`` is standard input.
    given_format : str, optional
        What the user says it is; by default its name tells, and of a pipe its content.
    encoding : str, optional
        Of text. By default a byte order mark tells, else it is UTF-8.
    header : bool
        Whether the first line names the columns; if not, they are named by number, from 1.
    decimal : str
        What stands before the decimals.
    missing : str, optional
        One of `MISSING`; by default a cell without a value is refused.
    """

    path: Path
    given_format: str | None = None
    encoding: str | None = None
    header: bool = True
    decimal: str = "."
    missing: str | None = None

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return "standard input" if self.path == Path("-") else str(self.path)

    @cached_property
    def content(self) -> bytes:
        """All of it, unpacked."""
        raw = sys.stdin.buffer.read() if self.path == Path("-") else self.path.read_bytes()
        for mark, unpack in _PACKED.items():
            if raw.startswith(mark):
                try:
                    return unpack(raw)
                except (OSError, EOFError, lzma.LZMAError) as error:
                    raise ValueError(f"{self.name}: it is packed, and cannot be unpacked: {error}.") from None
        return raw

    @cached_property
    def kind(self) -> str:
        """The format: as given, by the ending of the name, or, of a pipe, by the content."""
        if self.given_format is not None:
            return self.given_format
        name = re.sub(r"\.(gz|bz2|xz)$", "", self.path.name.lower())
        for kind, endings in FORMATS.items():
            if name.endswith(endings):
                return kind
        if name.endswith(_SPREADSHEETS):
            raise ValueError(f"{self.name}: a spreadsheet is not read; save it as CSV.")
        if self.path == Path("-") or stat.S_ISFIFO(self.path.stat().st_mode):
            first = self.content.lstrip().partition(b"\n")[0]
            return "parquet" if first.startswith(b"PAR1") else "libsvm" if _LIBSVM.match(first) else "csv"
        raise ValueError(f"{self.name}: the name does not tell the format; say --format csv, parquet or libsvm.")

    @cached_property
    def text(self) -> str:
        """The content as text."""
        encoding = self.encoding or next((e for mark, e in _MARKS.items() if self.content.startswith(mark)), None)
        if encoding is None and b"\0" in self.content[:1000]:
            encoding = "utf-16-le" if self.content[1:2] == b"\0" else "utf-16-be"  # without a mark
        try:
            return self.content.decode(encoding or "utf-8")
        except LookupError:
            raise ValueError(f"--encoding has to be one that Python knows, such as cp1252; got {encoding!r}.") from None
        except UnicodeDecodeError as error:
            line = self.content.count(b"\n", 0, error.start) + 1
            hint = "Name another with --encoding." if self.encoding else "If it is from Windows, say --encoding cp1252."
            raise ValueError(f"{self.name}, line {line}: this is not {encoding or 'UTF-8'}. {hint}") from None

    @cached_property
    def delimiter(self) -> str:
        """What the first line is separated by most, outside quotes: a comma, a semicolon or a tab."""
        first = re.sub(r'"[^"]*"', "", self.text.partition("\n")[0])
        unlike_decimals = self.decimal == "," and (";" in first or "\t" in first)
        return max(";\t" if unlike_decimals else ",;\t", key=first.count)

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns."""
        if self.kind == "parquet":
            return [str(name) for name in _parquet().read_schema(io.BytesIO(self.content)).names]
        names = [name.strip() for name in next(csv.reader(io.StringIO(self.text), delimiter=self.delimiter), [])]
        if not names:
            raise ValueError(f"{self.name}: the file is empty.")
        if not self.header:
            return [str(i + 1) for i in range(len(names))]
        if all(map(_is_number, names)):
            raise ValueError(
                f"{self.name}: the first line has to name the columns; it holds numbers: {_listed(names)}. "
                "Say --no-header if there are no names."
            )
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{self.name}: two columns are called {twice[0]!r}.")
        return names

    @property
    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """The rows that are not blank, with the number of their line."""
        reader = csv.reader(io.StringIO(self.text), delimiter=self.delimiter)
        if self.header:
            next(reader, None)
        for row in reader:
            if any(cell.strip() for cell in row[len(self.columns) :]):
                raise ValueError(self._too_long(reader.line_num, row))
            if row:
                yield reader.line_num, row

    def _too_long(self, line: int, row: list[str]) -> str:
        """What to say of a row with more cells than there are columns."""
        hint = "Put text that holds the separator in quotes."
        if self.delimiter == "," and len(row) > 1.5 * len(self.columns):
            hint = (
                "Decimal commas cannot be told from commas between cells: separate the cells by semicolons, or put "
                "them in quotes, and say --decimal ,"
            )
        return f"{self.name}, line {line}: there are {len(row)} cells, and {len(self.columns)} columns. {hint}"

    @property
    def _ragged(self) -> bool:
        """Whether some line has more separators than it takes; they may stand in quotes, or before nothing."""
        content = np.frombuffer(self.text.encode(), dtype=np.uint8)
        ends = np.append(np.flatnonzero(content == ord("\n")), content.size)
        before = np.searchsorted(np.flatnonzero(content == ord(self.delimiter)), ends)
        return bool(np.any(np.diff(before, prepend=0) >= len(self.columns)))

    def numbers(self, chosen: list[str]) -> Vector:
        """Columns of numbers; NaN where there is no value, if these are to be dropped or filled."""
        values = self._parquet_numbers(chosen) if self.kind == "parquet" else self._fast_numbers(chosen)
        if values is None or not np.all(np.isfinite(values)):
            values = self._checked(values, chosen) if self.kind == "parquet" else self._slow_numbers(chosen)
        return values

    def texts(self, name: str) -> NDArray[Any]:
        """A column as it is written; empty where there is no value."""
        if self.kind == "parquet":
            cells = _parquet().read_table(io.BytesIO(self.content), columns=[name]).column(name).to_pylist()
            return np.array(["" if cell is None else str(cell) for cell in cells])
        place = self.columns.index(name)
        cells = [row[place].strip() if place < len(row) else "" for _, row in self.rows]
        if "" in cells and self.missing is None:
            raise ValueError(f"{self.name}: column {name!r} has no value in row {cells.index('') + 1}.")
        return np.array(cells)

    def _fast_numbers(self, chosen: list[str]) -> Vector | None:
        """C reads all at once, pyarrow's where it is installed and there is much to read; None where it stumbles."""
        if self.decimal != "." or self._ragged:
            return None
        large = len(self.content) > _LARGE and importlib.util.find_spec("pyarrow") is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no row is refused by whoever asked
            try:
                values = self._by_arrow(chosen) if large else self._by_numpy(chosen)
            except ValueError:
                return None
        return np.asarray(values, dtype=np.float64).reshape(-1, len(chosen))

    def _by_numpy(self, chosen: list[str]) -> Any:
        places = [self.columns.index(name) for name in chosen]
        return np.loadtxt(
            io.StringIO(self.text), delimiter=self.delimiter, skiprows=int(self.header), usecols=places, ndmin=2,
            quotechar='"', comments=None,
        )  # fmt: skip

    def _by_arrow(self, chosen: list[str]) -> Any:
        import pyarrow as pa
        import pyarrow.csv as reader

        table = reader.read_csv(
            io.BytesIO(self.text.encode()),
            read_options=reader.ReadOptions(skip_rows=int(self.header), column_names=self.columns),
            parse_options=reader.ParseOptions(delimiter=self.delimiter),
            convert_options=reader.ConvertOptions(
                include_columns=chosen, column_types=dict.fromkeys(chosen, pa.float64())
            ),
        )
        return np.column_stack([table.column(name).to_numpy() for name in chosen])

    def _slow_numbers(self, chosen: list[str]) -> Vector:
        """Cell by cell, to name the one that is wrong, or to leave those without a value open."""
        places = {name: self.columns.index(name) for name in chosen}
        values = [
            [self._cell(line, name, row[place] if place < len(row) else "") for name, place in places.items()]
            for line, row in self.rows
        ]
        return np.array(values, dtype=np.float64).reshape(-1, len(chosen))

    def _cell(self, line: int, name: str, text: str) -> float:
        text = text.strip()
        where = f"{self.name}, line {line}: column {name!r}"
        if text.lower() in _ABSENT:
            if self.missing is not None:
                return np.nan
            what = f"has no value{f' ({text})' if text else ''}"
            raise ValueError(f"{where} {what}; fill it, say --missing drop, or fit without the column (--drop).")
        number = text.replace(".", "").replace(",", ".") if self.decimal == "," else text
        if _is_number(number) and np.isfinite(float(number)):
            return float(number)
        if self.decimal == "." and _THOUSANDS.fullmatch(text):
            raise ValueError(
                f"{where} has commas: {text!r}. If they part thousands, take them out; if one stands before decimals, "
                "say --decimal ,"
            )
        if self.decimal == "." and _DECIMAL_COMMA.fullmatch(text):
            raise ValueError(f"{where} has a decimal comma: {text!r}. Say --decimal , to read it.")
        if _is_number(number):
            raise ValueError(f"{where} is not finite: {text}.")
        raise ValueError(f"{where} has to be a number; got {text!r}. Encode it, or fit without it (--drop).")

    def _parquet_numbers(self, chosen: list[str]) -> Vector:
        table = _parquet().read_table(io.BytesIO(self.content), columns=chosen)
        columns = []
        for name in chosen:
            values = table.column(name)
            try:
                columns.append(np.asarray(values.to_numpy(), dtype=np.float64))
            except (ValueError, TypeError):
                raise ValueError(
                    f"{self.name}: column {name!r} has to hold numbers; it holds {values.type}. Encode it, or fit "
                    "without it (--drop)."
                ) from None
        return np.column_stack(columns)

    def _checked(self, values: Any, chosen: list[str]) -> Vector:
        """Numbers of a Parquet file, of which some are not finite: these are absent, or refused."""
        if self.missing is None or np.any(np.isinf(values)):
            row, column = np.argwhere(~np.isfinite(values) if self.missing is None else np.isinf(values))[0]
            raise ValueError(
                f"{self.name}: column {chosen[column]!r} has no finite value in row {row + 1}; say --missing drop to "
                "leave such rows out."
            )
        return np.asarray(values)


def read_table(
    source: Source, *, target: str | None, features: Sequence[str] | None, labels: bool, drop: Sequence[str] = (),
    width: int | None = None,
) -> DataTable:  # fmt: skip
    """Read columns by name: those of `features`, or all but the target and `drop`; labels stay text.

    A column without a name is none of them: it numbers the rows, as pandas and R write it. A LIBSVM file has its labels
    as the target; its features, of which there are `width`, are named by number.
    """
    if source.kind == "libsvm":
        return _libsvm(source, width)
    names = source.columns
    for name in [*(features or []), *drop, *([target] if target else [])]:
        if name not in names:
            raise ValueError(f"{source.name}: there is no column {name!r}; the columns are {_listed(names)}.")
    if features and target in features:
        raise ValueError(f"{source.name}: column {target!r} is the target; it cannot be a feature as well.")
    if features and (twice := [name for name in features if features.count(name) > 1]):
        raise ValueError(f"{source.name}: column {twice[0]!r} is named twice among the features.")
    chosen = list(features) if features else [name for name in names if name not in (target, "", *drop)]
    if not chosen:
        raise ValueError(f"{source.name}: no feature is left; the columns are {_listed(names)}.")
    X = source.numbers(chosen)
    if X.shape[0] == 0:
        raise ValueError(f"{source.name}: there is no row{' below the header' if source.header else ''}.")
    y = None if target is None else source.texts(target) if labels else source.numbers([target])[:, 0]
    return _completed(source, X, y, chosen)


def _completed(source: Source, X: Vector, y: NDArray[Any] | None, features: list[str]) -> DataTable:
    """Rows without a target left out, and those without a feature left out or filled with the column's mean."""
    keep = np.ones(X.shape[0], dtype=bool)
    if y is not None:
        keep &= y != "" if y.dtype.kind == "U" else ~np.isnan(y)
    if source.missing == "mean":
        counts = np.count_nonzero(~np.isnan(X), axis=0)
        if np.any(counts == 0):
            raise ValueError(f"{source.name}: column {features[int(np.argmin(counts))]!r} has no value at all.")
        X = np.where(np.isnan(X), np.nansum(X, axis=0) / counts, X)
    keep &= ~np.isnan(X).any(axis=1)
    if not keep.any():
        raise ValueError(f"{source.name}: every row lacks a value; say --missing mean, or leave columns out by --drop.")
    return DataTable(X[keep], None if y is None else y[keep], features, keep)


def _libsvm(source: Source, width: int | None) -> DataTable:
    from sklearn.datasets import load_svmlight_file

    if not source.content.strip():
        raise ValueError(f"{source.name}: there is no row in it.")
    try:
        X, y = load_svmlight_file(io.BytesIO(source.content), n_features=width)
    except ValueError as error:
        raise ValueError(f"{source.name}: not read as LIBSVM: {error}") from None
    return DataTable(X, y, [str(i + 1) for i in range(X.shape[1])], np.ones(X.shape[0], dtype=bool))


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ValueError("reading Parquet needs pyarrow: pip install 'varopt[parquet]'.") from None
    return pyarrow.parquet


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _listed(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
