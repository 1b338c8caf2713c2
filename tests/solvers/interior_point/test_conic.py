"""Cones: what their scaling and their algebra are by definition; the method against Clarabel on random problems."""

import numpy as np
import pytest

import varopt as vo
from fuzz.oracle import clarabel_point
from fuzz.problems import random_problem
from varopt.composite import composite
from varopt.solvers import METHODS
from varopt.solvers.interior_point._cones import Cones  # scalings against their definition


@pytest.fixture
def cones():
    return Cones(3, [2, 4, 3])


def inside(cones, rng):
    a = rng.standard_normal(cones.one.size)
    a[:3] = rng.uniform(0.1, 3.0, 3)
    for part in cones.parts:
        a[part.start] = np.linalg.norm(a[part][1:]) + rng.uniform(0.1, 2.0)
    return a


@pytest.mark.parametrize("seed", range(5))
def test_the_scaling_takes_both_points_to_one(cones, seed):
    rng = np.random.default_rng(seed)
    s, z = inside(cones, rng), inside(cones, rng)
    scaling = cones.scaling(s, z)
    np.testing.assert_allclose(scaling.apply(z), scaling.inverse(s), rtol=1e-10)
    other = rng.standard_normal(s.size)
    np.testing.assert_allclose(scaling.inverse(scaling.apply(other)), other, rtol=1e-9)
    np.testing.assert_allclose(scaling.apply(other) @ s, other @ scaling.apply(s), rtol=1e-9)  # symmetric
    np.testing.assert_allclose(scaling.inverse(np.c_[other, s])[:, 1], scaling.inverse(s))
    assert cones.scaling(-s, z) is None


@pytest.mark.parametrize("seed", range(5))
def test_division_undoes_the_product(cones, seed):
    rng = np.random.default_rng(seed)
    a, b = inside(cones, rng), rng.standard_normal(cones.one.size)
    np.testing.assert_allclose(cones.times(a, cones.divide(a, b)), b, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(cones.times(cones.one, b), b)


@pytest.mark.parametrize("seed", range(10))
def test_the_longest_step_ends_on_the_boundary(cones, seed):
    rng = np.random.default_rng(seed)
    a, step = inside(cones, rng), rng.standard_normal(cones.one.size)
    t = cones.longest(a, step)

    def least(b):
        return min([*b[:3], *(b[part.start] - np.linalg.norm(b[part][1:]) for part in cones.parts)])

    if np.isfinite(t) and t < 1e300:
        assert least(a + t * step) == pytest.approx(0.0, abs=1e-9 * max(1.0, t))
        assert least(a + 0.999 * t * step) > 0.0
    assert least(cones.inside(-a)) > 0.0


def drawn(seed):
    return random_problem(np.random.default_rng(seed), extreme=False)


WITH_NORMS = [seed for seed in range(60) if composite(drawn(seed).build()).groups]


@pytest.mark.parametrize("seed", WITH_NORMS[:14])
def test_small_problems_with_norms(seed):
    """One in ten of which Newton's method on the bound did not end within 1.5 s."""
    problem = drawn(seed)
    form = composite(problem.build())
    r = vo.minimize(problem.build(), method="conic", time_limit=20.0)
    assert not METHODS["conic"].refusal(form)
    if r.status is vo.Status.UNBOUNDED:
        return
    assert r.status in (vo.Status.OPTIMAL, vo.Status.ASSUMED)
    status, x = clarabel_point(problem)
    value = float(problem.value(x)[0])
    assert r.lower <= value * (1 + 1e-12) + 1e-12
    if status == "Solved":
        assert r.fun == pytest.approx(value, rel=1e-6, abs=1e-8)
