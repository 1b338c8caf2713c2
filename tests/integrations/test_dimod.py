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


def _random_cqm(rng, *, integers=False):
    """Bits and spins, or integers, with one-hot groups, a knapsack and an equality."""
    cqm = dimod.ConstrainedQuadraticModel()
    if integers:
        kinds = [dimod.Integer(f"i{k}", lower_bound=-1, upper_bound=3) for k in range(3)]
    else:
        kinds = [dimod.Binary(f"b{k}") for k in range(6)] + [dimod.Spin(f"s{k}") for k in range(3)]
    n = len(kinds)
    weights = rng.integers(-5, 6, (n, n))
    energy = sum(int(weights[i, i]) * kinds[i] for i in range(n))
    energy += sum(int(weights[i, j]) * kinds[i] * kinds[j] for i in range(n) for j in range(i))
    cqm.set_objective(energy + 2.5)
    cqm.add_constraint(
        sum(int(w) * v for w, v in zip(rng.integers(1, 5, n), kinds, strict=True)) <= 6, label="knapsack"
    )
    cqm.add_constraint(kinds[0] + kinds[1] + kinds[2] >= 1, label="some")
    if not integers:
        cqm.add_constraint(kinds[3] + kinds[4] + kinds[5] == 1, label="one")
    return cqm


@pytest.mark.parametrize("seed", range(4))
def test_constrained_models_against_the_exact_solver(seed):
    cqm = _random_cqm(np.random.default_rng(seed), integers=seed == 3)
    found = VaroptSampler().sample_cqm(cqm, seed=1)
    exact = dimod.ExactCQMSolver().sample_cqm(cqm).filter(lambda d: d.is_feasible).first
    assert found.first.is_feasible
    assert found.first.energy == pytest.approx(exact.energy)
    assert found.info["lower"] <= exact.energy + 1e-9
    assert set(found.first.sample) == set(cqm.variables)


def test_constraints_that_contradict_each_other():
    x = list(dimod.Binaries("abc"))
    cqm = dimod.ConstrainedQuadraticModel()
    cqm.set_objective(sum(x))
    cqm.add_constraint(sum(x) >= 2, label="two")
    cqm.add_constraint(sum(x) <= 1, label="one")
    found = VaroptSampler().sample_cqm(cqm)
    assert len(found) == 0
    assert "no point satisfies" in found.info["status"]


def test_models_that_are_not_taken():
    a, b = dimod.Binaries("ab")
    quadratic, real = dimod.ConstrainedQuadraticModel(), dimod.ConstrainedQuadraticModel()
    quadratic.add_constraint(a * b <= 0, label="both")
    with pytest.raises(ValueError, match="the constraint 'both' is quadratic"):
        VaroptSampler().sample_cqm(quadratic)
    real.set_objective(dimod.Real("r"))
    with pytest.raises(ValueError, match="the variable 'r' is REAL"):
        VaroptSampler().sample_cqm(real)
    with pytest.raises(ValueError, match="'num_reads' is no parameter of this model"):
        VaroptSampler().sample_cqm(quadratic, num_reads=2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_discrete_models_against_the_exact_solver(rng):
    dqm = dimod.DiscreteQuadraticModel()
    for name, cases in (("a", 3), ("b", 4), ("c", 2)):
        dqm.add_variable(cases, label=name)
        dqm.set_linear(name, rng.integers(-5, 6, cases).astype(float))
    for u, v, shape in (("a", "b", (3, 4)), ("b", "c", (4, 2))):
        for i, j in np.ndindex(*shape):
            dqm.set_quadratic_case(u, i, v, j, float(rng.integers(-5, 6)))
    found = VaroptSampler().sample_dqm(dqm)
    exact = dimod.ExactDQMSolver().sample_dqm(dqm).first
    assert found.first.energy == pytest.approx(exact.energy)
    assert found.info["lower"] == pytest.approx(exact.energy)


@pytest.mark.parametrize(("low", "high", "least", "most"), [(0.5, 2.5, 1, 2), (-1.5, -0.5, -1, -1), (-2.5, 0.5, -2, 0)])
def test_bounds_of_integers_between_whole_numbers_are_kept(low, high, least, most):
    for sign, expected in ((1, least), (-1, most)):
        cqm = dimod.ConstrainedQuadraticModel()
        cqm.set_objective(sign * dimod.Integer("k", lower_bound=low, upper_bound=high))
        found = VaroptSampler().sample_cqm(cqm)
        assert found.first.sample["k"] == expected
        assert found.info["lower"] == found.info["upper"] == sign * expected


def test_models_that_leave_no_choice_have_their_one_sample():
    sampler = VaroptSampler()
    k = dimod.Integer("k", lower_bound=3, upper_bound=3)
    cqm = dimod.ConstrainedQuadraticModel()
    cqm.set_objective(2 * k + 1)
    assert sampler.sample_cqm(cqm).first.energy == 7.0
    cqm.add_constraint(k <= 2, label="less")
    assert len(sampler.sample_cqm(cqm)) == 0
    assert len(sampler.sample_cqm(dimod.ConstrainedQuadraticModel())) == 1
    assert len(sampler.sample_dqm(dimod.DiscreteQuadraticModel())) == 1


def test_models_of_another_kind_are_refused_in_a_sentence():
    sampler, bqm = VaroptSampler(), dimod.BinaryQuadraticModel({"a": 1.0}, {}, 0.0, "BINARY")
    with pytest.raises(ValueError, match=r"must be a dimod.ConstrainedQuadraticModel; got BinaryQuadraticModel"):
        sampler.sample_cqm(bqm)
    with pytest.raises(ValueError, match=r"must be a dimod.DiscreteQuadraticModel; got BinaryQuadraticModel"):
        sampler.sample_dqm(bqm)
    cqm = dimod.ConstrainedQuadraticModel()
    cqm.add_variable("INTEGER", "k", lower_bound=0.3, upper_bound=0.7)
    with pytest.raises(ValueError, match="'k' has no whole number within its bounds"):
        sampler.sample_cqm(cqm)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": 1}, "initial_state must have a value for every variable; 'b' has none"),
        ({"a": 1, "b": 0}, "initial_state must be made of -1 and 1; 'b' is 0"),
        ([1, 1], "initial_state must be a sample, a mapping from labels to values; got list"),
    ],
)
def test_a_state_to_start_from_has_a_spin_for_every_variable(state, message):
    with pytest.raises(ValueError, match=message):
        VaroptSampler().sample_ising({"a": 1.0}, {("a", "b"): 1.0}, initial_state=state)


def test_a_model_with_constraints_is_shown_the_way():
    with pytest.raises(ValueError, match=r"must be a dimod\.BinaryQuadraticModel; got Constrained.*sample_cqm"):
        VaroptSampler().sample(dimod.ConstrainedQuadraticModel())
