"""The gallery: every example runs alone, draws, and says what to install where Matplotlib is missing."""

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))


def test_there_are_enough_of_them():
    assert len(EXAMPLES) >= 14


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_draws(example, tmp_path, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn = []

    def show():
        for number in plt.get_fignums():
            plt.figure(number).canvas.draw()  # as a window would
            drawn.append(number)

    monkeypatch.chdir(tmp_path)  # what an example writes, it leaves here
    monkeypatch.setattr(plt, "show", show)
    try:
        runpy.run_path(str(example), run_name="__main__")
    finally:
        plt.close("all")
    assert drawn


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_says_what_to_install(example, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(SystemExit, match=re.escape("pip install 'varopt[plot]'")):
        runpy.run_path(str(example), run_name="__main__")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_needs_no_data_of_others(example):
    text = example.read_text("utf-8")
    assert not re.search(r"fetch_|open\(|read_csv|loadtxt|np\.load\(", text)
