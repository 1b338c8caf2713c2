"""The parser of the command line, and what becomes of an error: one sentence and a status, never a traceback."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import varopt
from varopt.cli._fit import FIT, PREDICT, add_fit, add_predict
from varopt.cli._report import REPORT, add_report
from varopt.cli._solve import SOLVE, add_solve

__all__ = ["main"]

_DESCRIPTION = """\
Optimise what gradients cannot reach, and know how far the answer can be from the optimum.

varopt fits models whose losses and penalties have kinks (quantile regression, support
vector machines, the lasso, the fused lasso, ...) to a certified optimum: every fit ends with
two numbers between which the true optimum lies. It solves files of bits (cuts, QUBOs,
MAX-SAT) with a bound on the other side, makes a page of the journal of a search, and runs
the experiments of the paper that it is built on."""

_EPILOG = """\
examples:
  varopt fit prices.csv --model quantile --target price --set quantile=0.9 --save p90.json
  varopt predict p90.json tomorrow.csv --output forecast.csv
  varopt solve G22.txt.gz --time-limit 20
  varopt report run.db --watch                        follow a search in a browser
  varopt reproduce                                    the paper, quickly: report in reproduction/
  varopt reproduce --full --jobs 8                    the paper's numbers of repetitions
  varopt bench --suite composite --quick

files:
  reproduction/results.jsonl   every finished repetition; a run that was interrupted goes on from it
  reproduction/report.html     the report, one page that needs no network

exit status:
  0  done                           2    the command, the data or a parameter is wrong
  1  done, but a check failed       130  interrupted
varopt solve has those of SAT solvers: 30 proved, 10 found, 20 unsatisfiable.

Each command has its own manual: varopt COMMAND --help."""

_REPRODUCE = """\
Run the experiments of Staines and Barber's "Variational Optimization" and write a report that
sets every claim of the paper beside what was measured.

Without --full a few repetitions of everything run, in about three minutes on two cores. With it
the paper's own numbers do (500 and 500 for Table 1, 1000 for the fused lasso, 50 a size for
Figure 4), which takes hours. Interrupt it at any time: finished repetitions are kept, and the
same command goes on from there. Times are processor seconds of one thread."""

_BENCH = """\
Run the benchmarks: times and memory as ratios to a rival or to a bare matrix product, in one
run. They live beside the source, not in the installed package: run this in a checkout."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status."""
    parser = _parser()
    _complete(parser)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(_unknown(options, unknown))
    if options.run is None:
        parser.print_help()
        return 2
    try:
        return int(options.run(options))
    except BrokenPipeError:  # whoever read has read enough; keep the interpreter from writing there again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:
        print(f"varopt {options.command}: {_sentence(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"varopt {options.command}: interrupted.", file=sys.stderr)
        return 130


def _unknown(options: argparse.Namespace, unknown: Sequence[str]) -> str:
    """What to say to arguments that no command takes; parameters of a model are given another way."""
    name, _, value = unknown[0].removeprefix("--").partition("=")
    given = f"unrecognized arguments: {' '.join(unknown)}"
    if options.command != "fit" or not unknown[0].startswith("--"):
        return given
    value = value or (unknown[1] if len(unknown) > 1 else "VALUE")
    return f"{given}; a parameter of the model is given as --set {name.replace('-', '_')}={value}"


def _complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks for completions, where argcomplete is installed; else go on."""
    if "_ARGCOMPLETE" in os.environ and importlib.util.find_spec("argcomplete") is not None:
        importlib.import_module("argcomplete").autocomplete(parser)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    return str(error)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence, as all others are, and the command that says more."""

    def error(self, message: str) -> NoReturn:
        """Leave with status 2."""
        self.exit(2, f"{self.prog}: {message}. See {self.prog} --help.\n")


class _Manual(argparse.RawDescriptionHelpFormatter):
    """Help that keeps its paragraphs and leaves room for option names."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=96)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser("varopt", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=_Manual)
    parser.add_argument("-V", "--version", action="version", version=f"varopt {varopt.__version__}")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    text = "fit a model to a CSV, Parquet or LIBSVM file"
    add_fit(commands.add_parser("fit", help=text, description=FIT, formatter_class=_Manual))
    text = "apply a fitted model to a file"
    add_predict(commands.add_parser("predict", help=text, description=PREDICT, formatter_class=_Manual))
    text = "solve a file of bits: cuts, QUBOs, MAX-SAT"
    add_solve(commands.add_parser("solve", help=text, description=SOLVE, formatter_class=_Manual))
    text = "make a page of the journal of a search"
    add_report(commands.add_parser("report", help=text, description=REPORT, formatter_class=_Manual))
    _add_reproduce(commands)
    _add_bench(commands)
    return parser


def _add_reproduce(commands: argparse._SubParsersAction[_Parser]) -> None:
    text = "run the paper's experiments and write a report"
    parser = commands.add_parser("reproduce", help=text, description=_REPRODUCE, formatter_class=_Manual)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="a few repetitions of everything (the default)")
    length.add_argument("--full", action="store_true", help="the paper's numbers of repetitions")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME",
        help="one experiment, by name: table1, fused, figure4, figure1, figure2, figure3, examples, corrections; "
        "may be repeated",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, metavar="N", help="seed of every repetition (default: 2012)")
    parser.add_argument("--jobs", type=int, metavar="N", help="worker processes (default: one per core)")
    parser.add_argument(
        "--output", type=Path, default=Path("reproduction"), metavar="FOLDER",
        help="where the report and the results go (default: reproduction)",
    )  # fmt: skip
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="M",
        help="begin no repetition after so many minutes, and report on those there are",
    )
    parser.add_argument("--fresh", action="store_true", help="forget the repetitions of earlier runs in that folder")
    parser.set_defaults(run=_reproduce)


def _reproduce(options: argparse.Namespace) -> int:
    from varopt.experiments.reproduce import SEED, reproduce  # needs an extra, and a second to load

    return reproduce(
        options.output, full=options.full, only=options.only, seed=SEED if options.seed is None else options.seed,
        jobs=options.jobs, fresh=options.fresh, minutes=options.minutes,
    )  # fmt: skip


def _add_bench(commands: argparse._SubParsersAction[_Parser]) -> None:
    text = "run the benchmarks of a checkout"
    parser = commands.add_parser("bench", help=text, description=_BENCH, formatter_class=_Manual)
    parser.add_argument("--suite", metavar="NAME", help="one suite (default: all of them)")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, proves no target")
    parser.add_argument("--output", metavar="FOLDER", help="where the JSON records go (default: benchmarks/results)")
    parser.set_defaults(run=_bench)


def _bench(options: argparse.Namespace) -> int:
    if not Path("benchmarks", "__main__.py").exists():
        raise ValueError("there is no folder benchmarks here; run this at the top of a checkout of varopt.")
    sys.path.insert(0, str(Path.cwd()))  # the benchmarks are a package of the checkout
    module = importlib.import_module("benchmarks.__main__")
    arguments = [f"--{name}={value}" for name in ("suite", "output") if (value := getattr(options, name)) is not None]
    return int(module.main(arguments + ["--quick"] * options.quick))
