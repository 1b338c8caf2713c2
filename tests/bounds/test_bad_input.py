"""What `bound` refuses, in words that name the argument, what was wrong and what is accepted."""

import numpy as np
import pytest

import varopt as vo
from varopt.families import Categorical


@pytest.fixture
def problem():
    w = vo.Variable(2, name="w")
    return vo.norm1(w), vo.Gaussian([0.1, 0.2], 0.5)


def test_unknown_methods(problem):
    for method in ("exact", "", "closed form", 3):
        with pytest.raises(ValueError, match=r"method must be one of closed_form, quadrature, sampled; got"):
            vo.bound(*problem, method=method)


def test_unknown_options(problem):
    with pytest.raises(ValueError, match=r"method 'closed_form' has no option nodes, seed; accepted here: none\."):
        vo.bound(*problem, nodes=3, seed=0)
    with pytest.raises(ValueError, match=r"method 'quadrature' has no option samples; accepted here: nodes\."):
        vo.bound(*problem, method="quadrature", samples=10)
    with pytest.raises(
        ValueError, match=r"method 'sampled' has no option sample; accepted here: samples, seed, estimator"
    ):
        vo.bound(*problem, method="sampled", sample=10)
    with pytest.raises(ValueError, match="method 'sampled' has no option vectorized"):  # an objective is no callable
        vo.bound(*problem, method="sampled", vectorized=True)
    with pytest.raises(ValueError, match=r"has no option nodes; accepted here: samples, .*, vectorized, gradient"):
        vo.bound(lambda x: 0.0, problem[1], nodes=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 1}, "samples must be an integer of at least 2; got 1"),
        ({"samples": 10.0}, "samples must be an integer of at least 2; got 10.0"),
        ({"samples": True}, "samples must be an integer"),
        ({"samples": 5, "antithetic": True}, "samples must be even and at least 4 for antithetic pairs; got 5"),
        ({"samples": 2, "antithetic": True}, "samples must be even and at least 4 for antithetic pairs; got 2"),
        ({"samples": 16, "quasi": True}, "samples must be at least 32 for quasi-random points; got 16"),
        ({"antithetic": True, "quasi": True}, "antithetic and quasi exclude each other"),
        ({"antithetic": 1}, "antithetic must be True or False; got 1"),
        ({"quasi": "sobol"}, "quasi must be True or False; got 'sobol'"),
        ({"estimator": "pathwise"}, "estimator must be 'score' or 'reparameterized'; got 'pathwise'"),
        ({"seed": "now"}, "seed must be a non-negative integer"),
        ({"seed": -1, "quasi": True}, "seed must be a non-negative integer"),
        ({"seed": 0.5}, "seed must be a non-negative integer"),
    ],
)
def test_sampling_options(options, message, problem):
    with pytest.raises(ValueError, match=message):
        vo.bound(*problem, method="sampled", **options)


def test_quasi_random_points_have_a_largest_dimension():
    w = vo.Variable(21_202)
    with pytest.raises(ValueError, match="quasi needs at most 21201 coordinates; got 21202"):
        vo.bound(vo.norm1(w), vo.Gaussian(np.zeros(21_202), 1.0), method="sampled", quasi=True)


@pytest.mark.parametrize("nodes", [1, 0, -3, 2.5, "many", True])
def test_nodes(nodes, problem):
    for f in (problem[0], lambda x: 0.0):
        with pytest.raises(ValueError, match="nodes must be an integer from 2 to 200; got"):
            vo.bound(f, problem[1], method="quadrature", nodes=nodes)


@pytest.mark.parametrize("form", ["sparse", "", None, 2])
def test_forms_of_the_hessian(form, problem):
    x = vo.Binary(1)
    bounds = [
        vo.bound(*problem),
        vo.bound(*problem, method="sampled", seed=0),
        vo.bound(lambda x: 0.0, vo.Bernoulli([0.5]), method="quadrature"),
        vo.bound(vo.sum_squares(x), vo.Bernoulli([0.5])),
    ]
    for E in bounds:
        with pytest.raises(ValueError, match="form must be one of dense, diagonal, operator; got"):
            E.hessian(form)


@pytest.mark.parametrize("family", [None, [0.0, 0.0], "gaussian", 1.0, vo.Gaussian])
def test_not_a_family(family, problem):
    for f in (problem[0], lambda x: 0.0):
        with pytest.raises(
            ValueError,
            match=r"family must be a varopt family such as vo\.Gaussian\(mean, sigma\), or an object of one's own",
        ):
            vo.bound(f, family)


def test_families_that_do_not_fit():
    w, b = vo.Variable(3, name="w"), vo.Variable(name="b")
    x, c = vo.Binary(3, name="x"), vo.Categorical(2, 3, name="c")
    with pytest.raises(ValueError, match=r"family must have 4 coordinates, one for each of w, b; got 3\."):
        vo.bound(vo.norm1(w) + vo.abs(b), vo.Gaussian(np.zeros(3), 1.0))
    with pytest.raises(ValueError, match=r"family must suit the real variable w: Gaussian, .*; got Bernoulli"):
        vo.bound(vo.norm1(w), vo.Bernoulli([0.5] * 3))
    with pytest.raises(ValueError, match=r"family must suit the binary variable x: Bernoulli; got Gaussian\."):
        vo.bound(vo.sum_squares(x), vo.Gaussian(np.zeros(3), 1.0))
    with pytest.raises(
        ValueError, match=r"family must suit the categorical variable c: families.OneHotCategorical; got Bernoulli"
    ):
        vo.bound(vo.sum_squares(c), vo.Bernoulli([0.5] * 6))
    with pytest.raises(
        ValueError, match=r"categorical variable c: families.OneHotCategorical; got OneHotCategorical of 2 categories\."
    ):
        vo.bound(vo.sum_squares(c), Categorical(np.full((3, 2), 0.5)))
    with pytest.raises(
        ValueError, match=r"binary variable x.*got Gaussian \(for variables of several kinds use vo.Product\)"
    ):
        vo.bound(vo.norm1(w) + vo.sum_squares(x), vo.Gaussian(np.zeros(6), 1.0))


