"""Families of one's own in bounds: whatever samples itself, low rank, skewed noise; and both sides of Theorem 1."""

import numpy as np
import pytest
import scipy.stats as st
from numpy.testing import assert_allclose

import varopt as vo
from varopt.families import AffineFamily


class Mixture:
    """Two unit Gaussians on a line, by a user who knows nothing of varopt."""

    def __init__(self, means=(1.0, -2.0), logit=0.0):
        self.means, self.logit = np.asarray(means, dtype=float), np.asarray(logit, dtype=float)

    @property
    def parameters(self):
        return {"means": self.means, "logit": self.logit}

    def replace(self, **changed):
        return type(self)(**{**self.parameters, **changed})

    @property
    def share(self):
        return 1.0 / (1.0 + np.exp(-self.logit))

    def sample(self, n, rng):
        first = rng.random(n) < self.share
        return (np.where(first, *self.means) + rng.standard_normal(n))[:, None]

    def log_density(self, x):
        peaks = np.exp(-0.5 * (x - self.means) ** 2) / np.sqrt(2.0 * np.pi)
        return np.log(peaks @ np.array([self.share, 1.0 - self.share]))


class Scored(Mixture):
    """The same with a score of its own."""

    def score(self, x):
        peaks = np.exp(-0.5 * (x - self.means) ** 2) * np.array([self.share, 1.0 - self.share])
        owed = peaks / peaks.sum(axis=1, keepdims=True)
        return {"means": owed * (x - self.means), "logit": owed[:, 0] - self.share}


def exact(means, share):
    w = vo.Variable(1)
    parts = [vo.bound(vo.norm1(w), vo.Gaussian([m], 1.0)) for m in means]
    slopes = [p * float(E.gradient["mean"][0]) for p, E in zip((share, 1.0 - share), parts, strict=True)]
    return share * parts[0].value + (1.0 - share) * parts[1].value, slopes, parts[0].value - parts[1].value


@pytest.mark.parametrize("family", [Mixture(), Scored()], ids=["log_density", "score"])
@pytest.mark.parametrize("f", [vo.norm1(vo.Variable(1)), lambda x: abs(x[0])], ids=["objective", "callable"])
def test_whatever_samples_itself_is_a_family(family, f):
    E = vo.bound(f, family, samples=40_000, seed=0)
    value, slopes, by_share = exact(family.means, 0.5)
    assert E.method == "sampled"
    assert E.family is family
    assert abs(E.value - value) < 5.0 * E.standard_error
    error = E.gradient_standard_error
    assert np.all(np.abs(E.gradient["means"] - slopes) < 5.0 * error["means"])
    assert abs(E.gradient["logit"] - by_share / 4.0) < 5.0 * error["logit"]
    assert np.asarray(E.gradient).shape == (3,)
    assert not E.convex


def test_what_a_family_of_ones_own_lacks_is_said():
    class Bare:
        def sample(self, n, rng):
            return rng.random((n, 2))

    w = vo.Variable(2)
    E = vo.bound(vo.norm1(w), Bare(), seed=0)
    assert 0.9 < E.value < 1.1
    with pytest.raises(ValueError, match=r"a gradient under Bare needs its parameters, and score\(x\)"):
        _ = E.gradient
    with pytest.raises(ValueError, match="does not tell its mean"):
        _ = E.gap
    for options, message in (
        ({"antithetic": True}, "antithetic needs a family that knows its mirrored pairs"),
        ({"quasi": True}, "quasi needs a family that maps uniforms"),
        ({"estimator": "reparameterized"}, "reparameterized"),
    ):
        with pytest.raises(ValueError, match=message):
            vo.bound(vo.norm1(w), Bare(), **options)
    for method in ("closed_form", "quadrature"):
        with pytest.raises(vo.bounds.NoClosedForm, match="Use method='sampled'"):
            vo.bound(vo.norm1(w), Bare(), method=method)
    with pytest.raises(ValueError, match="one for each of"):
        vo.bound(vo.norm1(vo.Variable(3)), Bare())


@pytest.mark.parametrize("shape", [(5,), (7, 1), (2, 3, 1)])
def test_samples_of_a_wrong_shape_are_refused(shape):
    class Wrong:
        def sample(self, n, rng):
            return np.zeros(shape)

    with pytest.raises(ValueError, match=r"must return finite numbers of shape \(n, size\)"):
        vo.bound(lambda x: 0.0, Wrong())


