"""Expressions as text: sums, products and brackets where they are needed."""

from __future__ import annotations

from typing import Any

__all__ = ["formatted", "signed_sum", "times", "wrapped"]


def _operators(text: str) -> set[str]:
    """The operators of an expression that no bracket encloses."""
    depth, found = 0, set()
    for k, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if depth == 0 and character == " ":
            found.add(text[k + 1])
    return found


def wrapped(text: str) -> str:
    """An expression as a factor."""
    return f"({text})" if _operators(text) or text.startswith("-") else text


def formatted(form: str, name: str) -> str:
    """A form with a name put into it."""
    return form.format(name if "({}" in form else wrapped(name))


def times(factor: float, text: str) -> str:
    """A number times an expression, written plainly."""
    if factor == 1.0:
        return text
    inner = f"({text})" if _operators(text) & {"+", "-"} or text.startswith("-") else text
    return f"-{inner}" if factor == -1.0 else f"{factor:g} * {inner}"


def signed_sum(texts: Any) -> str:
    """Summands joined by their signs."""
    joined = ""
    for text in texts:
        if not joined:
            joined = text
        else:
            joined += f" - {text[1:]}" if text.startswith("-") else f" + {text}"
    return joined
