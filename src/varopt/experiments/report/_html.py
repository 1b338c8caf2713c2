"""The report as one HTML page that needs nothing else: style, script and figures are in it."""

from __future__ import annotations

import re
from html import escape
from importlib.resources import files
from typing import Any

from varopt.experiments.report._content import (
    Agreement,
    Block,
    Check,
    ClaimVerdict,
    Column,
    Figure,
    Page,
    ReportTable,
    Section,
    Text,
)
from varopt.experiments.report._plot import themed_svg

__all__ = ["html_page"]

_CLASS = {
    Agreement.AGREES: "agrees",
    Agreement.PARTLY: "partly",
    Agreement.CONTRADICTS: "contradicts",
    Agreement.OPEN: "open",
}


def html_page(page: Page) -> str:
    """The whole page as text."""
    asset = files("varopt.experiments.report")
    style, script = (asset.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    contents = "".join(f'<li><a href="#{s.name}">{escape(s.title)}</a></li>' for s in page.sections)
    facts = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in page.facts.items())
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(page.title)}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<header>
<button type="button" id="theme" title="Switch between dark and light">dark / light</button>
<h1>{escape(page.title)}</h1>
<p class="lead">{_inline(page.lead)}</p>
<nav aria-label="Sections"><ol>{contents}</ol></nav>
</header>
<main>
{_summary(page)}{"".join(_section(section) for section in page.sections)}</main>
<footer><h2>How this was run</h2><dl>{facts}</dl></footer>
<script>
{script}</script>
</body>
</html>
"""


def _summary(page: Page) -> str:
    if not page.verdicts:
        return ""
    tally = ", ".join(
        f"{count} × {outcome.value}"
        for outcome in Agreement
        if (count := sum(verdict.outcome is outcome for _, verdict in page.verdicts))
    )
    failures = "".join(f"<li>{_inline(failure)}</li>" for failure in page.failures)
    rows = "".join(
        f'<tr><td data-label="claim"><a href="#{section.name}">{_inline(verdict.claim)}</a></td>'
        f'<td data-label="measured">{_inline(verdict.measured)}</td>'
        f'<td data-label="outcome">{_badge(verdict.outcome)}</td></tr>'
        for section, verdict in page.verdicts
    )
    return (
        '<section id="summary"><h2>What the paper claims, and what was measured</h2>'
        f"<p>{tally}.</p>"
        + (f'<div class="failures"><p>Checks that failed:</p><ul>{failures}</ul></div>' if failures else "")
        + '<div class="scroll"><table class="wide cards"><thead><tr>'
        + "".join(_heading(Column(name)) for name in ("claim", "measured", "outcome"))
        + f"</tr></thead><tbody>{rows}</tbody></table></div></section>\n"
    )


def _section(section: Section) -> str:
    checks = section.of_kind(Check)
    failed = [check for check in checks if not check.holds]
    items = "".join(
        f'<li class="{"held" if check.holds else "failed"}">{_inline(check.statement)}</li>' for check in checks
    )
    verdict = f"{len(checks) - len(failed)} of {len(checks)} checks held"
    details = f"<details{' open' if failed else ''}><summary>{verdict}</summary><ul>{items}</ul></details>"
    body = "".join(_block(block) for block in section.blocks)
    return f'<section id="{section.name}"><h2>{escape(section.title)}</h2>{body}{details if checks else ""}</section>\n'


def _block(block: Block) -> str:
    match block:
        case Text(text):
            return f"<p>{_inline(text)}</p>"
        case ClaimVerdict(claim, measured, outcome, rule, kept):
            return (
                f'<div class="verdict {_CLASS[outcome]}"><p><b>Claim.</b> {_inline(claim)}</p>'
                f"<p><b>Measured.</b> {_inline(measured)}</p>"
                f'<p class="rule"><b>Rule.</b> Agrees where {_inline(rule)}.</p>'
                f"<p>{_badge(outcome)}{f' {_inline(kept)}' if kept else ''}</p></div>"
            )
        case ReportTable(name, caption, columns, rows):
            wide = ' class="wide"' if not any(column.numeric for column in columns) else ""
            head = "".join(map(_heading, columns))
            body = "".join(f"<tr>{''.join(map(_cell, columns, row))}</tr>" for row in rows)
            return (
                f'<p class="caption" id="caption-{name}">{_inline(caption)}</p>'
                f'<div class="scroll" tabindex="0" role="group" aria-labelledby="caption-{name}">'
                f'<table id="table-{name}" aria-labelledby="caption-{name}"{wide}>'
                f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
            )
        case Figure(name, caption, panels):
            drawn = "".join(f'<div class="panel">{themed_svg(draw, title)}</div>' for title, draw in panels.items())
            text = f"<figcaption>{_inline(caption)}</figcaption>"
            return f'<figure id="{name}-plot"><div class="panels">{drawn}</div>{text}</figure>'
        case Check():
            return ""


def _heading(column: Column) -> str:
    kind = ' class="number"' if column.numeric else ""
    return f'<th scope="col"{kind}><button type="button">{escape(column.title)}</button></th>'


def _cell(column: Column, value: Any) -> str:
    text, label = escape(column.text(value)), escape(column.title)
    if not column.numeric:
        return f'<td data-label="{label}">{text}</td>'
    key = column.key(value)
    data = "" if key is None else f' data-value="{key!r}"'
    return f'<td class="number" data-label="{label}"{data}>{text}</td>'


def _badge(outcome: Agreement) -> str:
    return f'<span class="badge {_CLASS[outcome]}">{outcome.value}</span>'


def _inline(text: str) -> str:
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"(?<![\w*])\*([^*]+)\*(?![\w*])", r"<em>\1</em>", text)
