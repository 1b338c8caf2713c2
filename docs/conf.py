"""Sphinx configuration: `make docs` turns every warning into an error."""

import sys
from pathlib import Path

from varopt._version import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "varopt"
author = "The varopt developers"
copyright = "2026, the varopt developers"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
    "public_reference",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"varopt {release}"

# Single backquotes in docstrings become links wherever the name resolves.
default_role = "autolink"
autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False  # the class template lists the members itself
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3
