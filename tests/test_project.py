"""The project's promises to a newcomer: what is written is run, and what is stated twice agrees."""

import ast
import doctest
import importlib
import io
import math
import os
import re
import runpy
import subprocess
import sys
import textwrap
import tokenize
import tomllib
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction
from numbers import Number
from pathlib import Path

import numpy as np
import pytest

import varopt
from tests.browser import needs_chromium
from varopt._version import __version__  # it is stated once

ROOT = Path(__file__).resolve().parents[1]
LENIENT = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "benchmarks").glob("*.md")])
OPTIONAL_MODULES = {
    "dimod",
    "jax",
    "matplotlib",
    "optuna",
    "torch",
}  # what the extras bring; a page that needs one skips where it is absent


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def shown_blocks(text):
    """The Python of a page, and what it is shown to print: the block of text right below, if there is one."""
    pattern = r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?"
    return re.findall(pattern, text, flags=re.MULTILINE | re.DOTALL)


def prints(shown, printed):
    """Whether a page shows what was printed, but for what differs between machines: digits that are proved, times."""
    shown = re.sub(r"(?m)^(  method +).*$", r"\1...", re.sub(r"to \d+ digits", "to ... digits", shown))
    return doctest.OutputChecker().check_output(shown, printed, LENIENT)


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def page_id(page):
    return page.relative_to(ROOT / "docs").as_posix()


PAGES_WITH_SNIPPETS = [page for page in PAGES if blocks(page.read_text("utf-8"), "python")]


@pytest.mark.parametrize("page", PAGES_WITH_SNIPPETS, ids=page_id)
def test_snippets_run_in_order_and_print_what_is_shown(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # a snippet that writes a file leaves nothing behind
    namespace = {"__name__": "snippet"}
    for number, (block, shown) in enumerate(shown_blocks(page.read_text("utf-8")), start=1):
        capsys.readouterr()
        try:
            exec(compile(block, f"{page.name}, snippet {number}", "exec"), namespace)
        except ModuleNotFoundError as error:
            if error.name in OPTIONAL_MODULES:
                pytest.skip(f"{page.name} needs {error.name}, which is not installed")
            raise
        printed = capsys.readouterr().out
        assert not shown or prints(shown, printed), printed


README_SNIPPETS = [(snippet, shown) for snippet, shown in shown_blocks(read("README.md")) if shown]


@pytest.mark.parametrize(("snippet", "shown"), README_SNIPPETS)
def test_readme_snippet_runs_alone_and_prints_what_is_shown(snippet, shown, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "README.md", "exec"), {"__name__": "snippet"})
    printed = capsys.readouterr().out
    assert prints(shown, printed), printed


def test_every_readme_snippet_shows_its_output():
    assert len(README_SNIPPETS) == len(blocks(read("README.md"), "python")) >= 5


def test_pages_name_no_folder_beside_the_project():
    for page in [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "examples").glob("*.py")]:
        assert "shared/" not in page.read_text("utf-8"), page.name


def test_readme_has_a_snippet_and_both_set_up_commands():
    readme = read("README.md")
    assert len(blocks(readme, "python")) >= 2
    commands = "".join(blocks(readme, "sh")).splitlines()
    assert {"make test", "make reproduce"} <= set(commands)


def test_continuous_integration_runs_the_readme_command():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "make test" in script.read_text("utf-8").splitlines()


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_relative_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))
    made = {"gallery/index.rst", *(f"gallery/{example.stem}.rst" for example in (ROOT / "examples").glob("*.py"))}
    missing = [t for t in targets if "://" not in t and t not in made and not (page.parent / t).exists()]
    assert not missing


