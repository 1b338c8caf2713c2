"""The verdicts of a long run, kept with the source: a short run says where it differs from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from varopt.experiments.report import ClaimVerdict, ReportTable, Section

__all__ = ["compare", "kept_run", "write_verdicts"]

_FILE = "full_run.json"


def kept_run() -> dict[str, Any]:
    """By experiment, the machine, the repetitions and the verdicts of the long run; empty where there is none."""
    resource = files("varopt.experiments").joinpath(_FILE)
    return json.loads(resource.read_text(encoding="utf-8")) if resource.is_file() else {}


def compare(sections: Sequence[Section], kept: dict[str, Any]) -> None:
    """Say in every verdict what the long run found, where it judged the same claim."""
    for section in sections:
        run = kept.get(section.name)
        if run is None:
            continue
        known = {found["claim"]: found["outcome"] for found in run["verdicts"]}
        for k, block in enumerate(section.blocks):
            if isinstance(block, ClaimVerdict) and block.claim in known:
                outcome = known[block.claim]
                same = "The same" if outcome == block.outcome.value else f"Not so: {outcome}"
                section.blocks[k] = replace(block, kept=f"{same} in the full run that is kept ({run['repetitions']}).")


def write_verdicts(sections: Sequence[Section], plans: dict[str, str], facts: dict[str, str], folder: Path) -> None:
    """Write ``verdicts.json``: by experiment, what ran and what was found."""
    content = {
        section.name: {
            "machine": facts["machine"],
            "versions": facts["versions"],
            "written": facts["written"],
            "seed": facts["seed"],
            "repetitions": plans[section.name],
            "verdicts": [
                {"claim": v.claim, "measured": v.measured, "outcome": v.outcome.value, "rule": v.rule}
                for v in section.of_kind(ClaimVerdict)
            ],
            "tables": {
                table.name: {
                    "caption": table.caption,
                    "columns": [column.title for column in table.columns],
                    "rows": [[c.text(v) for c, v in zip(table.columns, row, strict=True)] for row in table.rows],
                }
                for table in section.of_kind(ReportTable)
            },
        }
        for section in sections
        if section.of_kind(ClaimVerdict)
    }
    (folder / "verdicts.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
