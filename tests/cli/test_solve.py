"""``varopt solve``: formats by content, answers as SAT solvers print them, statuses, JSON."""

import gzip
import io
import json
import os

import numpy as np
import pytest

from varopt import discrete
from varopt.cli import main

FORMULA = "c four clauses, one of which fails\np cnf 3 4\n1 2 0\n-1 2 0\n1 -2 0\n-1 -2 0\n"


@pytest.fixture
def solve(tmp_path, capsys):
    def run(text, *options, name="problem"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        status = main(["solve", str(path), *options])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_clauses(solve):
    status, out, _ = solve(FORMULA)
    assert status == 30
    assert "\no 1\ns OPTIMUM FOUND\nv " in out
    assert len(out.splitlines()[-1].split()) == 4  # v and three variables


def test_hard_clauses_that_contradict(solve):
    status, out, _ = solve("h 1 0\nh -1 0\n3 2 0\n")
    assert status == 20
    assert "s UNSATISFIABLE" in out
    assert "\nv " not in out
    assert "\no " not in out  # no value, nor a bracket of it, where no point is allowed
    assert "lies between" not in out


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("3 3\n1 2 1\n2 3 1\n1 3 1\n", "gset", 2.0),
        ("c a triangle\np edge 3 3\ne 1 2\ne 2 3\ne 1 3\n", "dimacs", 2.0),
        ("p qubo 0 2 2 1\n0 0 -1\n1 1 -1\n0 1 3\n", "qubo", -1.0),
    ],
)
def test_formats_are_seen_from_the_content_also_packed(solve, text, kind, value):
    status, out, _ = solve(gzip.compress(text.encode()), "--json")
    record = json.loads(out)
    assert (status, record["format"], record["value"], record["status"]) == (30, kind, value, "PROVED")


def test_maximise_edges_and_output(solve, tmp_path):
    status, out, _ = solve(
        "p qubo 0 2 2 1\n0 0 -1\n1 1 -1\n0 1 3\n", "--maximize", "--output", str(tmp_path / "r.json")
    )
    assert status == 30
    assert json.loads((tmp_path / "r.json").read_text())["value"] == 1.0
    assert "o 1\n" in out
    status, out, _ = solve("0 1\n1 2\n", "--format", "edges")
    assert (status, out.splitlines()[-1] in ("v 010", "v 101")) == (30, True)


def test_what_is_not_proved_says_so(solve, rng):
    edges = [f"{i} {j} 1" for i in range(1, 161) for j in range(i + 1, 161) if rng.random() < 0.2]
    status, out, _ = solve("\n".join([f"160 {len(edges)}", *edges]), "--time-limit", "0.2")
    assert status == 10
    assert "s SATISFIABLE" in out


def test_a_target_ends_the_search_and_a_seed_repeats_it(solve, rng):
    edges = [f"{i} {j} 1" for i in range(1, 161) for j in range(i + 1, 161) if rng.random() < 0.2]
    text = "\n".join([f"160 {len(edges)}", *edges])
    half = len(edges) // 2
    status, out, _ = solve(text, "--target", str(half), "--seed", "3", "--json")
    first = json.loads(out)
    assert status == 10
    assert half <= first["value"] <= first["upper"]
    assert "target" in first["message"]
    again = json.loads(solve(text, "--target", str(half), "--seed", "3", "--json")[1])
    assert (again["x"], again["value"]) == (first["x"], first["value"])


def test_the_target_of_clauses_is_a_weight_that_is_not_satisfied_as_it_is_printed(solve):
    rng = np.random.default_rng(0)
    clauses = [(rng.choice([-1, 1], 3) * (rng.permutation(60)[:3] + 1)).tolist() for _ in range(500)]
    text = "\n".join(["p cnf 60 500", *(" ".join(map(str, [*clause, 0])) for clause in clauses)])
    status, out, _ = solve(text, "--target", "13", "--json")
    record = json.loads(out)
    assert status == 10
    assert "target" in record["message"]
    assert record["value"] >= 487


def test_what_a_library_writes_past_python_is_no_part_of_the_answer(tmp_path, monkeypatch, capfd):
    """HiGHS tells of some steps on the descriptor of standard output."""
    solved = discrete.max_cut

    def loud(*arguments, **options):
        os.write(1, b"from elsewhere\n")
        return solved(*arguments, **options)

    monkeypatch.setattr(discrete, "max_cut", loud)
    (tmp_path / "graph").write_text("3 1\n1 2 1\n")
    status = main(["solve", str(tmp_path / "graph"), "--json"])
    told = capfd.readouterr()
    assert (status, json.loads(told.out)["value"]) == (30, 1.0)
    assert told.err == "from elsewhere\n"


def test_progress_is_for_a_terminal_that_did_not_ask_for_quiet(solve, monkeypatch):
    assert solve(FORMULA)[2] == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert solve(FORMULA, "--quiet")[2] == ""
    assert solve(FORMULA)[2] != ""


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("what is this\n", (), "the format cannot be seen"),
        ("p max 3 4\n", (), "'p max' is no format"),
        ("3 1\n1 2 x\n", (), "line 2: a weight must be a finite number"),
        ("3 1\n1 2 1\n", ("--maximize",), "--maximize is for files of the format qubo"),
        ("3 1\n1 2 1\n", ("--time-limit", "-1"), "time_limit must be a positive number"),
    ],
)
def test_bad_files_and_options(solve, text, options, message):
    status, out, err = solve(text, *options)
    assert (status, out) == (2, "")
    assert message in err


def test_standard_input_and_pipes(solve, tmp_path, capsys, monkeypatch):
    answer = solve(FORMULA, "--json")[1]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(FORMULA.encode()))))
    assert main(["solve", "-", "--json"]) == 30
    read = json.loads(capsys.readouterr().out)
    assert read["file"] == "standard input"
    assert read["x"] == json.loads(answer)["x"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert main(["solve", "-"]) == 2
    assert "standard input: there is nothing in it" in capsys.readouterr().err


def test_a_file_that_is_not_there_and_an_output_that_cannot_be_written_are_told_first(solve, tmp_path, capsys):
    assert main(["solve", str(tmp_path / "none.cnf")]) == 2
    assert capsys.readouterr().err == f"varopt solve: {tmp_path / 'none.cnf'}: No such file or directory.\n"
    status, out, err = solve(FORMULA, "--output", str(tmp_path / "absent" / "r.json"))
    assert (status, out) == (2, "")  # no answer was computed, and lost
    assert err.startswith(f"varopt solve: {tmp_path / 'absent' / 'r.json'}: there is no folder")