def test_low_rank_has_the_closed_form_of_its_covariance(rng):
    A, U = rng.normal(size=(6, 3)), rng.normal(size=(3, 2))
    w = vo.Variable(3)
    f = vo.norm1(A @ w - 1.0) + vo.sum_squares(w)
    mean = rng.normal(size=3)
    E = vo.bound(f, AffineFamily(mean, U))
    whole = vo.bound(f, vo.Gaussian(mean, np.linalg.cholesky(U @ U.T + 1e-14 * np.eye(3))))
    assert_allclose(E.value, whole.value, rtol=1e-6)
    assert E.convex
    step = 1e-6
    for index in np.ndindex(U.shape):
        moved = np.zeros(U.shape)
        moved[index] = step
        ends = [vo.bound(f, AffineFamily(mean, U + sign * moved)).value for sign in (1.0, -1.0)]
        assert_allclose(E.gradient["factor"][index], (ends[0] - ends[1]) / (2.0 * step), rtol=1e-6, atol=1e-7)
    sampled = vo.bound(f, AffineFamily(mean, U), method="sampled", samples=40_000, seed=0, estimator="reparameterized")
    assert abs(sampled.value - E.value) < 5.0 * sampled.standard_error
    assert np.all(np.abs(sampled.gradient["factor"] - E.gradient["factor"])
                  < 5.0 * sampled.gradient_standard_error["factor"])  # fmt: skip
    with pytest.raises(ValueError, match="needs Gaussian or discrete families"):
        sampled.hessian()


@pytest.mark.parametrize("coefficient", [1.0, -2.0])
def test_a_coefficient_that_turns_skewed_noise_round(coefficient):
    w = vo.Variable(1)
    f = vo.sum(vo.hinge(coefficient * w))
    p = AffineFamily([0.3], 0.8, st.gamma(2.0))
    E = vo.bound(f, p, method="quadrature")
    noise = st.gamma(2.0)
    x = 0.3 + 0.8 * (np.linspace(0.0, 60.0, 2_000_001) - noise.mean()) / noise.std()
    q = noise.pdf(np.linspace(0.0, 60.0, 2_000_001))
    step = 60.0 / 2_000_000
    assert_allclose(E.value, np.sum(q * np.maximum(1.0 - coefficient * x, 0.0)) * step, rtol=1e-6)
    assert_allclose(
        vo.bound(lambda v: max(1.0 - coefficient * v[0], 0.0), p, method="quadrature").value, E.value, rtol=1e-4
    )
    for name in ("mean", "factor"):
        h, value = 1e-5, float(np.ravel(p.parameters[name])[0])
        ends = [vo.bound(f, p.replace({name: [value + s] if name == "mean" else value + s}), method="quadrature").value
                for s in (h, -h)]  # fmt: skip
        assert_allclose(np.ravel(E.gradient[name])[0], (ends[0] - ends[1]) / (2.0 * h), rtol=1e-5, atol=1e-8)


def test_theorem_1_to_maximise():
    w = vo.Variable(2)
    E = vo.bound(-vo.norm1(w), vo.Gaussian([0.0, 1.0], 0.5))
    assert E.concave
    assert str(E.concave) == "yes: Theorem 1: f is concave and the family is expectation affine"
    assert not E.convex
    convex = vo.bound(vo.norm1(w), vo.Gaussian([0.0, 1.0], 0.5))
    assert convex.convex
    assert not convex.concave
    affine = vo.bound(3.0 * vo.sum(w), vo.Gaussian([0.0, 1.0], 0.5))
    assert affine.convex
    assert affine.concave
    assert not vo.bound(-vo.norm1(w), Mixture2()).concave
    assert "callable" in str(vo.bound(lambda x: 0.0, vo.Gaussian([0.0], 1.0)).concave)


class Mixture2:
    """Two coordinates of nothing special."""

    def sample(self, n, rng):
        return rng.standard_normal((n, 2))


def test_a_bound_can_be_had_again_and_mirrored():
    w = vo.Variable(2)
    E = vo.bound(vo.norm1(w), vo.Gaussian([0.0, 1.0], 0.5))
    other = vo.Gaussian([2.0, 1.0], 0.1)
    assert E.at(other).value == vo.bound(vo.norm1(w), other).value
    assert E.mirrored().value == -E.value
    S = vo.bound(lambda x: x[0], other, seed=1)
    assert S.mirrored().value == -S.value


def test_a_matrix_that_mixes_skewed_noise_has_no_rule_by_rows():
    w = vo.Variable(2)
    p = AffineFamily([0.1, 0.2], [[0.5, 0.3], [0.0, 0.4]], st.gamma(2.0))
    E = vo.bound(vo.norm1(w), p, method="quadrature")  # by a product rule over the noise
    S = vo.bound(vo.norm1(w), p, method="sampled", samples=40_000, seed=0, estimator="reparameterized")
    assert abs(E.value - S.value) < 5.0 * S.standard_error
    assert_allclose(E.gradient["factor"], S.gradient["factor"], atol=0.02)
    with pytest.raises(vo.bounds.NoClosedForm, match="not elementary"):
        vo.bound(vo.norm1(w), p)
    still = vo.bound(vo.norm1(w), AffineFamily([0.1, 0.2], np.zeros((2, 1))))
    assert_allclose(still.value, 0.3)
