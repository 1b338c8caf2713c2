"""What the page of a journal shows, as JSON: from its records, and the course of its distribution where it is known."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from varopt.search._dimensions import Boolean, Choice, Dimension, Permutation
from varopt.search._space import SpaceLayout
from varopt.search.goals import Archive
from varopt.search.journal import Record

__all__ = ["Known", "contents"]

Array = NDArray[np.float64]

MOST_CURVE_POINTS = 500  # points of a curve
DOTS = 1500  # evaluations that are drawn one by one
SPANS = 2500  # evaluations in the time line
WINDOWS = 40  # stretches of the search over which values of a part are summed up
LISTED = 100  # failures that are listed
FITTED = 3000  # evaluations that the forest is fitted to
FEWEST = 12  # evaluations below which nobody can say what mattered


@dataclass(frozen=True)
class Known:
    """A journal, read; `history` is that of its search, where this could be repeated, and `note` what is wrong."""

    name: str
    meta: dict[str, str]
    settings: dict[str, Any]
    layout: SpaceLayout
    records: list[Record]
    history: dict[str, Array] | None
    note: str = ""

    @property
    def signs(self) -> Array:
        """1 where smaller is better, -1 where larger is, of each objective."""
        count, maximize = self.settings.get("objectives", 1), self.settings["maximize"]
        return np.where(np.broadcast_to(np.asarray(maximize, dtype=bool), (count,)), -1.0, 1.0)


def contents(known: Known) -> dict[str, Any]:
    """All that the page shows."""
    records = known.records
    finished = [r for r in records if r.error is None and not r.stopped]
    best = _best(known, finished)
    return {
        "name": known.name,
        "note": known.note,
        "facts": _facts(known, best),
        "best": None if best is None else {"number": best.number + 1, "point": _point(known, best)},
        "course": _course(known),
        "parts": _parts(known, best),
        "mattered": _mattered(known, [r for r in records if r.error is None]),
        "failures": _failures(records),
        "workers": _workers(records),
        "front": _front(known, finished),
        "reports": _reports(records),
    }


def _violation(known: Known, record: Record) -> float:
    return sum(max(0.0, number) for number in record.others[known.signs.size - 1 :])


def _best(known: Known, finished: list[Record]) -> Record | None:
    """The best evaluation; of several objectives the first one's, on the front."""
    sign = known.signs[0]
    return min(finished, key=lambda r: (_violation(known, r), sign * r.value, r.number), default=None)


def _point(known: Known, record: Record) -> list[list[str]]:
    point = known.layout.point(record.row)
    return [[name, _text(value)] for name, value in (point if isinstance(point, dict) else {"x": point}).items()]


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return "[" + ", ".join(_text(entry) for entry in value.tolist()[:12]) + (", …]" if value.size > 12 else "]")
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _facts(known: Known, best: Record | None) -> list[list[str]]:
    records, settings = known.records, known.settings
    count = len(records)
    failed, stopped = sum(r.error is not None for r in records), sum(r.stopped for r in records)
    seconds = records[-1].time - records[0].time if count > 1 else 0.0
    facts = [["evaluations", f"{count:,}"]]
    if best is not None:
        name = "best value" if known.signs.size == 1 else "best first objective"
        facts.insert(0, [name, f"{best.value:.8g}"])
        if _violation(known, best) > 0.0:
            facts.insert(1, ["breaks constraints by", f"{_violation(known, best):.4g}"])
    facts += [["failed", f"{failed:,}"]] if failed else []
    facts += [["stopped early", f"{stopped:,}"]] if stopped else []
    facts += [["first to last", _duration(seconds)], ["method", settings["method"]], ["seed", str(settings["seed"])]]
    return [*facts, ["varopt", known.meta.get("varopt", "")]]


def _duration(seconds: float) -> str:
    minutes, hours = seconds / 60.0, seconds / 3600.0
    return f"{seconds:.1f} s" if seconds < 120 else f"{minutes:.1f} min" if minutes < 120 else f"{hours:.1f} h"


