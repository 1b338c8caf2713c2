"""The command itself: its manual, its errors and its exit status."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import varopt
from varopt.cli import main
from varopt.experiments import reproduce

COMMANDS = ["reproduce", "fit", "predict", "solve", "report", "bench"]


def refused(arguments, capsys):
    """The one line that a refused command prints."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err.strip()


def test_without_a_command_it_prints_its_manual(capsys):
    assert main([]) == 2
    assert "usage: varopt" in capsys.readouterr().out


def test_the_manual_names_every_command_with_an_example(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    manual = capsys.readouterr().out
    for command in COMMANDS:
        assert f"    {command} " in manual
        assert f"  varopt {command}" in manual
    for part in ("examples:", "files:", "exit status:"):
        assert part in manual
    assert max(map(len, manual.splitlines())) <= 100


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_manual(command, capsys):
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    manual = capsys.readouterr().out
    assert len(manual.splitlines()) > 8
    assert max(map(len, manual.splitlines())) <= 100


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"varopt {varopt.__version__}\n"


def test_an_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit) as left:
        main(["nonsense"])
    assert left.value.code == 2
    assert "invalid choice: 'nonsense'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fit", "data.csv"], "varopt fit: the following arguments are required: --model. See varopt fit --help."),
        (["fit", "data.csv", "--model", "lad", "--cv", "x"], "varopt fit: argument --cv: invalid int value: 'x'. See"),
        (
            ["fit", "data.csv", "--model", "quantile", "--quantile", "0.9"],
            "varopt: unrecognized arguments: --quantile 0.9; a parameter of the model is given as --set quantile=0.9",
        ),
        (
            ["fit", "data.csv", "--model", "lad", "--l1-ratio=1"],
            "varopt: unrecognized arguments: --l1-ratio=1; a param",
        ),
        (["fit", "data.csv", "others.csv", "--model", "lad"], "varopt: unrecognized arguments: others.csv. See varopt"),
        (["predict"], "varopt predict: the following arguments are required: MODEL, DATA. See varopt predict --help."),
        (["report"], "varopt report: the following arguments are required: JOURNAL. See varopt report --help."),
    ],
)
def test_a_wrong_command_gets_one_sentence(arguments, sentence, capsys):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(sentence)
    assert captured.err.count("\n") == 1


def test_reproduce_hands_its_options_on(monkeypatch, tmp_path):
    asked = {}
    monkeypatch.setattr(reproduce, "reproduce", lambda folder, **options: asked.update(options, folder=folder) or 1)
    arguments = [
        "--full",
        "--only",
        "table1",
        "--only",
        "fused",
        "--seed",
        "3",
        "--jobs",
        "2",
        "--output",
        str(tmp_path),
    ]
    assert main(["reproduce", *arguments]) == 1
    assert asked == {
        "folder": tmp_path, "full": True, "only": ["table1", "fused"], "seed": 3, "jobs": 2, "fresh": False,
        "minutes": None,
    }  # fmt: skip


def test_reproduce_refuses_an_unknown_experiment_in_a_sentence(capsys, tmp_path):
    message = refused(["reproduce", "--only", "table9", "--output", str(tmp_path)], capsys)
    assert message.startswith("varopt reproduce: there is no experiment 'table9'; choose from table1, fused")


def test_bench_needs_a_checkout(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "run this at the top of a checkout" in refused(["bench"], capsys)


def test_an_interrupt_ends_with_a_sentence(capsys, monkeypatch):
    def interrupted(folder, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduce, "reproduce", interrupted)
    assert main(["reproduce"]) == 130
    assert capsys.readouterr().err == "varopt reproduce: interrupted.\n"


@pytest.mark.parametrize("module", ["varopt", "varopt.cli"])
def test_the_module_runs_like_the_command(module):
    run = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("varopt ")
    wrong = subprocess.run([sys.executable, "-m", module, "fit"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("varopt fit: ")


@pytest.mark.skipif(sys.platform == "win32", reason="an interrupt is sent otherwise there")
def test_an_interrupt_while_libraries_are_loaded_leaves_no_traceback(tmp_path):
    (tmp_path / "numpy.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(60)\n")
    handler = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # or a background's is none
    code = f"{handler}\nimport sys, _varopt_command; sys.exit(_varopt_command.main())"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    process = subprocess.Popen(
        [sys.executable, "-c", code, "fit"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "loading\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == "varopt: interrupted.\n"


def test_completion_offers_commands_options_and_models():
    pytest.importorskip("argcomplete")

    def offered(line):
        with tempfile.NamedTemporaryFile() as file:
            environment = {
                **os.environ, "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line,
                "COMP_POINT": str(len(line)), "_ARGCOMPLETE_STDOUT_FILENAME": file.name,
            }  # fmt: skip
            subprocess.run(
                [sys.executable, "-m", "varopt.cli"], env=environment, check=False, capture_output=True, timeout=60
            )
            return {word.strip() for word in Path(file.name).read_text().split("\n")}

    assert {"fit", "predict", "reproduce"} <= offered("varopt ")
    assert {"--missing", "--json"} <= offered("varopt fit d.csv --")
    assert {"quantile", "svm"} <= offered("varopt fit d.csv --model ")
