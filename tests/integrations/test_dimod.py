"""The dimod sampler: dimod's own tests of samplers, and its exact solvers as the reference."""

import unittest

import numpy as np
import pytest

dimod = pytest.importorskip("dimod")

from varopt.integrations.dimod import VaroptSampler  # noqa: E402


@dimod.testing.load_sampler_bqm_tests(VaroptSampler)
class TestWithDimodsOwnTests(unittest.TestCase):
    def test_interfaces(self):
        dimod.testing.assert_sampler_api(VaroptSampler())


@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
def test_models_against_the_exact_solver(vartype):
    bqm = dimod.generators.gnp_random_bqm(9, 0.6, vartype, random_state=4)
    bqm.offset = 2.5
    found = VaroptSampler().sample(bqm, num_reads=3, seed=1)
    exact = dimod.ExactSolver().sample(bqm).first.energy
    assert len(found) == 3
    np.testing.assert_allclose(found.first.energy, exact)
    assert found.info["lower"] <= exact + 1e-9
    assert found.info["upper"] >= exact - 1e-9
    assert found.info["status"] == "No point is better."
    dimod.testing.assert_sampleset_energies(found, bqm, precision=6)


@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
def test_polynomials_against_the_exact_solver(vartype, rng):
    terms = {}
    for degree in (1, 2, 3, 4):
        for _ in range(5):
            terms[tuple("abcdefg"[k] for k in rng.permutation(7)[:degree])] = float(rng.standard_normal())
    polynomial = dimod.BinaryPolynomial({(): 1.5, **terms}, vartype)
    found = VaroptSampler().sample_poly(polynomial)
    exact = dimod.ExactPolySolver().sample_poly(polynomial).first.energy
    np.testing.assert_allclose([found.first.energy, found.info["lower"], found.info["upper"]], exact)
    spins = VaroptSampler().sample_hising({"a": 1.0}, {("a", "b", "c"): -2.0})
    np.testing.assert_allclose(spins.first.energy, -3.0)


def test_start_seed_and_refusals():
    bqm = dimod.BinaryQuadraticModel({"a": 1.0, "b": -1.0}, {("a", "b"): 0.5}, "SPIN")
    found = VaroptSampler().sample(bqm, initial_state={"a": -1, "b": 1}, target=-2.5)
    assert found.first.energy == -2.5
    with pytest.raises(ValueError, match="'sweeps' is no parameter of this sampler; accepted: num_reads"):
        VaroptSampler().sample(bqm, sweeps=3)
    with pytest.raises(ValueError, match="num_reads must be a positive whole number; got 0"):
        VaroptSampler().sample(bqm, num_reads=0)
