"""The project's promises to a newcomer: what is written is run, and what is stated twice agrees."""

import importlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import varopt
from varopt._version import __version__

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OPTIONAL_MODULES = {
    "dimod",
    "matplotlib",
    "optuna",
}  # what the extras bring; a page that needs one skips where it is absent


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


PAGES_WITH_SNIPPETS = [page for page in PAGES if blocks(page.read_text("utf-8"), "python")]


@pytest.mark.parametrize("page", PAGES_WITH_SNIPPETS, ids=lambda page: page.name)
def test_snippets_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a snippet that writes a file leaves nothing behind
    namespace = {"__name__": "snippet"}
    for number, block in enumerate(blocks(page.read_text("utf-8"), "python"), start=1):
        try:
            exec(compile(block, f"{page.name}, snippet {number}", "exec"), namespace)
        except ModuleNotFoundError as error:
            if error.name in OPTIONAL_MODULES:
                pytest.skip(f"{page.name} needs {error.name}, which is not installed")
            raise


def test_readme_has_a_snippet_and_both_set_up_commands():
    readme = read("README.md")
    assert len(blocks(readme, "python")) >= 2
    commands = "".join(blocks(readme, "sh")).splitlines()
    assert {"make test", "make reproduce"} <= set(commands)


def test_continuous_integration_runs_the_readme_command():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "make test" in script.read_text("utf-8").splitlines()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not missing


@pytest.mark.parametrize("module", ["varopt", "varopt.terms", "varopt.model", "varopt.families", "varopt.bounds"])
def test_public_door(module):
    door = importlib.import_module(module)
    # the order that the linter keeps too: constants, classes, functions, each alphabetically
    assert list(door.__all__) == sorted(door.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert len(set(door.__all__)) == len(door.__all__)
    assert [name for name in door.__all__ if not hasattr(door, name)] == []


def test_import_loads_no_optional_or_heavy_package():
    heavy = ["sklearn", "torch", "jax", "matplotlib", "pandas"]
    code = f"import sys, varopt; print([name for name in {heavy} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_version_is_stated_once_and_repeated_faithfully():
    assert varopt.__version__ == __version__
    assert f"\nversion: {__version__}\n" in read("CITATION.cff")
    heading = "## [Unreleased]" if "dev" in __version__ else f"## [{__version__}]"
    assert heading in read("CHANGELOG.md").splitlines()


def test_package_is_typed_and_licensed():
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert project["license"] == "BSD-3-Clause"
    assert read("LICENSE").startswith("BSD 3-Clause License")
    assert (ROOT / "src" / "varopt" / "py.typed").is_file()
