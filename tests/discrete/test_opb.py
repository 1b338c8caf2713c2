"""Pseudo-Boolean problems and their files, against all settings of the bits."""

import itertools

import numpy as np
import pytest

import varopt as vo
from varopt.cli import main
from varopt.discrete import pseudo_boolean, read_opb, write_opb


def random_problem(rng, n=7):
    def literal():
        return int(rng.integers(1, n + 1) * rng.choice([-1, 1]))

    objective = [(float(rng.integers(-9, 10)), (literal(),)) for _ in range(n)]
    objective += [(float(rng.integers(-9, 10)), (literal(), literal(), literal())) for _ in range(4)]
    relations = rng.choice([">=", "<=", "="], size=3, p=[0.45, 0.45, 0.1]).tolist()
    constraints = [
        ([(float(rng.integers(-3, 5)), (literal(),)) for _ in range(4)], relation, float(rng.integers(-1, 3)))
        for relation in relations
    ]
    return objective, constraints, n


def evaluated(terms, x):
    return sum(w * all((x[abs(k) - 1] == 1) == (k > 0) for k in literals) for w, literals in terms)


def is_met(constraint, x):
    terms, relation, side = constraint
    left = evaluated(terms, x)
    return left >= side if relation == ">=" else left <= side if relation == "<=" else left == side


@pytest.mark.parametrize("seed", range(12))
def test_against_all_settings(seed, tmp_path):
    """Solved as it is, and after it was written to a file and read back."""
    objective, constraints, n = random_problem(np.random.default_rng(seed))
    values = [
        evaluated(objective, x) for x in itertools.product((0, 1), repeat=n) if all(is_met(c, x) for c in constraints)
    ]
    write_opb(tmp_path / "p.opb", objective, constraints, n)
    for r in (pseudo_boolean(objective, constraints, n), pseudo_boolean(*read_opb(tmp_path / "p.opb"))):
        if not values:
            assert r.status is vo.Status.INFEASIBLE
            continue
        assert r.status is vo.Status.PROVED
        assert r.fun == r.lower == min(values)
        assert evaluated(objective, r.x) == r.fun
        assert all(is_met(c, r.x) for c in constraints)


def test_a_file_of_several_lines(tmp_path):
    path = tmp_path / "p.opb"
    path.write_text("* #variable= 5 #constraint= 1\n* a comment\nmin:+1 x1\n -2 x2 ~x3;\n+1 x1 +1 x2>=1;\n")
    problem = read_opb(path)
    assert problem.objective == [(1.0, (1,)), (-2.0, (2, -3))]
    assert problem.constraints == [([(1.0, (1,)), (1.0, (2,))], ">=", 1.0)]
    assert problem.variables == 5
    assert pseudo_boolean(*problem).x.size == 5


def test_without_an_objective_any_bits_will_do(tmp_path):
    path = tmp_path / "p.opb"
    path.write_text("+1 x1 +1 x2 = 1 ;\n+1 x2 >= 1 ;\n")
    r = pseudo_boolean(*read_opb(path))
    assert r.x.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("min: +1 x1", "does not end with ';'"),
        ("+1 x1 +1 x2 ;", "must end in '>= number ;'"),
        ("+1 x1 x2 >= 1 ;", "must be linear"),
        ("min: x1 ;", "must begin with its weight"),
        ("min: 1.5 x1 ;", "a weight must be a whole number"),
        ("min: 1 2 x1 ;", "must be followed by a variable"),
        ("min: 99999999999999999999 x1 ;", "at most 2.53"),
        ("min: +1 x2000000000 ;", "must be from x1 to x100000"),
        ("* nothing\n", "no objective and no constraints"),
        ("min: 1 x1 ; max: 1 x2 ;", "this is a second objective"),
        ("min: 1 ~~x1 ;", "must be followed by a variable; got '~~x1'"),
    ],
)
def test_damaged_files_are_told(text, message, tmp_path):
    path = tmp_path / "bad.opb"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_opb(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "at least one variable"),
        (([(1, [0])],), "literals must be whole numbers, not 0"),
        (([(float("nan"), [1])],), "a finite number"),
        (([(1, [3])], (), 2), "variables must be a whole number >= 3"),
        (([], [([(1, [1, 2])], ">=", 1)]), "constraint 1 must be linear"),
        (([], [([(1, [1])], ">", 1)]), "constraint 1 must compare by"),
        (([(1, [3])], (), "many"), "variables must be a whole number >= 3"),
        (([(1, [3])], (), 3.5), "variables must be a whole number >= 3"),
        (([("3", [1])],), "a finite number; got '3'"),
        (([(1, 1)],), "objective must have terms"),
        ((5,), "objective must have terms"),
        (([], [([(1, [1])], ">=")]), "constraint 1 must be terms, a relation and a number"),
    ],
)
def test_bad_problems_are_told(arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        pseudo_boolean(*arguments)
    with pytest.raises(ValueError, match=message):
        write_opb(tmp_path / "p.opb", *arguments)


def test_constants_are_written_as_a_bit_and_its_opposite(tmp_path):
    write_opb(tmp_path / "p.opb", [(3, []), (-1, [2])], [([(2, [1])], "<=", 1)])
    r = pseudo_boolean(*read_opb(tmp_path / "p.opb"))
    assert (r.fun, r.x.tolist()) == (2.0, [0.0, 1.0])


def test_fractions_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="whole numbers in a file of the format OPB"):
        write_opb(tmp_path / "p.opb", [(0.5, [1])])


def test_the_command_line(tmp_path, capsys):
    path = tmp_path / "p.opb"
    path.write_text("min: +1 x1 +2 x2 ;\n+1 x1 +1 x2 >= 1 ;\n")
    assert main(["solve", str(path)]) == 30
    out = capsys.readouterr().out
    assert "o 1\n" in out
    assert "v x1 -x2" in out
    path.write_text("+1 x1 >= 2 ;\n")
    assert main(["solve", str(path)]) == 20
    assert "s UNSATISFIABLE" in capsys.readouterr().out