@pytest.mark.parametrize(
    "module",
    [
        "varopt", "varopt.terms", "varopt.model", "varopt.families", "varopt.bounds", "varopt.nn", "varopt.places",
        "varopt.certificates", "varopt.solvers", "varopt.solvers.lasso", "varopt.optimize",
    ],
)  # fmt: skip
def test_public_door(module):
    door = importlib.import_module(module)
    # the order that the linter keeps too: constants, classes, functions, each alphabetically
    assert list(door.__all__) == sorted(door.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert len(set(door.__all__)) == len(door.__all__)
    assert [name for name in door.__all__ if not hasattr(door, name)] == []
    assert set(door.__all__) <= set(dir(door))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        door.nonsense  # noqa: B018


def test_import_loads_no_optional_or_heavy_package():
    heavy = ["sklearn", "torch", "jax", "matplotlib", "pandas"]
    code = f"import sys, varopt; print([name for name in {heavy} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_import_loads_what_minimize_runs_and_no_more():
    later = [
        "families",
        "bounds._methods",
        "certificates._recession",
        "optimize._path",
        "optimize.anywhere",
        "places._together",
        "solvers.augmented_lagrangian",
        "solvers.descent._lbfgs",
        "solvers.discrete",
        "solvers.interior_point._interior_point",
        "solvers.lasso._block_descent",
        "solvers.nonconvex",
        "solvers.reductions._working_set",
        "solvers.signals._knots",
    ]
    code = f"import sys, varopt; print([n for n in {later} if f'varopt.{{n}}' in sys.modules], 'html' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["[]", "False"]


def test_ordinary_first_solves_load_nothing():
    """What they run is there once varopt is imported: a first solve takes about as long as the next."""
    code = """
        import sys, numpy as np, varopt as vo
        X = np.random.default_rng(0).standard_normal((200, 5))
        y, w, b, loaded = X.sum(axis=1) + np.sin(9.0 * X[:, 0]), vo.Variable(5), vo.Variable(), []
        for f in (
            vo.sum(vo.pinball(y - X @ w - b, 0.7)),
            vo.sum_squares(w) + vo.sum(vo.hinge(np.sign(y) * (X @ w + b))),
            vo.sum_squares(y - X @ w) + 5.0 * vo.norm1(w),
        ):
            before = set(sys.modules)
            assert vo.minimize(f).status is vo.Status.OPTIMAL
            loaded += sorted(name for name in set(sys.modules) - before if name.startswith("varopt"))
        print(loaded)
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_version_is_stated_once_and_repeated_faithfully():
    assert varopt.__version__ == __version__
    assert f"\nversion: {__version__}\n" in read("CITATION.cff")
    dated = rf"(?m)^## \[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d$"
    heading = r"(?m)^## \[Unreleased\]$" if "dev" in __version__ else dated
    assert re.search(heading, read("CHANGELOG.md"))


def test_package_is_typed_and_licensed():
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert project["license"] == "BSD-3-Clause"
    assert read("LICENSE").startswith("BSD 3-Clause License")
    assert (ROOT / "src" / "varopt" / "py.typed").is_file()


def tool(name):
    return runpy.run_path(str(ROOT / "tools" / f"{name}.py"))


def test_floors_are_the_oldest_versions_that_are_allowed():
    project = tomllib.loads(read("pyproject.toml"))["project"]
    lines = tool("floors")["floors"](project)
    for requirement in project["dependencies"]:
        name, _, version = requirement.partition(">=")
        assert f"{name}=={version}.*" in lines


def test_broken_links_of_the_site_are_found(tmp_path):
    (tmp_path / "a.html").write_text('<a href="b.html#there">x</a><a href="b.html#not">y</a><a href="c.html">z</a>')
    (tmp_path / "b.html").write_text('<h1 id="there">B</h1><script src="https://example.org/x.js"></script>')
    assert tool("check_links")["broken"](tmp_path) == [
        "a.html: b.html#not has no such heading",
        "a.html: c.html is not there",
        "b.html: https://example.org/x.js is loaded from another host",
    ]


@needs_chromium
def test_what_a_reader_would_trip_over_is_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<!doctype html><meta name="viewport" content="width=device-width"><p style="width: 600px">wide</p>'
        '<p style="color: #ccc">pale</p><script>console.error("wrong")</script>'
        "<style>@media (prefers-color-scheme: dark) { body { background: #111; color: #222 } }</style>"
    )
    (tmp_path / "b.html").write_text("<!doctype html><p>Nothing is wrong here.</p>")
    command = [sys.executable, ROOT / "tools" / "check_pages.py", tmp_path]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    lines = run.stdout.splitlines()
    assert run.returncode == 1
    assert "a.html, desk, light: pale, 1.6: p pale" in lines
    assert "a.html, desk, dark: pale, 1.2: p wide" in lines
    assert "a.html, telephone, light: the page is 608 wide" in lines
    assert "a.html: console: ['wrong']" in lines
    assert not any(line.startswith("b.html") for line in lines)


def test_what_is_published_has_no_link_into_a_checkout():
    hook = tomllib.loads(read("pyproject.toml"))["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = read("README.md")
    for rule in hook["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    assert all(link.startswith("https:") for link in re.findall(r"\]\(([^)]*)\)", text))
    assert "arxiv.org" in text


def is_module(name):
    path = ROOT.joinpath("src", *name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imports(path):
    """The modules that a file imports from the package, as dotted names."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "varopt":
            yield node.module
            yield from filter(is_module, (f"{node.module}.{name.name}" for name in node.names))
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] == "varopt")


