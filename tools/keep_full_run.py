"""Keep the verdicts of a long reproduction with the source, and print its tables for docs/reproduce.md.

    python tools/keep_full_run.py reproduction/verdicts.json [more/verdicts.json ...]

What is kept is compared with the verdicts of every later run.
"""

import json
import sys
from pathlib import Path

KEPT = Path(__file__).resolve().parents[1] / "src" / "varopt" / "experiments" / "full_run.json"
REPEATED = ("table1", "fused", "figure4")  # the others repeat nothing: every run is a full one


def main(paths: list[str]) -> None:
    """Merge the files into the kept run, the last of an experiment winning."""
    kept = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    for path in paths:
        found = json.loads(Path(path).read_text("utf-8"))
        kept.update({name: run for name, run in found.items() if name in REPEATED})
    for run in kept.values():
        for table in run.pop("tables", {}).values():
            print(f"\n*{table['caption']}*\n")
            print("| " + " | ".join(table["columns"]) + " |")
            print("|---|" + "---:|" * (len(table["columns"]) - 1))
            for row in table["rows"]:
                print("| " + " | ".join(row) + " |")
        print(f"\n{run['repetitions']}; {run['machine']}; {run['written']}; seed {run['seed']}")
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
