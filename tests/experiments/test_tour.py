"""The tour that `make reproduce` prints: it passes, it fails when a number is wrong, and its references are optima."""

import importlib

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp

import varopt as vo
from varopt.experiments import _problems, _references, tour
from varopt.experiments.__main__ import main
from varopt.experiments._page import WIDTH, Page


def test_tour_passes_and_prints_every_section(capsys):
    status = main([])
    printed = capsys.readouterr().out
    assert status == 0
    assert "FAILED" not in printed
    assert printed.count(" held]") == len(tour.SECTIONS)
    assert printed.rstrip().splitlines()[-1].startswith("All ")
    assert max(map(len, printed.splitlines())) <= WIDTH
    assert printed.isascii()  # plain text on any terminal


def test_named_sections_are_printed_alone(capsys):
    assert main(["step", "bits"]) == 0
    printed = capsys.readouterr().out
    assert "1. A step" in printed
    assert "2. Bits" in printed
    assert "lasso" not in printed


def test_an_unknown_section_is_refused_by_name(capsys):
    with pytest.raises(SystemExit) as refused:
        main(["nonsense"])
    assert refused.value.code != 0
    assert "no section 'nonsense'" in capsys.readouterr().err


def test_a_broken_check_fails_with_a_sentence(capsys, monkeypatch):
    def broken():
        page = Page("Broken")
        page.check("two is two", 2 == 2)
        page.equal("one is two", 1.0, 2.0)
        return page.finish()

    monkeypatch.setattr(tour, "SECTIONS", {"broken": broken})
    assert main([]) == 1
    printed = capsys.readouterr().out
    assert "FAILED: one is two (they differ by 1.0e+00)." in printed
    assert "1 of 2 checks failed; the first is in broken: one is two" in printed
    assert "two is two" not in printed


def test_the_printed_sigma_would_fail_the_tour(capsys, monkeypatch):
    corrected = vo.sigma_for
    monkeypatch.setattr(vo, "sigma_for", lambda f, tolerance: 100.0 * corrected(f, tolerance))
    assert main(["sigma"]) == 1
    assert "the corrected sigma keeps the promise" in capsys.readouterr().out


def test_a_wrong_gradient_would_fail_the_tour(capsys, monkeypatch):
    bound = vo.bound

    def wrong(f, family, **options):
        return bound(f, family.replace(sigma=1.001 * family.sigma), **options)

    monkeypatch.setattr(vo, "bound", wrong)
    assert main(["step"]) == 1
    assert "FAILED: dE/dtheta is the paper's" in capsys.readouterr().out


def test_not_a_number_fails_a_check():
    page = Page("NaN")
    page.equal("equal", np.nan, np.nan)
    page.check("below", np.array([0.0, np.nan]) <= 1.0)
    assert page.finish().failures == ("equal (they differ by nan)", "below")


def test_tables_align_text_left_and_numbers_right():
    page = Page("Table")
    page.table({"name": "", "value": ".2f"}, [("a", 1.0), ("longer", 10.0)])
    assert page.finish().lines == ("  name     value", "  a         1.00", "  longer   10.00", "")


# The references against Clarabel on the explicit programmes ----------------------------------------------------------


def programme(hessian, linear, rows, limits, equalities=0):
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_rel = settings.tol_gap_abs = settings.tol_feas = 1e-11
    cones = [clarabel.ZeroConeT(equalities), clarabel.NonnegativeConeT(limits.size - equalities)]
    upper = sp.triu(hessian, format="csc")
    solution = clarabel.DefaultSolver(upper, linear, sp.csc_array(rows), limits, cones, settings).solve()
    assert solution.status == clarabel.SolverStatus.Solved
    return solution.obj_val


def test_lasso_reference(rng):
    p = _problems.lasso(rng, 8)
    eye, none = sp.eye_array(8), sp.csr_array((8, 8))
    optimum = p.y @ p.y + programme(
        sp.block_diag([2.0 * p.X.T @ p.X, none]),
        np.r_[-2.0 * p.X.T @ p.y, np.full(8, p.penalty)],
        sp.block_array([[eye, -eye], [-eye, -eye]]),
        np.zeros(16),
    )
    np.testing.assert_allclose(_references.lasso_optimum(p.X, p.y, p.penalty), optimum, rtol=1e-9)


def test_kernel_machine_reference(rng):
    p = _problems.kernel_machine(rng, 14, 3)
    optimum = -programme(
        sp.csc_array(0.5 * p.K),
        -np.ones(14),
        sp.vstack([p.y[None, :], sp.eye_array(14), -sp.eye_array(14)]),
        np.r_[0.0, np.full(14, p.cost), np.zeros(14)],
        equalities=1,
    )
    lower, upper = _references.kernel_machine_optimum(p.K, p.y, p.cost)
    assert lower <= upper
    np.testing.assert_allclose([lower, upper], optimum, rtol=1e-5)


def test_quantile_reference(rng):
    p = _problems.quantile(rng, 30, 0.3)
    optimum = -programme(  # max y'u  subject to  X'u = 0, level - 1 <= u <= level
        sp.csc_array((30, 30)),
        -p.y,
        sp.vstack([p.X.T, sp.eye_array(30), -sp.eye_array(30)]),
        np.r_[np.zeros(4), np.full(30, p.level), np.full(30, 1.0 - p.level)],
        equalities=4,
    )
    np.testing.assert_allclose(_references.quantile_optimum(p.X, p.y, p.level), optimum, rtol=1e-9)


def test_box_relaxation_is_above_the_maximum_and_exact_where_the_bits_do_not_interact(rng):
    for _ in range(10):
        p = _problems.binary_quadratic(rng, 6)
        assert max(p.objective(x) for x in _references.all_states(6)) <= _references.box_relaxation(p.A, p.b)
    assert _references.box_relaxation(np.zeros((3, 3)), np.array([1.0, -2.0, 3.0])) == pytest.approx(4.0)


def test_importing_the_command_runs_nothing(capsys):
    importlib.reload(importlib.import_module("varopt.experiments.__main__"))
    assert capsys.readouterr().out == ""
