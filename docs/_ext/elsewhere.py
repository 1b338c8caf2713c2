"""Links to the pages of NumPy, SciPy and scikit-learn, and the methods that estimators inherit from the latter.

Sphinx' own way (intersphinx) downloads an inventory of each project whenever the documentation is built. These three
name the page of an object after the object, so the address follows from the name, and whether there is such an object
is asked of the installed package: the build needs no network.
"""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cache
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import nested_parse_with_titles

PAGES = {
    "numpy": "https://numpy.org/doc/stable/reference/generated/{page}.html#{name}",
    "scipy": "https://docs.scipy.org/doc/scipy/reference/generated/{page}.html#{name}",
    "sklearn": "https://scikit-learn.org/stable/modules/generated/{page}.html#{name}",
}


@cache
def found(name: str) -> tuple[Any, str] | None:
    """What a dotted name stands for, and the function or class that has the page; None where there is no such thing."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for place, part in enumerate(parts[end:], start=end):
            if not hasattr(value, part):
                return None
            value = getattr(value, part)
            if inspect.isclass(value) or place == end:
                page = ".".join(parts[: place + 1])
        return (value, page) if end < len(parts) else None
    return None


def address(name: str) -> str | None:
    """The address of the page of a public object of the three packages."""
    package = name.partition(".")[0]
    if package not in PAGES or any(part.startswith("_") for part in name.split(".")):
        return None
    known = found(name)
    return None if known is None else PAGES[package].format(page=known[1], name=name)


def resolve(app: Sphinx, env: Any, node: Any, content: nodes.Element) -> nodes.reference | None:
    """Link a name that this documentation does not describe, where one of the three does."""
    name = re.sub(r"^np\.", "numpy.", node.get("reftarget", ""))
    url = address(name) if node.get("refdomain") == "py" else None
    if url is None:
        return None
    link = nodes.reference("", "", internal=False, refuri=url, reftitle=f"in the documentation of {name.split('.')[0]}")
    link += content
    return link


@cache
def public_estimators() -> dict[str, type]:
    """Scikit-learn's estimators by their public name."""
    from sklearn.utils import all_estimators

    return {f"{kind.__module__.split('._')[0]}.{name}": kind for name, kind in all_estimators()}


def described_at(kind: type, definer: type, method: str) -> str | None:
    """The public name under which scikit-learn describes an inherited method.

    That of its estimator of the same name, of the class that defines the method, or of any estimator that has it too.
    """
    candidates = [name for name, theirs in public_estimators().items() if name.endswith(f".{kind.__name__}")]
    candidates += [f"{definer.__module__.split('._')[0]}.{definer.__name__}"]
    familiar = ("linear_model.LinearRegression", "linear_model.LogisticRegression", "svm.SVC", "svm.SVR")
    others = [f"sklearn.{name}" for name in familiar] + list(public_estimators())
    candidates += [name for name in others if issubclass(public_estimators()[name], definer)]
    own = getattr(definer, method)
    for name in candidates:
        known = found(name)
        if known is not None and address(f"{name}.{method}") and getattr(known[0], method, None) is own:
            return f"{name}.{method}"
    return None


class InheritedMethods(SphinxDirective):
    """``.. inherited-methods:: varopt.learn.Lasso``: what the class has from scikit-learn, with links to it."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The list of methods, or nothing where the class inherits none."""
        module, _, name = self.arguments[0].rpartition(".")
        kind = getattr(importlib.import_module(module), name)
        lines = []
        for method, value in inspect.getmembers(kind, inspect.isfunction):
            if method.startswith("_") or not value.__module__.startswith("sklearn"):
                continue
            definer = next(base for base in kind.__mro__ if method in vars(base))
            target = described_at(kind, definer, method)
            summary = re.sub(r":\w+:`([^`<]+?)\s*(?:<[^>]+>)?`", r"\1", inspect.getdoc(value).partition("\n")[0])
            shown = f":py:meth:`{method}() <{target}>`" if target else f"``{method}()``"
            lines.append(f"* {shown}: {summary[0].lower()}{summary[1:]}")
        if not lines:
            return []
        text = [".. rubric:: Methods inherited from scikit-learn", "", *lines]
        holder = nodes.section()
        holder.document = self.state.document
        nested_parse_with_titles(self.state, StringList(text, source="inherited methods"), holder)
        return holder.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and the links."""
    app.add_directive("inherited-methods", InheritedMethods)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