def _course(known: Known) -> dict[str, Any]:
    """Values, the best so far, and the bound with its interval, against evaluations."""
    sign, lowest = float(known.signs[0]), math.inf
    best: list[tuple[int, float]] = []
    key = (math.inf, math.inf)
    for record in known.records:
        if record.error is None and not record.stopped:
            key = min(key, (_violation(known, record), sign * record.value))
            lowest = key[1] if key[0] == 0.0 else math.inf  # what breaks a constraint is no value to fall from
        best.append((record.number + 1, sign * lowest))
    kept = _thin(len(best), MOST_CURVE_POINTS)
    some = _thin(len(known.records), DOTS)
    dots = [[r.number + 1, _number(r.value), int(r.stopped)] for r in (known.records[i] for i in some)]
    return {
        "best": [[best[i][0], _number(best[i][1])] for i in kept],
        "dots": [dot for dot in dots if dot[1] is not None],
        "bound": _bound(known.history),
        "log": _spans_decades([value for _, value in best], [r.value for r in known.records if r.error is None]),
    }


def _bound(history: dict[str, Array] | None) -> list[list[float | None]]:
    if history is None:
        return []
    reach = stdtrit(np.maximum(history["samples"] - 1.0, 1.0), 0.975) * history["standard_error"]
    mean = history["mean"]
    columns = (history["evaluations"], mean, mean - np.nan_to_num(reach), mean + np.nan_to_num(reach), history["sigma"])
    return [[_number(column[i]) for column in columns] for i in _thin(mean.size, MOST_CURVE_POINTS)]


def _parts(known: Known, best: Record | None) -> list[dict[str, Any]]:
    """How the values of every part narrow: quantiles of numbers, shares of options, in stretches of the search."""
    layout, records = known.layout, known.records
    if not records:
        return []
    rows = np.array([record.row for record in records])
    exists = layout.active(rows)
    shown = []
    for name, part in layout.parts.items():
        where = layout.slices[name]
        for column in range(where.start, where.stop)[:8]:
            label = (name or "x") + (f"[{column - where.start}]" if where.stop - where.start > 1 else "")
            here = exists[:, column]
            found = _part(label, part, column, rows[here, column], np.flatnonzero(here) + 1, layout)
            shown.append({**found, "best": None if best is None else _number(best.row[column])})
    return shown[:60]


