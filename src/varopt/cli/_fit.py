"""``varopt fit`` and ``varopt predict``: a data file in, a certified model and its predictions out."""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import sys
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from varopt._display import bracket_words, duration
from varopt.cli._models import MODELS, FittedModel, build
from varopt.cli._output import check_writable
from varopt.cli._stored import StoredTable, stored_table
from varopt.cli._tables import FORMATS, MISSING, DataTable, Source, read_table

__all__ = ["FIT", "PREDICT", "add_fit", "add_predict"]

_MOST_LABELS = 100  # of a classifier: a column with more is a number or a name
_SHOWN = 20  # coefficients that are printed; the file of --coefficients has them all

FIT = (
    """\
Fit a model to a data file and say how far from optimal it can be. DATA is a CSV file whose
first line names the columns (comma, semicolon or tab), a Parquet file, or a LIBSVM file, also
packed (.gz, .bz2, .xz); - reads standard input. A folder of Parquet files, or a pattern in
quotes such as 'data/*.parquet', is read in a few passes and need not fit in memory.
Parameters are those of the estimators in varopt.learn, which are scikit-learn's.

models:
"""
    + "\n".join(f"  {name:<13} {kind.summary}" for name, kind in MODELS.items())
    + """

The objective is printed with its bracket: the true optimum lies between the two numbers."""
)
PREDICT = """\
Apply a model that `varopt fit --save` wrote to the rows of a data file. Columns are found by
their names, in whatever order; the predictions are written as CSV, one line a row. Where the
file holds the target too, the error of the predictions is reported on standard error."""


