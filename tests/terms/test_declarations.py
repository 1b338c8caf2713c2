"""Bad declarations are refused with a sentence that names the argument; good ones cannot be changed afterwards."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tests.terms.cases import NAMED, PARAMETRIC, by_row, label
from varopt import terms
from varopt._domains import Domain  # examples are drawn from domains
from varopt.terms import REGISTRY, PiecewisePolynomial, piecewise

LINES = [[0.0], [0.0, 1.0]]  # max(z, 0)
PARAMETERS = [(declaration, name) for declaration in PARAMETRIC for name in declaration.parameters]


def is_a_sentence(message: str) -> bool:
    return message.endswith(".") and len(message.split()) >= 4


def refused(call, *, argument: str, kind: type[Exception] = ValueError) -> str:
    """The message of the refusal, which begins with the argument."""
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert message.startswith(argument), message
    assert is_a_sentence(message), message
    return message


# -- Knots and pieces --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "knots", "pieces", "says"),
    [
        ("knots", [1.0, 0.0], [[0.0], [1.0], [2.0]], "increasing; got 1.0 before 0.0"),
        ("knots", [1.0, 1.0], [[0.0], [1.0], [2.0]], "increasing"),
        ("knots", [np.array([0.0, 1.0]), 0.5], [[0.0], [1.0], [2.0]], "increasing"),
        ("knots", [np.nan], LINES, "finite; got nan"),
        ("knots", [np.inf], LINES, "finite; got inf"),
        ("knots", [np.array([0.0, -np.inf])], LINES, "finite; got -inf at index 1"),
        ("knots", ["zero"], LINES, "real numbers"),
        ("knots", [1j], LINES, "real numbers"),
        ("knots", [np.zeros((2, 2))], LINES, "one-dimensional"),
        ("knots", [np.array([])], LINES, "one-dimensional"),
        ("knots", 0.0, LINES, "sequence; got 0.0"),
        ("knots", "0", LINES, "sequence; got '0'"),
        ("knots", [1e200], [[0.0], [0.0, 0.0, 1.0]], "overflow"),
        ("knots", [np.array([1.0, 2.0])], [[0.0], [np.array([1.0, 2.0, 3.0])]], "one length; got lengths [2, 3]"),
        ("pieces", [0.0], [[0.0]], "one more than knots; got 1 pieces for 1 knots"),
        ("pieces", [0.0], [[0.0], [1.0], [2.0]], "one more than knots; got 3 pieces for 1 knots"),
        ("pieces", [], [], "one more than knots"),
        ("pieces", [0.0], [[0.0], []], "at least one coefficient; write [0.0]"),
        ("pieces", [0.0], [[0.0], [0.0] * 9 + [1.0]], "degree at most 8; got 9"),
        ("pieces", [0.0], [[np.nan], [1.0]], "finite; got nan"),
        ("pieces", [0.0], [[0.0], [1.0, np.inf]], "finite; got inf"),
        ("pieces", [0.0], [[0.0], 1.0], "sequence of coefficient sequences"),
        ("pieces", [0.0], [[0.0], "z"], "sequence of coefficient sequences"),
        ("pieces", [0.0], 1.0, "sequence; got 1.0"),
        ("pieces", [0.0], [[0.0], [None]], "real numbers"),
    ],
)
def test_bad_pieces_are_refused(argument, knots, pieces, says):
    assert says in refused(lambda: piecewise(knots, pieces), argument=argument)


@pytest.mark.parametrize(
    ("argument", "make"),
    [
        ("centres", lambda: PiecewisePolynomial((0.0,), ((0.0,), (1.0,)), centres=(0.0,))),
        ("centres", lambda: PiecewisePolynomial((0.0,), ((0.0,), (1.0,)), centres=(0.0, np.nan))),
        ("at_knot", lambda: PiecewisePolynomial((0.0,), ((0.0,), (1.0,)), at_knot="middle")),
        ("pieces", lambda: PiecewisePolynomial((0.0,), ((0.0,),))),
        ("pieces", lambda: PiecewisePolynomial((0.0,), ((0.0,), ()))),
        ("knots", lambda: PiecewisePolynomial((0.0, 0.0), ((0.0,), (1.0,), (2.0,)))),
    ],
)
def test_bad_parts_of_a_term_are_refused(argument, make):
    refused(make, argument=argument)


def test_what_may_look_bad_and_is_good():
    assert piecewise([0.0], [[0.0], [0.0] * 8 + [1.0]]).degree == 8
    assert piecewise([0.0], [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]).degree == 1  # zeros at the end are no degree
    assert piecewise([0.0], [[0.0], [0.0] + [1.0] + [0.0] * 20]).degree == 1
    assert piecewise((), ((1.0, 2.0),)).value(3.0) == 7.0
    assert piecewise(np.array([0.0]), np.array([[0.0, 0.0], [0.0, 1.0]])).value(3.0) == 3.0
    assert piecewise([0], [[0], [0, 1]]).value(3) == 3.0  # integers
    assert piecewise([-1e300], LINES).value(0.0) == 0.0


@given(
    knots=st.lists(st.integers(-8, 8), min_size=1, max_size=4, unique=True).map(sorted),
    values=st.lists(st.lists(st.integers(-3, 3), min_size=1, max_size=4), min_size=5, max_size=5),
    z=st.integers(-40, 40),
)
@settings(max_examples=50)
def test_piecewise_means_what_it_says(knots, values, z):
    # However it moves the pieces to other centres inside.
    term = piecewise([float(t) for t in knots], [[float(c) for c in p] for p in values[: len(knots) + 1]])
    x = z / 4
    coefficients = values[sum(x >= t for t in knots)]
    expected = sum(c * x**m for m, c in enumerate(coefficients))
    assert math.isclose(term.value(x), expected, rel_tol=1e-12, abs_tol=1e-10)
    for knot, jump, left, right in zip(knots, term.jumps, values, values[1:], strict=False):
        exact = sum(c * knot**m for m, c in enumerate(right)) - sum(c * knot**m for m, c in enumerate(left))
        assert jump[0] == exact


def test_a_jump_of_rounding_is_no_jump():
    # 0.1 * 3 != 0.3 in floating point, but whoever writes this means a continuous term.
    term = piecewise([0.3], [[0.0], [-0.1 * 3, 1.0]])
    assert term.is_continuous
    assert not piecewise([0.3], [[0.0], [-0.3 + 1e-9, 1.0]]).is_continuous


# -- Parameters of named terms -----------------------------------------------------------------------------------------


def outside(domain: Domain) -> list[float]:
    """Values that the domain refuses: beyond each end, each open end, and what is no finite number."""
    bad = [np.nan, np.inf, -np.inf]
    if math.isfinite(domain.low):
        bad += [np.nextafter(domain.low, -np.inf), domain.low - 1.0] + [domain.low] * domain.low_open
    if math.isfinite(domain.high):
        bad += [np.nextafter(domain.high, np.inf), domain.high + 1.0] + [domain.high] * domain.high_open
    return bad


def edges(domain: Domain) -> list[float]:
    """The extreme values that it allows, or numbers close to them."""
    low = np.nextafter(domain.low, np.inf) if domain.low_open else domain.low
    high = np.nextafter(domain.high, -np.inf) if domain.high_open else domain.high
    return [float(end) for end in (low, high) if math.isfinite(end)] + [domain.typical[0], domain.typical[1]]


@pytest.mark.parametrize(("declaration", "name"), PARAMETERS, ids=lambda value: getattr(value, "name", value))
def test_parameters_outside_their_domain_are_refused(declaration, name):
    domain = declaration.parameters[name]
    for bad in outside(domain):
        for value in (bad, np.array([domain.typical[1], bad])):
            message = refused(lambda value=value: declaration.build(**{name: value}), argument=name)
            assert f"{bad:g}" in message
    for bad in ("1", None, 1j, [[1.0], [2.0, 3.0]]):
        refused(lambda bad=bad: declaration.build(**{name: bad}), argument=name)


@pytest.mark.parametrize(("declaration", "name"), PARAMETERS, ids=lambda value: getattr(value, "name", value))
def test_edges_of_domains_work(declaration, name):
    others = {"low": -9.0, "high": 9.0} if declaration.name == "clip" else {}
    z = np.linspace(-3.0, 3.0, 13)
    for value in edges(declaration.parameters[name]):
        term = declaration.build(**{**others, name: value})
        assert term.parameters[name] == value
        for sigma in (1e-3, 1.0, 1e3):
            assert np.all(np.isfinite(np.stack(term.derivatives(z, sigma))))
        assert np.all(np.isfinite(term.value(z)))
        assert term.curvature is not None


@pytest.mark.parametrize("declaration", REGISTRY.values(), ids=lambda d: d.name)
def test_unknown_parameters_are_refused(declaration):
    message = refused(lambda: declaration.build(tau=0.5), argument=f"{declaration.name} takes", kind=TypeError)
    assert message.endswith("got tau.")
    for name in declaration.parameters:
        assert name in message
    refused(
        lambda: declaration.build(*[1.0] * (len(declaration.parameters) + 1)), argument=declaration.name, kind=TypeError
    )
    refused(lambda: declaration.validate(tau=0.5), argument=declaration.name, kind=TypeError)
    for name, value in list(declaration.defaults.items())[:1]:
        message = refused(lambda: declaration.build(value, **{name: value}), argument=declaration.name, kind=TypeError)  # noqa: B023
        assert f"got {name} twice" in message


def test_parameters_by_position_and_by_name():
    assert terms.mcp(2.0, 4.0).parameters == {"lam": 2.0, "gamma": 4.0}
    assert terms.mcp(2.0, gamma=4.0).parameters == terms.mcp(gamma=4.0, lam=2.0).parameters
    assert repr(terms.mcp(2.0, 4.0)) == "mcp(lam=2.0, gamma=4.0)"
    assert repr(terms.pinball(np.array([0.25, 0.5]))) == "pinball(level=...)"


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: terms.clip(1.0, 1.0), "low must be less than high; got low=1.0, high=1.0."),
        (lambda: terms.clip(2.0, -1.0), "low must be less than high"),
        (lambda: terms.clip(np.array([0.0, 2.0]), 1.0), "low must be less than high"),
        (lambda: terms.clip(high=-1.0), "low must be less than high"),
        (lambda: terms.epsilon_insensitive(np.array([0.0, 1.0])), "epsilon must be zero for all rows or for none"),
        (lambda: terms.huber(1e200), "delta must give huber finite knots and coefficients"),
        (lambda: terms.huber(np.array([1.0, 1e200])), "delta must give huber finite knots and coefficients"),
        (lambda: terms.mcp(1e10, 1e300), "lam and gamma must give mcp finite knots and coefficients"),
        (lambda: terms.scad(np.array([1.0, 2.0]), np.array([3.0, 4.0, 5.0])), "lam and a must have one length"),
        (lambda: terms.huber(np.ones((2, 2))), "delta must be a number, or an array with one entry per row"),
        (lambda: terms.huber(np.array([])), "delta must be a number, or an array with one entry per row"),
    ],
)
def test_parameters_that_do_not_fit_together(make, names):
    refused(make, argument=names)


def test_epsilon_of_zero_is_abs():
    z = np.linspace(-3.0, 3.0, 13)
    for zero in (0.0, np.zeros(13)):
        term = terms.epsilon_insensitive(zero)
        assert term.name == "epsilon_insensitive"
        assert term.knots == (0.0,)
        assert_array_equal(term.value(z), np.abs(z))
        assert_array_equal(term.derivatives(z, 0.5), terms.abs_().derivatives(z, 0.5))


# -- Terms do not change -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("term", NAMED, ids=label)
def test_attributes_cannot_be_set(term):
    for field in dataclasses.fields(term):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(term, field.name, getattr(term, field.name))


@pytest.mark.parametrize("declaration", PARAMETRIC, ids=lambda d: d.name)
def test_arrays_inside_cannot_be_changed(declaration):
    together, singles = by_row(declaration)
    z = np.linspace(-2.0, 2.0, len(singles))
    before = together.value(z)
    arrays = [c for c in (*together.knots, *together.centres, *sum(together.pieces, ())) if isinstance(c, np.ndarray)]
    arrays += list(together.parameters.values())
    assert arrays
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 17.0
    # Nor from outside, through the arrays that it was built from.
    given_ = {name: np.array(value) for name, value in together.parameters.items()}
    rebuilt = declaration.build(**given_)
    for array in given_.values():
        array[...] = 17.0
    assert_array_equal(rebuilt.value(z), before)


def test_the_registry_cannot_be_changed():
    with pytest.raises(TypeError):
        REGISTRY["mine"] = REGISTRY["abs"]
    with pytest.raises(TypeError):
        REGISTRY["pinball"].parameters["level"] = Domain()
    with pytest.raises(dataclasses.FrozenInstanceError):
        REGISTRY["abs"].name = "mine"


@pytest.mark.parametrize("term", [*NAMED, by_row(PARAMETRIC[0])[0]], ids=label)
def test_copies_and_pickles(term):
    z = np.linspace(-2.0, 2.0, term.rows or 9)
    for other in (copy.copy(term), copy.deepcopy(term), pickle.loads(pickle.dumps(term))):
        assert repr(other) == repr(term)
        assert_array_equal(other.derivatives(z, 0.5), term.derivatives(z, 0.5))


def test_public_names_exist():
    assert sorted(terms.__all__) == sorted(set(terms.__all__))
    for name in terms.__all__:
        assert hasattr(terms, name)
    assert {d.build.__name__ for d in REGISTRY.values()} <= set(terms.__all__)
