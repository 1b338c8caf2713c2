"""Mathematics as MathML, which browsers draw themselves: no script, no font and no other host is needed."""

from __future__ import annotations

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.logging import getLogger
from sphinx.writers.html5 import HTML5Translator

logger = getLogger(__name__)

# Bars around a value: browsers take the second for a relation, with room on both sides.
_BAR = '<mo stretchy="false">&#x0007C;</mo>'
_CLOSE_BAR = '<mo stretchy="false" lspace="0em" rspace="0em">&#x0007C;</mo>'
_NAME = re.compile(r"(<mi>(?:log|exp|sign|tr|Diag)</mi>)(?=<mi>)")  # of a function, right before its argument


def mathml(node: nodes.Element, display: str) -> str:
    """The formula of a node; what cannot be converted is a warning, and so an error in `make docs`."""
    latex = node.astext().strip().replace(r"\bigl", "").replace(r"\bigr", "")  # MathML stretches brackets by itself
    try:
        return _NAME.sub(r'\1<mspace width="0.17em"/>', convert(latex, display=display).replace(_BAR, _CLOSE_BAR))
    except Exception as error:
        logger.warning("the formula %r cannot be written as MathML: %s", latex, error, location=node)
        return f"<code>{latex}</code>"


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a sentence."""
    self.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def visit_display(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on a line of its own."""
    self.body.append(f'<div class="math-display">{mathml(node, "block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
