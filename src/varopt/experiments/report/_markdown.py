"""The report as Markdown, to print or to read in a terminal."""

from __future__ import annotations

import textwrap
from pathlib import Path

from varopt.experiments.report._content import Block, Check, ClaimVerdict, Figure, Page, ReportTable, Section, Text
from varopt.experiments.report._plot import standalone_svg

__all__ = ["markdown_page"]


def markdown_page(page: Page, folder: Path) -> str:
    """The report; its figures are written into ``folder/figures`` and referred to."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    parts = [f"# {page.title}", _wrap(page.lead)]
    parts += ["\n".join(f"- {name}: {value}" for name, value in page.facts.items())]
    if page.verdicts:
        head = ["| claim | measured | |", "|---|---|---|"]
        lines = [f"| {_cell(v.claim)} | {_cell(v.measured)} | {v.outcome.value} |" for _, v in page.verdicts]
        parts += ["## What the paper claims, and what was measured", "\n".join(head + lines)]
    for section in page.sections:
        parts += [f"## {section.title}", *(_block(block, folder) for block in section.blocks), _checks(section)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(block: Block, folder: Path) -> str:
    match block:
        case Text(text):
            return _wrap(text)
        case ClaimVerdict(claim, measured, outcome, rule, kept):
            judged = f"*Rule.* Agrees where {rule}. **{outcome.value.capitalize()}.** {kept}".strip()
            return _wrap(f"> *Claim.* {claim} *Measured.* {measured} {judged}")
        case ReportTable(_, caption, columns, rows):
            head = "| " + " | ".join(_cell(column.title) for column in columns) + " |"
            rule = "|" + "|".join("---:" if column.numeric else "---" for column in columns) + "|"
            lines = [
                "| " + " | ".join(_cell(c.text(value)) for c, value in zip(columns, row, strict=True)) + " |"
                for row in rows
            ]
            return "\n".join([f"**{caption}**", "", head, rule, *lines])
        case Figure(name, caption, panels):
            links = []
            for number, (title, draw) in enumerate(panels.items(), start=1):
                path = Path("figures") / (f"{name}.svg" if len(panels) == 1 else f"{name}-{number}.svg")
                (folder / path).write_text(standalone_svg(draw, title), encoding="utf-8")
                links.append(f"![{title}]({path.as_posix()})")
            return "\n".join(links) + f"\n\n*{caption}*"
        case Check():
            return ""


def _checks(section: Section) -> str:
    checks = section.of_kind(Check)
    failed = [f"- **Failed:** {check.statement}" for check in checks if not check.holds]
    held = f"{len(checks) - len(failed)} of {len(checks)} checks held." if checks else ""
    return "\n".join([held, *failed])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _wrap(text: str) -> str:
    return textwrap.fill(text, 100, subsequent_indent="> " if text.startswith("> ") else "", break_on_hyphens=False)