def test_products_that_do_not_fit():
    w, b, v = vo.Variable(3, name="w"), vo.Variable(name="b"), vo.Variable(2, name="v")
    f = vo.norm1(w) + vo.abs(b)
    p, q = vo.Gaussian(np.zeros(3), 1.0), vo.Gaussian(0.0, 1.0)
    with pytest.raises(ValueError, match="Product over just the objective's variables; missing b; not in it: v"):
        vo.bound(f, vo.Product({w: p, v: vo.Gaussian(np.zeros(2), 1.0)}))
    with pytest.raises(ValueError, match=r"; missing b\."):
        vo.bound(f, vo.Product({w: p}))
    with pytest.raises(ValueError, match=r"; not in it: w\."):  # a name is not the variable
        vo.bound(f, vo.Product({w: p, b: q, "w": p}))
    with pytest.raises(ValueError, match=r"family must have 1 coordinates, one for each of b; got 3\."):
        vo.bound(f, vo.Product({w: p, b: p}))


def test_what_is_no_objective(problem):
    _, p = problem
    w = vo.Variable(2, name="w")
    for f in ([1.0, 2.0], "norm1", None, np.zeros(2), {"f": 1.0}):
        with pytest.raises(ValueError, match="an objective must be"):
            vo.bound(f, p)
    for vector in (w, vo.abs(w), np.eye(2) @ w):
        with pytest.raises(
            ValueError, match=r"an objective must be a number, and .* has 2 entries: sum it with vo\.sum"
        ):
            vo.bound(vector, p)
    with pytest.raises(ValueError, match="f must depend on a variable; 3 is constant"):
        vo.bound(3.0, p)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_data_too_large_to_check_at_once_are_checked_by_bound(bad):
    """Over 2^20 entries building an objective does not look at the data; the bound does, whatever the method."""
    X = np.ones((1 << 15, 33))
    X[12345, 6] = bad
    w = vo.Variable(33, name="w")
    f = vo.norm1(X @ w)
    p = vo.Gaussian(np.zeros(33), 1.0)
    for options in ({}, {"method": "quadrature"}, {"method": "sampled", "samples": 4}):
        with pytest.raises(ValueError, match=r"the matrix of w must be finite; got (nan|inf) in row 12345, column 6\."):
            vo.bound(f, p, **options)
    with pytest.raises(ValueError, match="the matrix of w must be finite"):
        vo.sigma_for(f, 0.1)


def test_terms_of_terms_have_no_closed_form():
    w = vo.Variable(2, name="w")
    f = vo.sum(vo.pos(vo.pos(w) + vo.pos(-w) - 1.0))
    p = vo.Gaussian([0.5, -0.5], 1.0)
    with pytest.raises(
        vo.bounds.NoClosedForm,
        match=r"pos\(pos\(w\) \+ pos\(-w\) - 1\).* has no closed form: .* Use method='quadrature'",
    ):
        vo.bound(f, p)
    Q = vo.bound(f, p, method="quadrature")
    same = vo.bound(vo.sum(vo.epsilon_insensitive(w, 1.0)), p)  # max(|w| - 1, 0)
    one_term = vo.bound(vo.sum(vo.pos(vo.abs(w) - 1.0)), p)  # which has one
    np.testing.assert_allclose(one_term.value, same.value, rtol=1e-13)
    np.testing.assert_allclose(Q.value, same.value, rtol=1e-3)
    S = vo.bound(f, p, method="sampled", samples=50_000, seed=0)
    assert abs(S.value - same.value) < 4.0 * S.standard_error
    with pytest.raises(ValueError, match=r"pos\(-w\) - 1\).* has no gradient in closed form"):
        vo.bound(f, p, method="sampled", estimator="reparameterized")


def test_group_norms_of_correlated_entries():
    w = vo.Variable(3, name="w")
    message = r"norm2\(w\) has no closed form: .* independent Gaussians of one variance\. Use method='quadrature'"
    for p in (
        vo.Gaussian(np.zeros(3), [1.0, 1.0, 2.0]),
        vo.Gaussian(np.zeros(3), [[1.0, 0, 0], [0.5, 0.75**0.5, 0], [0, 0, 1.0]]),
        vo.Laplace(np.zeros(3), 1.0),
    ):
        with pytest.raises(vo.bounds.NoClosedForm, match=message):
            vo.bound(vo.norm2(w), p)
    with pytest.raises(vo.bounds.NoClosedForm, match="independent Gaussians of one variance"):
        vo.bound(vo.norm2(np.ones((2, 3)) @ w), vo.Gaussian(np.zeros(3), 1.0))
    with pytest.raises(vo.bounds.NoClosedForm, match="independent Gaussians of one variance"):
        vo.bound(vo.norm2(w[[0, 0, 1]]), vo.Gaussian(np.zeros(3), 1.0))


def test_reparameterised_bits():
    x = vo.Binary(2)
    with pytest.raises(ValueError, match="'reparameterized' needs families over real variables; use estimator='score'"):
        vo.bound(vo.sum_squares(x), vo.Bernoulli([0.5, 0.5]), method="sampled", estimator="reparameterized")


def test_nothing_is_evaluated_before_the_options_are_checked():
    calls = []
    with pytest.raises(ValueError, match="needs a gradient"):
        vo.bound(calls.append, vo.Gaussian([0.0], 1.0), estimator="reparameterized")
    assert not calls
