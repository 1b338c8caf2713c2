"""Sphinx configuration: `make docs` turns every warning into an error."""

import logging
import sys
from pathlib import Path

from numpydoc.xref import DEFAULT_LINKS

from varopt._version import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

logging.getLogger("matplotlib.animation").setLevel(logging.ERROR)  # which writer it took is no news

project = "varopt"
author = "The varopt developers"
copyright = "2026, the varopt developers"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "elsewhere",
    "formulas",
    "gallery",
    "mathml",
    "public_reference",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.py", "gallery/README.txt", "sg_execution_times.rst"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"varopt {release}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["varopt.css"]
viewcode_line_numbers = True

# Single backquotes in docstrings become links wherever the name resolves.
default_role = "autolink"
autosummary_generate = True
autodoc_typehints = "none"
numpydoc_xref_param_type = True  # the types of parameters are links
numpydoc_xref_aliases = {  # numpydoc's own point into glossaries of other projects, which take a download to look up
    **{word: word for word, link in DEFAULT_LINKS.items() if link.startswith(":")},
    "ndarray": "numpy.ndarray",
    "Generator": "numpy.random.Generator",
}
numpydoc_xref_ignore = "all"  # but for these
numpydoc_show_class_members = False  # the class template lists the members itself
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# The gallery: every script of examples/ is run; shown with its output and picture, and offered as script and notebook.
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"(?:^|/)(?!plot_)\w+\.py$",  # those that take minutes: scripts alone, pictured in the guides
    "within_subsection_order": "FileNameSortKey",
    "matplotlib_animations": (True, "jshtml"),
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "doc_module": ("varopt",),
    "reference_url": {"varopt": None},
    "backreferences_dir": None,
    "copyfile_regex": r"nothing^",
    "write_computation_times": False,
}
