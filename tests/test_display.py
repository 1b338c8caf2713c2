"""How results show themselves: in a few lines, in an explanation, in a notebook, and while they are computed."""

import math
import sys
import types
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import varopt as vo
from varopt import certificates
from varopt._display import Panels, Progress, bracket_words, duration  # words and drawings by themselves
from varopt.discrete import max_cut


@pytest.fixture
def median(rng):
    X = rng.standard_normal((200, 3))
    w, b = vo.Variable(3, name="w"), vo.Variable(name="b")
    return vo.norm1(X @ [1.0, -2.0, 0.0] + rng.standard_t(2, 200) - X @ w - b)


@pytest.fixture
def shown(median, rng):
    """One of everything that shows itself."""
    w, lam = vo.Variable(4, name="w"), vo.Parameter(name="lam")
    A = rng.standard_normal((30, 4))
    found = vo.minimize(lambda x: float(x @ x), vo.Box(-1, 1, size=2), budget=60, seed=0)
    return {
        "result": vo.minimize(median),
        "maximum": vo.maximize(-median),
        "cut": max_cut(np.ones((5, 5)) - np.eye(5)),
        "unbounded": vo.minimize(-vo.sum(w)),
        "objective": median,
        "path": vo.path(vo.sum_squares(rng.standard_normal(30) - A @ w) + lam * vo.norm1(w), lam, [9.0, 3.0, 1.0]),
        "black box": found,
        "search": found.search,
        "fresh search": vo.Search(vo.Box(-1, 1, size=2), seed=0),
        "certificate": vo.minimize(median).certificate,
        "sampled": found.certificate,
        "none": certificates.NoCertificate(-math.inf, 3.0),
    }


def test_a_result_is_a_few_lines_without_its_fine_print(median):
    r = vo.minimize(median)
    lines = str(r).splitlines()
    assert lines[0] == "OPTIMAL: The certified gap is within the tolerance."
    assert [line.split()[0] for line in lines[1:]] == ["value", "optimum", "x", "method"]
    assert "assumes" not in str(r)
    assert "sigma" not in str(r)
    assert "w = [" in lines[3]
    assert "b = " in lines[3]


def test_the_explanation_has_the_proof_and_its_assumption(median):
    r = vo.minimize(median)
    text = r.explain()
    assert r.certificate.rests_on in text
    assert type(r.certificate).__name__ in text
    assert f"It assumes that {r.certificate.assumption}." in text or "It assumes nothing." in text
    assert f"[{r.lower:.15g}, {r.upper:.15g}]" in text


def test_what_is_proved_is_said_once():
    r = max_cut(np.ones((5, 5)) - np.eye(5))
    assert str(r).startswith("PROVED: No point is better.\n")
    assert "optimum  6, exactly" in str(r)
    assert "sigma" not in r.explain()


def test_a_perfect_fit_has_no_share_of_its_value(rng):
    X, w = rng.standard_normal((40, 3)), vo.Variable(3, name="w")
    r = vo.minimize(vo.norm1(X @ np.ones(3) - X @ w))
    assert r.fun < 1e-9
    assert "of the value" not in r.explain()


def test_where_there_is_no_optimum_no_bracket_is_shown(shown):
    r = shown["unbounded"]
    assert "optimum  none, as there is no end to it" in str(r)
    assert "<svg" not in r._repr_html_().split("<details>")[0]
    assert "sigma" not in r.explain()


def test_an_unknown_side_is_no_infinity(shown):
    for name in ("unbounded", "black box"):
        assert "inf" not in str(shown[name]).split("method")[0], name
        assert "[-inf" not in shown[name].explain()
        assert "gap is inf" not in shown[name].explain()


@pytest.mark.parametrize(
    ("lower", "upper", "words"),
    [
        (1060.0, 1122.0, "between 1060 and 1122"),
        (3.0, 3.0, "3, exactly"),
        (math.pi, math.pi, "3.14159265359, to 16 digits"),
        (1.0, 1.0 + 2e-12, "1, to 11 digits"),
        (1.0, 1.00002, "between 1 and 1.00002"),
        (0.0, 2.5e-14, "between 0 and 2.5e-14"),
        (-math.inf, 2.0, "at most 2"),
        (2.0, math.inf, "at least 2"),
        (-math.inf, math.inf, "nothing is known of it"),
        (0.0, 0.0, "0, exactly"),
    ],
)
def test_brackets_in_words(lower, upper, words):
    assert bracket_words(lower, upper) == words


