"""Two processes, one for each version, that are asked in turns for the time of the same call."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Turns:
    """One call in both versions: seconds of each round."""

    name: str
    before: tuple[float, ...]
    after: tuple[float, ...]
    values: tuple[Any, Any]

    @property
    def ratio(self) -> float:
        """After / before: that of the fewest seconds, which a machine with other work disturbs least."""
        return min(self.after) / min(self.before)

    @property
    def spread(self) -> tuple[float, float]:
        """The quartiles of the rounds' own ratios: what is within them is noise."""
        ratios = sorted(a / b for a, b in zip(self.after, self.before, strict=True))
        if len(ratios) < 2:
            return ratios[0], ratios[0]
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return low, high


class _Version:
    """A process that has one version of varopt, and these benchmarks."""

    def __init__(self, source: Path, only: str, quick: bool) -> None:
        paths = os.pathsep.join([str(source), str(ROOT)])
        arguments = ["--only", only, *(["--quick"] if quick else [])]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.versions._worker", *arguments], env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip

    def ask(self, what: str) -> Any:
        asked, told = self.process.stdin, self.process.stdout
        if asked is None or told is None:
            raise RuntimeError("a version has no pipes.")
        asked.write(what + "\n")
        asked.flush()
        if not (answer := told.readline()):
            raise RuntimeError("a version died; its message is above.")
        return json.loads(answer)

    def end(self) -> None:
        with self.process:  # closes its pipes, and waits
            self.process.kill()


def compared(old: Path, new: Path, only: str, quick: bool, rounds: int) -> Iterator[Turns]:
    """Every call whose name has `only` in it, in `rounds` rounds that alternate who goes first."""
    versions = [_Version(source, only, quick) for source in (old, new)]
    try:
        while (name := versions[0].ask("next")) is not None:
            if versions[1].ask("next") != name:
                raise RuntimeError(f"the versions are not at the same call ({name}).")
            values = versions[0].ask("value"), versions[1].ask("value")
            seconds: tuple[list[float], list[float]] = [], []
            for turn in range(rounds):
                for which in (0, 1) if turn % 2 else (1, 0):
                    seconds[which].append(versions[which].ask("time"))
            yield Turns(name, tuple(seconds[0]), tuple(seconds[1]), values)
    finally:
        for version in versions:
            version.end()
