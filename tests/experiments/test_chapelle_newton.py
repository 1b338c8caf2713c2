"""Chapelle's Newton method: right where it can be evaluated, and stopped where the paper says."""

import numpy as np
from numpy.testing import assert_allclose

from varopt.experiments import problems, rivals


def test_it_minimises_the_huber_objective_where_points_stay_in_the_quadratic_part(rng):
    machine = problems.kernel_machine(rng, 40, 4)
    h, seen = 2.0, []
    start = 0.01 * machine.start
    point, why = rivals.chapelle_newton(machine.K, machine.y, machine.cost, start, seen.append, h=h)
    assert why == ""
    gradient = rivals.huber_objective(machine.K, machine.y, machine.cost, point, h)[1]
    assert_allclose(gradient, 0.0, atol=1e-6 * machine.cost * np.abs(machine.K).max())
    values = [rivals.huber_objective(machine.K, machine.y, machine.cost, at, h)[0] for at in (start, *seen)]
    assert np.all(np.diff(values) <= 1e-9 * values[0])


def test_without_a_point_in_the_quadratic_part_there_is_no_step(rng):
    machine = problems.kernel_machine(rng, 40, 4)
    point, why = rivals.chapelle_newton(machine.K, machine.y, machine.cost, machine.start, lambda _: None, h=1e-9)
    assert "the row of b in the Hessian is zero" in why
    assert np.array_equal(point, machine.start)


def test_it_stops_when_told(rng):
    machine = problems.kernel_machine(rng, 40, 4)
    seen = []

    def stop(point):
        seen.append(point)
        raise StopIteration

    rivals.chapelle_newton(machine.K, machine.y, machine.cost, 0.01 * machine.start, stop, h=2.0)
    assert len(seen) == 1
