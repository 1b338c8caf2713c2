"""The printed table and the JSON record of a run."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

from benchmarks._measure import Timing
from benchmarks._registry import Row

PACKAGES = ("varopt", "numpy", "scipy", "array-api-compat")
HEADINGS = ("problem", "solver", "cold s", "warm s", "peak MB", "/ data", "rel. gap", "ratio", "target", "", "ratio of")
RIGHT_ALIGNED = {"cold s", "warm s", "peak MB", "/ data", "rel. gap", "ratio", "target"}


def versions() -> dict[str, str]:
    """The versions of the packages that decide the numbers."""
    return {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES}


def _version(name: str) -> str:
    """The version of a package; what was measured is not lost where one lies on the path and is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def machine() -> dict[str, Any]:
    """The machine, with the BLAS and its threads: a ratio against `X @ w` means little without them."""
    from threadpoolctl import threadpool_info

    importlib.import_module("numpy")  # a BLAS that is not loaded is not reported
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cores": os.cpu_count(),
        "blas": sorted(
            f"{pool['internal_api']} {pool['version']}, {pool['num_threads']} threads"
            for pool in threadpool_info()
            if pool["user_api"] == "blas"
        ),
    }


def processor() -> str:
    """The processor's name, where the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def number(value: float | None) -> str:
    """Three significant digits, or a dash for what does not apply."""
    return f"{value:.3g}" if is_finite(value) else "-"


def is_finite(value: float | None) -> TypeGuard[float]:
    """Whether there is a number, and JSON can hold it."""
    return value is not None and math.isfinite(value)


def cells(row: Row) -> tuple[str, ...]:
    """A row as text, in the order of `HEADINGS`."""
    return (
        row.problem,
        row.solver,
        number(row.timing.cold if row.timing else None),
        number(row.timing.median if row.timing else None),
        number(None if row.peak_bytes is None else row.peak_bytes / 1e6),
        number(row.memory),
        number(row.relative_gap),
        number(row.ratio),
        number(row.target),
        row.verdict,
        row.remarks,
    )


def table(rows: Sequence[Row]) -> str:
    """The rows as aligned plain text."""
    lines = [HEADINGS, *(cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if heading in RIGHT_ALIGNED else cell.ljust(width)
            for cell, width, heading in zip(line, widths, HEADINGS, strict=True)
        ).rstrip()
        for line in lines
    )


def timing_record(timing: Timing | None, prefix: str) -> dict[str, float | None]:
    """Cold, best and median seconds."""
    return {
        f"{prefix}_cold": timing.cold if timing else None,
        f"{prefix}_warm_best": timing.best if timing else None,
        f"{prefix}_warm_median": timing.median if timing else None,
    }


def record(row: Row) -> dict[str, Any]:
    """A row as JSON, where what is not a finite number is null."""
    entry = {
        "problem": row.problem,
        "solver": row.solver,
        **timing_record(row.timing, "seconds"),
        **timing_record(row.baseline, "baseline_seconds"),
        "objective": row.objective,
        "lower": row.lower,
        "gap": row.gap,
        "relative_gap": row.relative_gap,
        "status": row.status,
        "skipped": row.skipped,
        "verdict": row.verdict,
        "peak_bytes": row.peak_bytes,
        "data_bytes": row.data_bytes,
        "ratio": row.ratio,
        "ratio_of": row.ratio_of,
        "target": row.target,
        "memory_target": row.memory_target,
        "passed": row.passed,
        "note": row.note,
        "versions": versions() | row.versions,
    }
    return {key: None if isinstance(value, float) and not is_finite(value) else value for key, value in entry.items()}


def write(rows: Sequence[Row], suite: str, quick: bool, folder: Path) -> Path:
    """Write ``<suite>-<timestamp>.json`` into the folder and return its path."""
    now = datetime.now(UTC)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{suite}-{now:%Y%m%dT%H%M%SZ}.json"
    content = {
        "suite": suite,
        "quick": quick,
        "time": now.isoformat(timespec="seconds"),
        "machine": machine(),
        "rows": [record(row) for row in rows],
    }
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return path