def reached_into(package, imported):
    """The package whose private part a file of `package` imports from outside; empty where there is none."""
    parts = imported.split(".")
    for i, part in enumerate(parts[2:], start=2):
        home = ".".join(parts[:i])
        if part.startswith("_") and not f"{package}.".startswith(f"{home}."):
            return home
    return ""


@pytest.mark.parametrize(
    ("package", "imported", "home"),
    [
        ("varopt.solvers.lasso", "varopt.solvers.lasso._sides", ""),
        ("varopt.solvers.lasso", "varopt.solvers._method", ""),
        ("varopt.solvers", "varopt._linalg", ""),
        ("varopt.solvers", "varopt.solvers.lasso._sides", "varopt.solvers.lasso"),
        ("varopt.solvers.lassos", "varopt.solvers.lasso._sides", "varopt.solvers.lasso"),
        ("varopt.learn", "varopt.terms._norm", "varopt.terms"),
    ],
)
def test_what_counts_as_reaching_into_a_package(package, imported, home):
    assert reached_into(package, imported) == home


def private_imports(path):
    """What a test imports from private modules: the line, the package whose door it passes, the names, the reason."""
    text = path.read_text("utf-8")
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        parts = (getattr(node, "module", None) or "").split(".")
        private = next((i for i, part in enumerate(parts) if part.startswith("_")), 0)
        if isinstance(node, ast.ImportFrom) and parts[0] == "varopt" and private:
            written = lines[node.lineno - 1 : node.end_lineno]
            above = lines[node.lineno - 2].lstrip().startswith("#")
            names = {name.name for name in node.names}
            yield node.lineno, ".".join(parts[:private]), names, above or any("#" in line for line in written)


def test_tests_come_through_public_doors_or_say_why_not():
    """A private formula may be tested as such, where a comment says so; what a door hands out is taken there."""
    wrong = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for line, door, names, reason in private_imports(path):
            handed = names & set(getattr(importlib.import_module(door), "__all__", ())) - {"__version__"}
            if handed or not reason:
                wrong.append(f"{path.relative_to(ROOT)}:{line} {sorted(handed) or 'gives no reason'}")
    assert not wrong


def test_packages_are_entered_by_their_doors():
    source = ROOT / "src"
    wrong = [
        f"{path.relative_to(source)} imports {imported}"
        for path in sorted(source.rglob("*.py"))
        for imported in imports(path)
        if reached_into(".".join(path.relative_to(source).parent.parts), imported)
    ]
    assert not wrong


SOURCES = sorted((ROOT / "src").rglob("*.py"))
NAMESPACE = {"Decimal": Decimal, "Fraction": Fraction, "float": float, "math": math, "np": np}


def is_numeric(value):
    """Whether a value is a number, or is made of numbers."""
    if isinstance(value, dict):
        return is_numeric(tuple(value.values()))
    if isinstance(value, tuple | list | np.ndarray):
        return all(map(is_numeric, value))
    return isinstance(value, Number) and not isinstance(value, bool)


