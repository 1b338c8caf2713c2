"""``varopt solve``: a file of bits, its answer and its bracket, with the exit statuses of SAT solvers."""

from __future__ import annotations

import argparse
import errno
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from varopt.cli._output import check_writable

__all__ = ["SOLVE", "add_solve"]

SOLVE = """\
Find the best values of the bits in a file, and bracket the optimum.

The format is seen from the content, whether it is compressed (gzip, bzip2, xz) or not:
  'p cnf', 'p wcnf', or clauses with weights or h   satisfy as much weight of clauses as possible
  'p edge', 'p col'                                 cut as many edges of a graph as possible
  'p qubo'                                          minimise x'Qx (--maximize: maximise)
  'min: ... ;', '... >= 2 ;' (OPB)                  minimise a polynomial under linear constraints
  'nodes edges', then 'i j weight'                  cut as much weight of a graph (G-set, rudy)

The answer is printed as SAT solvers do: 'c' comments, 'o' the value (of clauses, the weight that is
not satisfied), 's' the status, 'v' the values. For a graph, 'v' lists the side of every node.

exit status:
  30  the optimum, proved            10  a point, not proved to be the best
  20  proved: hard clauses, or constraints, cannot all be satisfied
   0  no point was found that satisfies all constraints
   2  the command or the file is wrong                     130  interrupted before a point"""

_STANDARD_INPUT = Path("-")
_VERDICTS = {"PROVED": (30, "OPTIMUM FOUND"), "INFEASIBLE": (20, "UNSATISFIABLE")}


def add_solve(parser: argparse.ArgumentParser) -> None:
    """The options of ``varopt solve``."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the problem, or - for standard input")
    parser.add_argument(
        "--format",
        choices=("cnf", "dimacs", "qubo", "gset", "edges", "opb"),
        help="of the file; seen from its content else",
    )
    parser.add_argument("--time-limit", type=float, metavar="SECONDS", help="how long to search (else: until settled)")
    parser.add_argument(
        "--target", type=float, metavar="VALUE", help="stop at a value, as in the line 'o', at least as good"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the random numbers (default: 0)")
    parser.add_argument("--maximize", action="store_true", help="maximise x'Qx instead of minimising it")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the result as JSON to a file, too")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
    parser.set_defaults(run=_solve)


def _solve(options: argparse.Namespace) -> int:
    from varopt import discrete  # half a second to load, which --help need not wait for

    if options.file != _STANDARD_INPUT and not options.file.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(options.file))
    check_writable(options.output)
    with _on_disk(options.file) as file:
        kind = options.format or _format(file, discrete.first_words(file))
        with _standard_output_kept():
            result, offset = _run(kind, file, options, discrete)
    record = {"file": file.name, "format": kind, **json.loads(result.to_json())}
    if options.output is not None:
        options.output.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(record))
    else:
        print("\n".join(_lines(kind, result, offset)))
    return _verdict(result)[0]


@contextmanager
def _on_disk(file: Path) -> Iterator[Path]:
    """The file itself; of standard input or a pipe, which give what is in them only once, a copy."""
    if file != _STANDARD_INPUT and not file.is_fifo():
        yield file
        return
    with TemporaryDirectory() as folder:
        copy = Path(folder, "standard input" if file == _STANDARD_INPUT else file.name)
        copy.write_bytes(sys.stdin.buffer.read() if file == _STANDARD_INPUT else file.read_bytes())
        yield copy


@contextmanager
def _standard_output_kept() -> Iterator[None]:
    """Standard output for the answer alone: HiGHS writes to its descriptor, past Python, which goes to the other."""
    try:
        kept = os.dup(1)
    except OSError:  # it is closed
        yield
        return
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _run(kind: str, file: Path, options: argparse.Namespace, discrete: Any) -> tuple[Any, float]:
    """The result, and for clauses the weight of all soft ones."""
    import numpy as np

    common: dict[str, Any] = {
        "time_limit": options.time_limit, "target": options.target, "seed": options.seed,
        "progress": not options.quiet and sys.stderr.isatty(),
    }  # fmt: skip
    if options.maximize and kind != "qubo":
        raise ValueError("--maximize is for files of the format qubo; cuts and clauses are maximised anyway.")
    if kind == "cnf":
        formula = discrete.read_cnf(file)
        weights = np.ones(len(formula.clauses)) if formula.weights is None else formula.weights
        soft = float(weights[np.isfinite(weights)].sum())
        if options.target is not None:
            common["target"] = soft - options.target
        return discrete.max_sat(*formula, **common), soft
    if kind == "qubo":
        return discrete.qubo(discrete.read_qubo(file), maximize=options.maximize, **common), 0.0
    if kind == "opb":
        if common.pop("target") is not None:
            raise ValueError("--target is not for files of the format opb, whose bits have to satisfy constraints.")
        return discrete.pseudo_boolean(*discrete.read_opb(file), **common), 0.0
    read = {"dimacs": discrete.read_dimacs, "gset": discrete.read_gset, "edges": discrete.read_edges}[kind]
    return discrete.max_cut(read(file), **common), 0.0


def _format(path: Path, lines: Iterable[Sequence[str]]) -> str:
    """What a file is, by its first lines."""
    for words in lines:
        if words[0] == "p" and len(words) > 1:
            names = {"cnf": "cnf", "wcnf": "cnf", "qubo": "qubo", "edge": "dimacs", "col": "dimacs"}
            if words[1] in names:
                return names[words[1]]
            raise ValueError(f"{path.name}: 'p {words[1]}' is no format that is known; name one with --format.")
        if words[0].startswith(("min:", "max:")) or any("=" in word for word in words):
            return "opb"
        if words[0] == "h" or (words[-1] == "0" and len(words) != 2):
            return "cnf"
        if len(words) == 2:
            return "gset"
        break
    else:
        raise ValueError(f"{path.name}: there is nothing in it.")
    raise ValueError(f"{path.name}: the format cannot be seen from its first lines; name it with --format.")


def _verdict(result: Any) -> tuple[int, str]:
    """The exit status, and the words of the line 's'; unknown where no bits that satisfy all constraints were found."""
    found = math.isfinite(result.upper) and math.isfinite(result.fun)
    return _VERDICTS.get(result.status.name, (10, "SATISFIABLE") if found else (0, "UNKNOWN"))


def _lines(kind: str, result: Any, offset: float) -> list[str]:
    found = offset - result.fun if kind == "cnf" else result.fun
    lower, upper = (offset - result.upper, offset - result.lower) if kind == "cnf" else (result.lower, result.upper)
    status = _verdict(result)[1]
    bracket = "" if status == "UNSATISFIABLE" else f"the optimum lies between {lower:.12g} and {upper:.12g}: "
    bare = status in ("UNSATISFIABLE", "UNKNOWN")  # there is no point to tell of
    bits = result.x.astype(int).tolist()
    values = (
        " ".join(str(k if bit else -k) for k, bit in enumerate(bits, 1))
        if kind == "cnf"
        else " ".join(f"x{k}" if bit else f"-x{k}" for k, bit in enumerate(bits, 1))
        if kind == "opb"
        else "".join(map(str, bits))
    )
    return [
        f"c {result.message}",
        f"c {bracket}{result.certificate}",
        f"c {result.method}, {result.time:.2f} s",
        *([] if bare else [f"o {found:.12g}"]),
        f"s {status}",
        *([] if bare else [f"v {values}"]),
    ]
