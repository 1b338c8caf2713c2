"""The report: what is claimed, what was measured, as one HTML page and as Markdown."""

from varopt.experiments.report._content import (
    Check,
    Column,
    Figure,
    Outcome,
    Page,
    Section,
    Table,
    Text,
    Verdict,
    number,
)
from varopt.experiments.report._html import html_page
from varopt.experiments.report._markdown import markdown_page

__all__ = [
    "Check",
    "Column",
    "Figure",
    "Outcome",
    "Page",
    "Section",
    "Table",
    "Text",
    "Verdict",
    "html_page",
    "markdown_page",
    "number",
]
