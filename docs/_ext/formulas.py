"""Formulas of docstrings, typeset: ``0.5 * ||w||^2_2 + C * sum_i max(1 - z_i, 0)`` is read in a terminal as it stands.

Docstrings hold formulas as plain text in double backquotes, so that `help` shows something legible; here the ones that
are mathematics and not code become LaTeX.
"""

from __future__ import annotations

import re

from sphinx.application import Sphinx

_GREEK = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "eta",
    "theta",
    "lambda",
    "mu",
    "nu",
    "xi",
    "rho",
    "sigma",
    "tau",
    "phi",
]
_OPERATORS = ["max", "min", "argmin", "exp", "log", "sup"]
_MATHEMATICS = re.compile(r"sum_|prod_|\|\||\||\^|\bmax\(|\bmin\(|^<.*>$")
_CODE = re.compile(r"''|\btol\b|['\"]\w+['\"]|==|->|\bnp\.|\bvo\.|\w_\b(?!\{)|\+=|\bseconds\b|\bgap\b")
_WORDS = re.compile(r"(,? ?\b(?:for|beyond|then a parabola that is flat from|on)\b ?|, (?![^(]*\)))")


def is_formula(text: str) -> bool:
    """Whether a literal is mathematics rather than code."""
    return bool(_MATHEMATICS.search(text)) and not _CODE.search(text)


def _identifier(match: re.Match[str]) -> str:
    """A name: a letter with an index, a Greek letter, an operator, a product of letters, or a word."""
    name = match[0]
    if name in ("n_samples", "n"):
        return "n"
    if name == "Xw":
        return "X w"
    if name == "in":
        return r"\in "
    base, _, index = name.partition("_")
    if base in ("sum", "prod"):
        return rf"\{base}_{{{index}}}" if index else rf"\{base} "
    if index and (len(base) == 1 or len(index) <= 2 or base in _OPERATORS or base in _GREEK):
        return f"{_word(base)}_{{{_word(index) if index in _GREEK else index}}}"
    return _word(name)


def _word(name: str) -> str:
    if name in _GREEK:
        return rf"\{name} "
    if name == "lam":
        return r"\lambda "
    if name in _OPERATORS:
        return rf"\mathrm{{{name}}} "
    return name if len(name) == 1 or name.isdigit() else rf"\mathrm{{{name}}} ".replace("_", r"\_")


def latex(text: str) -> str:
    """The LaTeX of a formula in plain text.

    >>> latex("0.5 * ||w||^2_2 + C * sum_i max(1 - z_i, 0)")
    '\\\\tfrac{1}{2} \\\\, \\\\lVert w\\\\rVert ^2_2 + C \\\\, \\\\sum_{i} \\\\mathrm{max} (1 - z_{i}, 0)'
    """
    text = re.sub(r"\b0\.5\b", r"@half@", text)
    text = re.sub(r"\b1 / \(2 \* n_samples\)", "@twon@", text)
    text = re.sub(r"\b1 / n_samples\b", "@onen@", text)
    text = re.sub(r"\^\(([^()]*)\)|\^(-\d+)", lambda m: f"^{{{m[1] or m[2]}}}", text)
    text = re.sub(r"(?<![A-Za-z@])([A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)?)(?![A-Za-z0-9@])", _identifier, text)
    text = re.sub(r"([\w})]) ?'", r"\1^{\\top} ", text)
    text = re.sub(r"\|\|(.+?)\|\|", r"\\lVert \1\\rVert ", text)
    text = re.sub(r"\|([^|]+)\|", r"\\lvert \1\\rvert ", text)
    text = re.sub(r"<([^<>=]+)>", r"\\langle \1\\rangle ", text)
    text = re.sub(r"\b1\[", r"\\mathbf{1}[", text)
    text = re.sub(r"(\\mathrm\{[^}]*\}) +(?=[A-Za-z\\])", r"\1\\, ", text)
    for plain, written in ((" * ", r" \, "), ("<=", r"\le "), (">=", r"\ge "), ("~", r"\sim "), ("<", r"\lt ")):
        text = text.replace(plain, written)
    for mark, written in (("@half@", r"\tfrac{1}{2}"), ("@twon@", r"\frac{1}{2n}"), ("@onen@", r"\frac{1}{n}")):
        text = text.replace(mark, written)
    return re.sub(r"  +", " ", text).strip()


def with_words(text: str) -> str:
    """A definition by cases, in MyST: formulas between words."""
    parts = _WORDS.split(text) if " for " in text else [text]
    return "".join(part if i % 2 else (f"${latex(part)}$" if part.strip() else part) for i, part in enumerate(parts))


def typeset(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Replace the formulas of a docstring, which may run over the end of a line."""
    text = "\n".join(lines)

    def replaced(match: re.Match[str]) -> str:
        literal = re.sub(r"\s+", " ", match[1])
        if not is_formula(literal):
            return match[0]
        return f":math:`{latex(literal)}`"

    lines[:] = re.sub(r"``([^`]+)``", replaced, text).split("\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the hook, before numpydoc takes the docstring apart."""
    app.connect("autodoc-process-docstring", typeset, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
