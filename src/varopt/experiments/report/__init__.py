"""The report: what is claimed, what was measured, as one HTML page and as Markdown."""

from varopt.experiments.report._content import (
    Agreement,
    Check,
    ClaimVerdict,
    Column,
    Figure,
    Page,
    ReportTable,
    Section,
    Text,
    number,
)
from varopt.experiments.report._html import html_page
from varopt.experiments.report._markdown import markdown_page

__all__ = [
    "Agreement",
    "Check",
    "ClaimVerdict",
    "Column",
    "Figure",
    "Page",
    "ReportTable",
    "Section",
    "Text",
    "html_page",
    "markdown_page",
    "number",
]
