"""What was run and what was found: counts by part, programs, a table, and a JSON record."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = ["COLUMNS", "Finding", "Report"]

#: Columns of the table, and how the kinds of findings that they count begin.
COLUMNS: dict[str, tuple[str, ...]] = {
    "unsound": ("UNSOUND:", "FALSE UPPER BOUND:", "lower", "OPTIMAL", "PROVED", "INFEASIBLE", "contradiction"),
    "assumed, false": ("UNSOUND (assumption",),
    "by rounding": ("UNSOUND BY ROUNDING", "FALSE UPPER BOUND within"),
    "wrong status": ("UNBOUNDED", "fun", "x is", "ASSUMED", "gap open without"),
    "exceptions": ("exception", "warning", "died"),
    "late": ("late", "hang"),
    "gap open": ("gap open:", "time limit", "not proved"),
    "not convex": ("curved down",),
}  # fmt: skip
#: Columns that are failures, whatever else there is.
SERIOUS = ("unsound", "by rounding", "wrong status", "exceptions", "late")


@dataclass
class Finding:
    """Something that went wrong, and the program that shows it."""

    kind: str
    method: str
    text: str
    seed: int
    program: str
    part: str = ""

    @property
    def column(self) -> str:
        """The column of the table that counts it."""
        return next((name for name, starts in COLUMNS.items() if f"{self.kind}:".startswith(starts)), "unsound")


@dataclass
class Report:
    """Counts of what was run and found. `known` are the kinds that were shrunk before: once is enough."""

    problems: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    known: set[tuple[str, str]] = field(default_factory=set)

    def add(self, other: Report) -> None:
        """Take in what another one has."""
        for name in ("problems", "runs", "statuses", "seconds"):
            getattr(self, name).update(getattr(other, name))
        self.findings += other.findings
        self.known |= other.known

    def kinds(self) -> Counter[str]:
        """How many findings there are of each kind and method."""
        return Counter(f"{f.kind} [{f.method}]" for f in self.findings)

    def serious(self) -> list[Finding]:
        """What must not be."""
        return [f for f in self.findings if f.column in SERIOUS]

    def table(self) -> str:
        """A line for each part: how many problems and runs, and how many of them were found to be what."""
        counts = Counter((f.part, f.column) for f in self._one_a_run())
        heads = ["problems", "runs", *COLUMNS, "ASSUMED", "a second and core"]
        lines = [f"{'':<16}" + "".join(f"{head:>18}" for head in heads)]
        for part in self.problems:
            own = [(status, n) for status, n in self.statuses.items() if status.startswith(f"{part}: ")]
            assumed = sum(n for status, n in own if status.endswith("ASSUMED"))
            rate = self.problems[part] / max(self.seconds[part], 1e-9)
            runs = max(self.runs[part], 1)
            cells = [f"{self.problems[part]}", f"{self.runs[part]}"]
            found = [*(counts[part, column] for column in COLUMNS), assumed]
            cells += [f"{n} ({100.0 * n / runs:.2f} %)" if n else "0" for n in found]
            lines.append(f"{part:<16}" + "".join(f"{cell:>18}" for cell in [*cells, f"{rate:.1f}"]))
        return "\n".join(lines)

    def _one_a_run(self) -> Iterable[Finding]:
        """A run that is found amiss twice in one way counts once."""
        return {(f.part, f.seed, f.method, f.column): f for f in self.findings}.values()

    def programs(self, *, everything: bool = False) -> str:
        """The programs that show the findings, the shortest of each kind."""
        shown: set[str] = set()
        texts = []
        for f in sorted(self.findings, key=lambda f: (list(COLUMNS).index(f.column), f.kind, f.method, len(f.program))):
            key = f"{f.kind} [{f.part}, {f.method}]"
            if everything or key not in shown:
                texts.append(f"# {key}, seed {f.seed}: {f.text}\n{f.program}")
            shown.add(key)
        return "\n".join(texts)

    def write(self, path: Path, **about: object) -> None:
        """The whole as JSON."""
        names = ("problems", "runs", "statuses", "seconds")
        counts = {name: dict(sorted(getattr(self, name).items())) for name in names}
        columns = Counter(f"{f.part}: {f.column}" for f in self._one_a_run())
        record = {**about, **counts, "columns": dict(columns), "kinds": dict(self.kinds().most_common())}
        path.write_text(json.dumps({**record, "findings": [asdict(f) for f in self.findings]}, indent=1), "utf-8")