def add_fit(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``varopt fit``."""
    _add_data(parser)
    named = parser.add_argument("--model", required=True, metavar="NAME", help="one of the models above")
    named.completer = lambda **_: list(MODELS)  # type: ignore[attr-defined]  # for argcomplete
    parser.add_argument("--target", metavar="COLUMN", help="the column to explain (LIBSVM: its labels)")
    parser.add_argument("--features", type=_names, metavar="A,B,...", help="the columns to use (default: all others)")
    parser.add_argument("--drop", type=_names, default=[], metavar="A,B,...", help="columns to leave out")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="settings",
        help="a parameter of the model, such as alpha=0.1 or fit_intercept=false; may be repeated",
    )  # fmt: skip
    parser.add_argument("--tol", type=float, metavar="X", help="relative gap to reach (default: 1e-9)")
    parser.add_argument("--time-limit", type=float, metavar="SECONDS", help="stop then, with the bracket so far")
    parser.add_argument(
        "--memory", metavar="SIZE", help="read Parquet files in passes, within so much memory, such as 2GB"
    )
    parser.add_argument("--cv", type=int, metavar="FOLDS", help="estimate the error on new rows by cross-validation")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the model, as JSON, for varopt predict")
    parser.add_argument("--coefficients", type=Path, metavar="FILE", help="write every coefficient, as CSV")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw coefficients and fit (.svg, .png or .pdf)")
    parser.set_defaults(run=fit)


def add_predict(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``varopt predict``."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="a file that varopt fit --save wrote")
    _add_data(parser)
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="where the predictions go (default: standard output)"
    )
    parser.set_defaults(run=predict)


def _add_data(parser: argparse.ArgumentParser) -> None:
    """Declare the data file and how to read it."""
    parser.add_argument(
        "data", type=Path, metavar="DATA", help="a CSV, Parquet or LIBSVM file, or - for standard input"
    )
    parser.add_argument("--format", choices=list(FORMATS), help="of DATA (default: by the ending of its name)")
    parser.add_argument("--no-header", action="store_true", help="the first line is data; columns are 1, 2, ...")
    parser.add_argument("--encoding", metavar="NAME", help="of DATA, such as cp1252 (default: UTF-8, or by its mark)")
    parser.add_argument(
        "--decimal",
        choices=[".", ","],
        default=".",
        metavar="MARK",
        help="before decimals: a point (default) or a comma",
    )
    parser.add_argument("--missing", choices=MISSING, help="rows that lack a value: drop them, or fill in the mean")


def _source(options: argparse.Namespace) -> Source:
    return Source(
        options.data, options.format, options.encoding, not options.no_header, options.decimal, options.missing
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def fit(options: argparse.Namespace) -> int:
    """Run ``varopt fit``."""
    estimator = build(options.model, options.settings, {"tol": options.tol, "time_limit": options.time_limit})
    _check_plot(options.plot)
    for path in (options.save, options.coefficients, options.plot):
        check_writable(path)
    kind = MODELS[options.model]
    source: Any = stored_table(options)
    folds = None
    if source is not None:
        table, target = source, options.target
    else:
        source = _source(options)
        table, target = _training(options, source, kind.classifier)
        if kind.classifier:
            _check_classes(source, target, np.asarray(table.y))
        folds = _check_folds(options.cv, table)
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if isinstance(source, StoredTable):
            source.fit(estimator, options.memory)
        else:
            estimator.fit(table.X, table.y)
    seconds = time.perf_counter() - started
    for warning in caught:
        print(f"varopt fit: warning: {warning.message}", file=sys.stderr)
    model = FittedModel.of(options.model, estimator, target, table.features, table.X.shape[0])
    validated = None if folds is None else _cross_validated(estimator, table, folds)
    summary = _as_json if options.json else _summary
    print(summary(model, source, table, seconds, validated))
    if isinstance(source, StoredTable) and not options.json:
        print(f"\npasses       {estimator.passes_} over the data")
    if options.save is not None:
        model.save(options.save)
    if options.coefficients is not None:
        _write_coefficients(model, options.coefficients)
    if options.plot is not None:
        _plot(model, table, options.plot)
    written = [str(path) for path in (options.save, options.coefficients, options.plot) if path is not None]
    if written:
        print(f"\nwritten      {', '.join(written)}", file=sys.stderr if options.json else sys.stdout)
    return 0


def _training(options: argparse.Namespace, source: Source, labels: bool) -> tuple[DataTable, str]:
    if source.kind == "libsvm" and (options.target or options.features or options.drop):
        raise ValueError("a LIBSVM file has no named columns: leave --target, --features and --drop out.")
    if source.kind != "libsvm" and options.target is None:
        hint = " Without a header columns are 1, 2, ...: --target 3, say." if options.no_header else ""
        raise ValueError(f"--target has to name the column to explain.{hint}")
    if source.kind != "libsvm" and "" in source.columns and not options.features:
        print("varopt fit: the column without a name numbers the rows, it seems, and is left out.", file=sys.stderr)
    table = read_table(source, target=options.target, features=options.features, labels=labels, drop=options.drop)
    return table, options.target or "label"


def _check_classes(source: Source, target: str, y: Any) -> None:
    classes = np.unique(y)
    if classes.size < 2:
        raise ValueError(f"{source.name}: the target {target!r} has one class only; a classifier needs two or more.")
    if classes.size > _MOST_LABELS:
        raise ValueError(
            f"{source.name}: the target {target!r} has {classes.size} values, too many for classes. Is it a number to "
            "predict? Then take another model, such as lad or svr."
        )


def _check_folds(folds: int | None, table: DataTable) -> int | None:
    if folds is not None and not 2 <= folds <= table.X.shape[0]:
        raise ValueError(f"--cv takes a number of folds from 2 to the number of rows, {table.X.shape[0]}; got {folds}.")
    return folds


def _cross_validated(estimator: Any, table: DataTable, folds: int) -> dict[str, Any]:
    """The error on rows that a fit did not see, by fold."""
    from sklearn.base import clone
    from sklearn.metrics import make_scorer, mean_absolute_error, zero_one_loss
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score

    measure, options = "mean absolute error", {}
    score: Any = mean_absolute_error
    splits: Any = KFold(folds, shuffle=True, random_state=0)
    if hasattr(estimator, "classes_"):
        measure, score = "share of rows classified wrongly", zero_one_loss
        splits = StratifiedKFold(folds, shuffle=True, random_state=0)
    elif hasattr(estimator, "quantile"):
        measure, score, options = "mean pinball loss", _pinball, {"quantile": estimator.quantile}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit to all rows has told
        errors = cross_val_score(clone(estimator), table.X, table.y, cv=splits, scoring=make_scorer(score, **options))
    return {"measure": measure, "folds": folds, "errors": errors.tolist()}


def predict(options: argparse.Namespace) -> int:
    """Run ``varopt predict``."""
    model = FittedModel.load(options.model)
    check_writable(options.output)
    table = _with_target(_source(options), model)
    predicted = model.predict(table.X)
    file = sys.stdout if options.output is None else options.output.open("w", newline="", encoding="utf-8")
    try:
        writer = csv.writer(file, lineterminator="\n")
        header = ["prediction"] if predicted.ndim == 1 else model.outputs
        writer.writerow(header)
        values = iter(predicted.reshape(-1, len(header)).tolist())
        absent = [""] * len(header)
        writer.writerows(next(values) if kept else absent for kept in table.kept)  # a line for each row of the data
    finally:
        if options.output is not None:
            file.close()
    if table.dropped:
        print(f"{table.dropped} rows lack a value; their lines are empty.", file=sys.stderr)
    if table.y is not None:
        print(_error(model, table.y, predicted), file=sys.stderr)
    return 0


def _with_target(source: Source, model: FittedModel) -> DataTable:
    """The features, and the target where the file has it."""
    if source.kind == "libsvm":
        return read_table(source, target=None, features=None, labels=False, width=len(model.features))
    present = source.columns
    missing = [name for name in model.features if name not in present]
    if missing:
        raise ValueError(f"{source.name}: the model needs the columns {', '.join(missing)}, which are not there.")
    target = model.target if model.target in present else None
    return read_table(source, target=target, features=model.features, labels=model.classes is not None)


def _error(model: FittedModel, y: Any, predicted: Any) -> str:
    if model.classes is not None:
        wrong = float(np.mean(np.asarray(y).astype(str) != predicted.astype(str)))
        return f"{wrong:.2%} of {len(predicted)} rows are classified wrongly."
    if "quantile" in model.parameters:
        return f"mean pinball loss {_pinball(y, predicted, model.parameters['quantile']):.6g} over {len(y)} rows."
    return f"mean absolute error {np.mean(np.abs(y - predicted)):.6g} over {len(predicted)} rows."


def _pinball(y: Any, predicted: Any, quantile: Any) -> float:
    """The mean pinball loss, also over several quantiles."""
    residual = np.asarray(y)[:, None] - np.reshape(predicted, (len(y), -1))
    return float(np.mean(np.maximum(np.multiply(quantile, residual), np.subtract(quantile, 1.0) * residual)))


def _summary(
    model: FittedModel, source: Source, table: DataTable, seconds: float, validated: dict[str, Any] | None
) -> str:
    parameters = ", ".join(f"{name}={value}" for name, value in model.parameters.items())
    dropped = f" ({table.dropped} more {'lacks' if table.dropped == 1 else 'lack'} a value)" if table.dropped else ""
    lines = [
        f"model        {model.model} ({MODELS[model.model].estimator}{', ' + parameters if parameters else ''})",
        f"data         {source.name}: {model.rows} rows{dropped}, {len(model.features)} features, "
        f"target {model.target}",
    ]
    for k, (objective, lower) in enumerate(zip(model.objective, model.lower, strict=True)):
        which = "" if len(model.objective) == 1 else f" of {model.outputs[k]}"
        lines.append(f"objective    {objective:.12g}{which}; the optimum is {bracket_words(lower, objective)}")
    lines += [f"proof        {model.certificate.partition(';')[0]}", f"time         {duration(seconds)}"]
    if validated is not None:
        errors = np.array(validated["errors"])
        lines.append(
            f"on new rows  {validated['measure']} {errors.mean():.6g}, from {errors.min():.6g} to {errors.max():.6g} "
            f"in {validated['folds']} folds"
        )
    coef = np.array(model.coef)
    zeros = int(np.count_nonzero(coef == 0.0))
    lines += ["", f"coefficients ({coef.size}, {zeros} of them zero)"]
    width = max(len("intercept"), *(len(name) for name in model.features))
    if len(model.outputs) > 1:
        lines.append("  " + " " * width + "  " + "  ".join(f"{name:>12}" for name in model.outputs))
    rows = [("intercept", model.intercept), *zip(model.features, coef.T.tolist(), strict=True)]
    order = sorted(rows[1:], key=lambda row: -max(map(abs, row[1])))[:_SHOWN]
    for name, values in [rows[0], *(row for row in rows[1:] if row in order)]:
        lines.append(f"  {name:<{width}}  " + "  ".join(f"{value:>12.6g}" for value in values))
    if len(model.features) > _SHOWN:
        lines.append(f"  ... the {_SHOWN} largest of {len(model.features)}; --coefficients FILE writes them all")
    return "\n".join(lines)


def _as_json(
    model: FittedModel, source: Source, table: DataTable, seconds: float, validated: dict[str, Any] | None
) -> str:
    gaps = [objective - lower for objective, lower in zip(model.objective, model.lower, strict=True)]
    more = {
        "data": source.name,
        "gap": gaps,
        "seconds": seconds,
        "dropped": table.dropped,
        "cross_validation": validated,
    }
    return json.dumps({**asdict(model), **more}, indent=1)


def _write_coefficients(model: FittedModel, path: Path) -> None:
    outputs = ["coefficient"] if len(model.coef) == 1 else model.outputs
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["feature", *outputs])
        writer.writerow(["intercept", *model.intercept])
        writer.writerows(
            [name, *values] for name, values in zip(model.features, np.array(model.coef).T.tolist(), strict=True)
        )


def _check_plot(path: Path | None) -> None:
    """Refuse what cannot be drawn before the fit, not after it."""
    if path is None:
        return
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise ValueError(f"--plot takes a name that ends in .svg, .png or .pdf; got {path}.")
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("--plot needs Matplotlib: pip install 'varopt[plot]'.")


def _plot(model: FittedModel, table: DataTable, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    coef = np.array(model.coef)
    largest = np.argsort(-np.abs(coef).max(axis=0), kind="stable")[:_SHOWN][::-1]
    height = 0.8 / coef.shape[0]
    for k, row in enumerate(coef):
        left.barh(np.arange(largest.size) + k * height, row[largest], height, label=model.outputs[k])
    left.set_yticks(np.arange(largest.size), [model.features[i] for i in largest])
    left.axvline(0.0, color="0.5", lw=0.8)
    left.set(title="coefficients" if largest.size == coef.shape[1] else f"the {largest.size} largest coefficients")
    if coef.shape[0] > 1:
        left.legend()
    decision, y = model.decision(table.X), np.asarray(table.y)
    if model.classes is None:
        right.plot(y, decision, ".", ms=3, alpha=min(1.0, 2000 / y.size))
        ends = [float(min(y.min(), decision.min())), float(max(y.max(), decision.max()))]
        right.plot(ends, ends, color="0.5", lw=0.8)
        right.set(xlabel=model.target, ylabel="prediction", title="fit")
    else:
        for label in model.classes:
            shown = decision[y.astype(str) == str(label)]
            right.hist(shown[:, 0] if shown.shape[1] == 1 else shown.max(axis=1), bins=40, alpha=0.6, label=str(label))
        right.set(xlabel="decision value", ylabel="rows", title=f"decisions by {model.target}")
        right.legend()
    figure.savefig(path)