def test_durations_in_words():
    assert [duration(t) for t in (0.00123, 0.0312, 0.45, 0.9999, 2.41, 200.0)] == [
        "1.2 ms", "31 ms", "450 ms", "1 s", "2.4 s", "3 min",
    ]  # fmt: skip


def test_everything_shows_itself_in_a_notebook(shown):
    for name, thing in shown.items():
        html = thing._repr_html_()
        tree = ET.fromstring(html)  # well-formed, so that nothing after it is swallowed
        assert "nan" not in html.split("<details>")[0], name
        if name in ("result", "maximum", "cut", "certificate"):
            assert tree.find(".//svg") is not None, name  # the bracket, drawn
        if name in ("result", "cut", "black box"):
            assert len(tree.findall(".//details")) == 2, name  # the history and the proof, folded away


def test_an_objective_is_escaped():
    w = vo.Variable(2, name="<b>")
    assert "&lt;b&gt;" in vo.norm1(w)._repr_html_()


def test_plots_are_not_echoed(median):
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    axes = vo.minimize(median).plot()
    assert isinstance(axes, Panels)
    assert axes.shape == (2, 2)
    assert repr(axes) == "<2 x 2 axes>"
    assert axes._ipython_display_() is None  # a notebook calls this instead of printing
    axes[0, 0].set_title("still axes")
    assert axes.figure is axes[0, 0].figure  # as one picture has it, to be saved
    assert all(step == round(step) for step in axes[1, 0].get_xticks())
    plt.close("all")


def test_one_picture_is_not_echoed_either(shown):
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    for name in ("path", "cut"):
        axes = shown[name].plot()
        assert axes._ipython_display_() is None, name
        assert axes.get_xlabel()
    plt.close("all")


def test_the_curves_of_a_path_are_called_as_their_variables(shown):
    assert "w[0], w[1], w[2], w[3]: " in shown["path"]._repr_html_()


# -- Progress ---------------------------------------------------------------------------------------------------------


def test_progress_in_a_file_is_its_last_line(median, capsys):
    vo.minimize(median, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("  OPTIMAL: gap ")
    assert "inf" not in lines[0]


def test_progress_of_a_path_is_one_line_too(rng, capsys):
    w, lam, seen = vo.Variable(4, name="w"), vo.Parameter(name="lam"), []
    f = vo.norm1(rng.standard_normal(60) - rng.standard_normal((60, 4)) @ w) + lam * vo.norm1(w)
    path = vo.path(f, lam, [9.0, 3.0, 1.0], progress=True, callback=seen.append)
    assert capsys.readouterr().err == f"  {path!r}\n"
    assert "3 of 3 within the tolerance" in repr(path)
    assert "largest gap" in repr(path)
    assert seen


class Terminal:
    """Standard error that says it is a terminal, and keeps what is written."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return True


def test_progress_in_a_terminal_is_one_line_that_ends_with_the_gap(median, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    vo.minimize(median, progress=True)
    assert terminal.text.count("\n") == 1
    assert terminal.text.endswith("\n")
    assert "inf" not in terminal.text
    assert "gap" in terminal.text.rsplit("\r", 1)[-1]


def test_progress_in_a_notebook_updates_one_output(median, monkeypatch):
    shown = []

    class Handle:
        def update(self, content, raw):
            shown[-1] = content["text/plain"]

    def display(content, raw, display_id):
        shown.append(content["text/plain"])
        return Handle()

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    vo.minimize(median, progress=True)
    assert len(shown) == 1
    assert shown[0].startswith("OPTIMAL: gap ")


def test_no_progress_unless_asked_for(capsys):
    line = Progress(False)
    line.show("something")
    line.end("something")
    assert capsys.readouterr().err == ""