def constants(source):
    """The constants of a module that are numbers, or made of numbers, and what they are."""
    known = dict(NAMESPACE)
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign):
            continue
        target = node.targets[0]
        names = [name.id for name in ast.walk(target) if isinstance(name, ast.Name)]
        if all(re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name) for name in names):
            try:
                value = eval(compile(ast.Expression(node.value), "constant", "eval"), {"__builtins__": {}}, known)
            except (AttributeError, NameError, TypeError):  # it is made of other things than numbers
                continue
            values = value if isinstance(target, ast.Tuple) else (value,)
            found = {name: v for name, v in zip(names, values, strict=True) if is_numeric(v)}
            known |= found
            yield from found.items()


def test_constants_of_a_module_are_found():
    source = "_A = 2.0**-3\n_B, C = 1, (_A, 3)\n_D = {8: -1}\n_NAME = 'x'\n_OTHER = unknown(3)\nlower = 4\n"
    assert dict(constants(source)) == {"_A": 0.125, "_B": 1, "C": (0.125, 3), "_D": {8: -1}}


def test_no_name_of_a_constant_has_two_values():
    values, files = defaultdict(set), defaultdict(list)
    for path in SOURCES:
        for name, value in constants(path.read_text("utf-8")):
            values[name].add(repr(value))
            files[name].append(str(path.relative_to(ROOT / "src")))
    assert not {name: files[name] for name, several in values.items() if len(several) > 1}


def cited(text):
    """The keys of the bibliography in a text: ``[SB12, eq. 7]``, ``[Hub81, Owe07]``."""
    for inside in re.findall(r"\[([A-Z][A-Za-z]*\d\d[a-z]?(?:[,;] [^\]]*)?)\]", text):
        yield from re.findall(r"(?:^|[,;]\s)([A-Z][A-Za-z]*\d\d[a-z]?)(?!\w)", inside)


def test_lines_that_are_an_equation_say_which():
    """Where a comment is a formula with a key, it has a number: the paper's, or one from the top of its file."""
    numbered = r"\b(eq|alg|algorithm|sect|section|ch|chapter|theorem|table|figure|appendix)\b|\(\d+\)"
    lines = [(path.name, comment) for path in SOURCES if "varopt" in path.parts for comment in comments(path)]
    assert any(cited(comment) and "[H16, eq. 47]" in comment for _, comment in lines)
    bare = [f"{name}: {text}" for name, text in lines if any(cited(text)) and re.search(r"(?<![=<>])=|<-|>=|<=", text)]
    assert [line for line in bare if not re.search(numbered, line)] == []


def comments(path):
    """The comments of a file, those of neighbouring lines as one."""
    found, last = [], -1
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] == last + 1 and token.line.lstrip().startswith("#"):
                found[-1] += token.string
            else:
                found.append(token.string)
            last = token.start[0] if token.line.lstrip().startswith("#") else -1
    return found


def test_citations_have_their_entry_in_the_bibliography():
    assert list(cited("[SB12, eq. 7]; [Hub81, Owe07], x[0], [Ha09b]")) == ["SB12", "Hub81", "Owe07", "Ha09b"]
    keys = set(re.findall(r"(?m)^\[([\w-]+)\]$", read("docs/bibliography.md")))
    files = [*SOURCES, *PAGES]
    missing = {f"{path.name}: {key}" for path in files for key in cited(path.read_text("utf-8")) if key not in keys}
    assert not missing


@pytest.mark.parametrize(
    ("name", "advice"),
    [("maximum", r"vo\.max\(a, b\)"), ("Problem", r"vo\.minimize\(f, subject_to="), ("exp", "piecewise polynomials")],
)
def test_names_of_other_packages_are_told_what_to_write(name, advice):
    with pytest.raises(AttributeError, match=f"no attribute '{name}': .*{advice}"):
        getattr(varopt, name)
    assert not hasattr(varopt, "no_such_name")
