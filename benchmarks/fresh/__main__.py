"""Run on, and print the tables."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.fresh import _bbob, _ranks, seeds
from benchmarks.fresh._kept import BBOB_RIVALS, RIVALS, gathered


def _bold(text: str, lost: bool) -> str:
    return f"**{text}**" if lost else text


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _show_ranks(done: _ranks.Done) -> None:
    by_budget = {budget: _ranks.mean_ranks(done, budget) for budget in _ranks.BUDGETS}
    print(_row("all, mean rank", "runs", *_ranks.RANKED), "|---|---:|" + "---:|" * len(_ranks.RANKED), sep="\n")
    for budget, ranks in by_budget.items():
        if ranks:
            count, mean = ranks[""]
            cells = [_bold(f"{r:.2f}", i == 0 and r > mean[1:].min()) for i, r in enumerate(mean)]
            print(_row(f"{budget} evaluations", str(count), *cells))
    print("\n" + _row("ours, and the best rival", *(f"{b}" for b in _ranks.BUDGETS)), "|---|" + "---|" * 5, sep="\n")
    for name in _ranks.PROBLEMS:
        cells = []
        for ranks in by_budget.values():
            if name not in ranks:
                cells.append("")
                continue
            mean = ranks[name][1]
            best = int(mean[1:].argmin()) + 1
            cells.append(_bold(f"{mean[0]:.1f}; {mean[best]:.1f} {_ranks.RANKED[best]}", mean[0] > mean[best]))
        print(_row(name, *cells))
    for budget in _ranks.PROCESS_BUDGETS:
        wins, losses, equal = _ranks.beside_a_process(done, budget)
        lost = _bold(str(losses), losses > wins)
        print(f"\nGPSampler, {budget} evaluations: ours better in {wins} runs, it in {lost}, equal {equal}.")


def _show_evaluations(done: dict[_bbob.Job, list[float]]) -> None:
    print("\n" + _row("BBOB", "runs", *_bbob.SOLVERS), "|---|---:|" + "---:|" * len(_bbob.SOLVERS), sep="\n")
    for (function, d), (count, told) in _bbob.evaluations(done).items():
        better = min(spent for s, (_, spent) in told.items() if s != "varopt")
        cells = [
            _bold(f"{spent:.0f} ({solved})" if solved else "none", s == "varopt" and spent > better)
            for s, (solved, spent) in told.items()
        ]
        print(_row(f"f{function}, d = {d}", str(count), *cells))


def _show_targets(done: dict[_bbob.Job, list[float]]) -> None:
    print("\n" + _row("BBOB, targets", "runs", *_bbob.SOLVERS), "|---|---:|" + "---:|" * len(_bbob.SOLVERS), sep="\n")
    for name, functions in (("f1 to f24", _bbob.FUNCTIONS), ("f13", (13,)), ("f21", (21,))):
        for d, (count, told) in _bbob.targets(done, functions).items():
            better = max(n for s, n in told.items() if s != "varopt")
            cells = [_bold(str(n), s == "varopt" and n < better) for s, n in told.items()]
            print(_row(f"{name}, d = {d}", str(count), *cells))


def main() -> int:
    """Run, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fresh", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="for each of the two parts")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--keep", type=Path, help="a file of runs, to go on from; those on BBOB beside it")
    parser.add_argument("--solvers", default=",".join(_ranks.RANKED), help="which to run")
    options = parser.parse_args()
    keep: Path | None = options.keep
    beside = None if keep is None else keep.with_name(f"{keep.stem}-bbob{keep.suffix}")
    jobs = _ranks.jobs(tuple(options.solvers.split(",")), seeds(options.seeds))
    _show_ranks(gathered(_ranks.run, jobs, options.minutes, keep, RIVALS))
    done = gathered(_bbob.run, _bbob.jobs(seeds(options.seeds)), options.minutes, beside, BBOB_RIVALS)
    _show_evaluations(done)
    _show_targets(done)
    return 0


if __name__ == "__main__":
    sys.exit(main())