def _part(
    label: str, part: Dimension, column: int, values: Array, numbers: NDArray[np.intp], layout: SpaceLayout
) -> dict[str, Any]:
    windows = np.array_split(np.arange(values.size), min(WINDOWS, max(1, values.size // 5))) if values.size else []
    middles = [float(numbers[window].mean()) for window in windows]
    if isinstance(part, (Boolean, Choice)):
        options = [str(option) for option in part.options]
        shares = [[float((values[window] == k).mean()) for k in range(len(options))] for window in windows]
        return {"name": label, "kind": "choice", "options": options, "at": middles, "shares": shares}
    quantiles = [np.quantile(values[window], (0.05, 0.25, 0.5, 0.75, 0.95)).tolist() for window in windows]
    kind = "order" if isinstance(part, Permutation) else "number"
    bounds = {"low": float(layout.low[column]), "high": float(layout.high[column]), "log": bool(layout.log[column])}
    return {"name": label, "kind": kind, "at": middles, "quantiles": quantiles, **bounds}


def _mattered(known: Known, told: list[Record]) -> dict[str, Any] | None:
    """What a forest of trees goes by to predict the ranks of the values, and how well it does."""
    if len(told) < FEWEST or len({record.value for record in told}) < 3:
        return None
    from sklearn.ensemble import ExtraTreesRegressor  # slow to load

    layout = known.layout
    chosen = [told[i] for i in _thin(len(told), FITTED)]
    rows = np.array([record.row for record in chosen])
    values = known.signs[0] * np.array([record.value for record in chosen])
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable") / len(values)
    forest = ExtraTreesRegressor(100, min_samples_leaf=2, bootstrap=True, oob_score=True, random_state=0)
    forest.fit(_one_hot(layout, rows), ranks)
    owners = np.repeat(np.arange(layout.columns), np.maximum(layout.options, 1))
    by_column = np.bincount(owners, forest.feature_importances_, minlength=layout.columns)
    shares: list[tuple[str, float]] = [
        (name or "x", float(by_column[layout.slices[name]].sum())) for name in layout.parts
    ]
    if len(shares) == 1 and layout.columns > 1:
        shares = [(f"x[{i}]", float(share)) for i, share in enumerate(by_column)]
    return {"shares": sorted(shares, key=lambda share: -share[1])[:30], "score": float(forest.oob_score_)}


def _one_hot(layout: SpaceLayout, rows: Array) -> Array:
    columns = [
        rows[:, [j]] if options == 0 else rows[:, [j]] == np.arange(options) for j, options in enumerate(layout.options)
    ]
    return np.hstack(columns).astype(np.float64)


def _failures(records: list[Record]) -> dict[str, Any]:
    failed = [record for record in records if record.error is not None]
    kinds = Counter(record.error for record in failed)
    latest = [[record.number + 1, record.error, record.worker] for record in failed[-LISTED:][::-1]]
    return {"kinds": [[error, count] for error, count in kinds.most_common(10)], "latest": latest, "count": len(failed)}


def _workers(records: list[Record]) -> dict[str, Any] | None:
    """Who evaluated when: seconds since the first beginning."""
    timed = [record for record in records if math.isfinite(record.began) and math.isfinite(record.seconds)]
    if not timed:
        return None
    zero = min(record.began for record in timed)
    timed = timed[-SPANS:]
    names = list(dict.fromkeys(record.worker or "?" for record in timed))
    spans = [
        [names.index(r.worker or "?"), r.began - zero, r.seconds, 2 if r.error else int(r.stopped), r.number + 1]
        for r in timed
    ]
    end = max(record.began + record.seconds for record in timed) - zero
    begin = min(record.began for record in timed) - zero
    busy = sum(record.seconds for record in timed) / max(1e-12, (end - begin) * len(names))
    return {"names": names, "spans": spans, "begin": begin, "end": end, "busy": min(1.0, busy)}


def _front(known: Known, finished: list[Record]) -> dict[str, Any] | None:
    """Of several objectives: all evaluations in the first two, and those on the front."""
    m = known.signs.size
    if m < 2:
        return None
    archive = Archive(m)
    for record in finished:
        if _violation(known, record) == 0.0:
            archive.see(record.row, known.signs * np.array([record.value, *record.others[: m - 1]]))
    front = known.signs * archive.values
    dots = [[r.value, r.others[0]] for r in (finished[i] for i in _thin(len(finished), DOTS))]
    order = np.argsort(front[:, 0], kind="stable")[:DOTS]
    return {"dots": dots, "front": front[order, :2].tolist(), "count": len(front), "objectives": m}


def _reports(records: list[Record]) -> dict[str, Any] | None:
    """What evaluations yielded on their way, and how many steps were saved."""
    some = [record for record in records if len(record.reports) > 1 or record.stopped]
    if not some:
        return None
    longest = max(len(record.reports) for record in some)
    steps = sum(len(record.reports) for record in some)
    curves = []
    for record in (some[i] for i in _thin(len(some), 200)):
        kept = _thin(len(record.reports), 60)
        curves.append([int(record.stopped), [[i + 1, _number(record.reports[i])] for i in kept]])
    return {"curves": curves, "saved": 1.0 - steps / (longest * len(some)), "longest": longest}


def _thin(count: int, most: int) -> list[int]:
    """At most so many places among `count`, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist() if count else []


def _number(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _spans_decades(best: list[float], values: list[float]) -> bool:
    finite = [value for value in (*best, *values) if math.isfinite(value)]
    return bool(finite and min(finite) > 0.0 and max(finite) > 50.0 * min(finite))
