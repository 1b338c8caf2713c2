"""Choices, proved by partial states: every bound is below the optimum, and the last one is the optimum."""

import itertools

import numpy as np
import pytest

import varopt as vo
from varopt.optimize import minimize_energy
from varopt.solvers.discrete import Energy
from varopt.solvers.discrete.proofs import are_branched, partial_states


def choices(rng, widths, whole):
    size = sum(widths)
    draw = rng.integers(-9, 10, (size, size)).astype(float) if whole else rng.standard_normal((size, size))
    return Energy.quadratic_form(draw, draw[0], 0.5, np.array(widths))


def groups_of(widths):
    ends = np.cumsum(widths)
    return [np.arange(end - width, end) for end, width in zip(ends, widths, strict=True)]


def all_states(widths):
    return np.stack([np.concatenate([np.eye(w)[k] for w, k in zip(widths, chosen, strict=True)])
                     for chosen in itertools.product(*map(range, widths))], axis=1)  # fmt: skip


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("widths", [(2, 2), (3, 4, 2, 5), (2, 3, 2, 3, 2), (7,)])
def test_every_step_is_below_the_optimum(rng, widths, whole):
    energy = choices(rng, widths, whole)
    optimum = energy.value(all_states(widths)).min()
    slack = 0.999 * energy.granularity
    steps = list(partial_states(energy, groups_of(widths), energy_matrix(energy), np.inf, slack=slack))
    assert all(a.lower <= b.lower for a, b in itertools.pairwise(steps))
    assert steps[-1].lower <= optimum
    assert energy.round_up(steps[-1].lower) == pytest.approx(optimum, abs=1e-9)
    best = [step.x for step in steps if step.x is not None][-1]
    assert energy.value(best) == pytest.approx(optimum)


def energy_matrix(energy):
    matrix = energy.quadratic
    return np.array(matrix.toarray() if hasattr(matrix, "toarray") else matrix)


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9])
def test_choices_are_proved(rng, scale):
    """Too many for elimination: graphs of choices that are all neighbours."""
    widths = (4,) * 12
    energy = choices(rng, widths, whole=False)
    energy = Energy(0.0, scale * energy.linear, scale * energy.quadratic, (), energy.widths)
    r = minimize_energy(energy, time_limit=60.0)
    assert r.status is vo.Status.PROVED
    assert r.method.endswith(("branch-and-bound", "elimination"))


def test_a_tour_of_choices(rng):
    """A city for each stop, with a penalty for a city that is visited twice; against all tours."""
    n = 7
    places = rng.uniform(0.0, 1000.0, (n, 2))
    distance = np.rint(np.linalg.norm(places[:, None] - places[None], axis=2))
    stop = vo.Categorical(n, n, name="stop")
    x = [[stop[t, c] for c in range(n)] for t in range(n)]
    tour = sum(distance[a, b] * x[t][a] * x[(t + 1) % n][b]
               for t in range(n) for a in range(n) for b in range(n) if a != b)  # fmt: skip
    twice = sum((sum(x[t][c] for t in range(n)) - 1) ** 2 for c in range(n))
    r = vo.minimize(tour + float(distance.max()) * twice, time_limit=60.0)
    tours = ((0, *rest) for rest in itertools.permutations(range(1, n)))
    assert r.fun == min(sum(distance[p[i], p[i - 1]] for i in range(n)) for p in tours)
    assert r.status is vo.Status.PROVED


def test_bits_beside_choices_are_left_to_others(rng):
    assert not are_branched(choices(rng, (1, 3), whole=True), [np.arange(1, 4)])
