"""Writes the reference pages from `__all__`, and warns of a public name that has no entry or no docstring.

Nobody lists a name twice: exporting it documents it. The pages are written to ``reference/_generated`` before Sphinx
looks for sources, because autosummary only sees directives that are in a source file.
"""

import importlib
import inspect
import re
import shutil
from pathlib import Path
from types import ModuleType

from formulas import with_words
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.util.logging import getLogger

logger = getLogger(__name__)

LAYERS = {
    "terms": "Terms",
    "model": "Objectives",
    "families": "Families",
    "bounds": "Bounds",
    "certificates": "Certificates",
    "solvers": "Solvers",
    "learn": "Estimators",
    "search": "Black boxes",
    "discrete": "Bits",
    "nn": "Layers",
}


def layer_of(value: object) -> str:
    """The layer that defines an object (for a constant: the layer that defines its type)."""
    module = getattr(value, "__module__", None) or type(value).__module__
    package, _, rest = module.partition(".")
    return rest.partition(".")[0] if package == "varopt" else ""


def public(module: ModuleType) -> dict[str, object]:
    """The public names of a module and what they stand for, without dunder names such as the version."""
    names = {name: getattr(module, name) for name in module.__all__ if not name.startswith("__")}
    return {
        name: value for name, value in names.items() if not inspect.ismodule(value)
    }  # layers have pages of their own


def own_names(layer: str) -> dict[str, object]:
    """The public names of a layer that are not already public at the top."""
    top = importlib.import_module("varopt")
    here = public(importlib.import_module(f"varopt.{layer}"))
    return {name: value for name, value in here.items() if getattr(top, name, None) is not value}


def autosummary(module: str, names: list[str]) -> str:
    """A MyST block that lists the names and makes autosummary write a page for each."""
    entries = "\n".join(f"   {name}" for name in names)
    return (
        f"```{{eval-rst}}\n.. currentmodule:: {module}\n\n.. autosummary::\n   :toctree: objects\n\n{entries}\n```\n\n"
    )


def top_page() -> str:
    """The page of everything that `import varopt as vo` gives, grouped by the layer that defines it."""
    names = public(importlib.import_module("varopt"))
    text = "# varopt\n\nEverything that `import varopt as vo` gives.\n\n"
    groups = {layer: [name for name, value in names.items() if layer_of(value) == layer] for layer in LAYERS}
    grouped = {name for group in groups.values() for name in group}
    for layer, group in groups.items():
        if group:
            text += f"## {LAYERS[layer]}\n\n" + autosummary("varopt", group)
    if rest := [name for name in names if name not in grouped]:
        text += "## Others\n\n" + autosummary("varopt", rest)
    return text


def layer_page(layer: str) -> str:
    """The page of what a layer exports beyond the top."""
    text = f"# varopt.{layer}\n\n```{{eval-rst}}\n.. automodule:: varopt.{layer}\n   :no-members:\n```\n\n"
    names = own_names(layer)
    return text + (autosummary(f"varopt.{layer}", list(names)) if names else "All of its names are in `varopt`.\n")


def terms_table() -> str:
    """The table of named terms, for `terms.md`: one row per entry of the registry."""
    registry = importlib.import_module("varopt.terms").REGISTRY
    rows = [
        "| term | definition | parameters | curvature | knots | worst gap at sigma 1 |",
        "|---|---|---|---|---|---|",
    ]
    for name, declaration in sorted(registry.items()):
        term = declaration.build()
        parameters = ", ".join(
            f"`{key}` {domain} (default {declaration.defaults[key]:g})"
            for key, domain in declaration.parameters.items()
        )
        curvature = "neither" if term.curvature.name == "UNKNOWN" else term.curvature.description
        gap, where = (float(x) for x in term.worst_gap(1.0))
        formula, knots = with_words(declaration.formula), len(term.knots)
        rows.append(f"| `{name}` | {formula} | {parameters} | {curvature} | {knots} | {gap:.4f} at {where:g} |")
    return "\n".join(rows) + "\n"


def write_pages(app: Sphinx, config: Config) -> None:
    """Write afresh all that is generated, so that a removed name leaves no orphan behind."""
    generated = Path(app.srcdir) / "reference" / "_generated"
    shutil.rmtree(generated, ignore_errors=True)
    generated.mkdir(parents=True)
    (generated / "varopt.md").write_text(top_page(), encoding="utf-8")
    for layer in LAYERS:
        (generated / f"{layer}.md").write_text(layer_page(layer), encoding="utf-8")
    (generated / "terms-table.txt").write_text(terms_table(), encoding="utf-8")  # included, so not a page of its own

    # `bound` and `Bound` are two pages, also on a file system that ignores case.
    names = [f"varopt.{name}" for name in public(importlib.import_module("varopt"))]
    names += [f"varopt.{layer}.{name}" for layer in LAYERS for name in own_names(layer)]
    seen: set[str] = set()
    for name in sorted(names, reverse=True):  # lower case sorts last, so it keeps the plain file name
        if name.lower() in seen:
            config.autosummary_filename_map[name] = f"{name}-class"
        seen.add(name.lower())


def check_coverage(app: Sphinx, env: BuildEnvironment) -> None:
    """Compare the public names with what the reference describes; a warning is an error in `make docs`."""
    described = set(env.domains["py"].data["objects"])
    modules = {"varopt": public(importlib.import_module("varopt"))}
    modules |= {f"varopt.{layer}": own_names(layer) for layer in LAYERS}
    for module, names in modules.items():
        for name, value in names.items():
            if f"{module}.{name}" not in described:
                logger.warning("the public name %s.%s is missing from the reference", module, name)
            elif (inspect.isclass(value) or inspect.isroutine(value)) and not (value.__doc__ or "").strip():
                logger.warning("the public name %s.%s has no docstring", module, name)


def skip_foreign(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object) -> bool | None:
    """Leave members that another package's class brings to that package's documentation."""
    module = getattr(obj, "__module__", None) or getattr(getattr(obj, "fget", None), "__module__", None) or ""
    return True if module.startswith("sklearn") else None


def refuse_collision(app: Sphinx, pagename: str, templatename: str, context: object, doctree: object) -> None:
    """Warn of a page of ours that one of Sphinx' own, such as its search, is written over."""
    if doctree is None and pagename in app.env.found_docs:
        logger.warning(
            "%s.html is a page that Sphinx writes itself; call this one otherwise", pagename, location=pagename
        )


def mend_backlinks(app: Sphinx, pagename: str, templatename: str, context: dict[str, str], doctree: object) -> None:
    """Lead from the source back to the page of a name, also where one file defines names of two modules.

    The extension viewcode knows one module for each file, and writes that one into all links of its page.
    """
    if pagename.startswith("_modules/") and "body" in context:
        link = r'(objects/(varopt(?:\.\w+)*)\.(\w+?)(?:-class)?\.html)#(?:\w+\.)*?\3((?:\.\w+)?)"'
        context["body"] = re.sub(link, r'\1#\2.\3\4"', context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the hooks."""
    app.connect("config-inited", write_pages)
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("env-check-consistency", check_coverage)
    app.connect("html-page-context", refuse_collision)
    app.connect("html-page-context", mend_backlinks)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
