"""The group lasso against a second-order cone programme written out by hand, and against its limit cases."""

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp

from varopt import learn

LABELS = np.array(["b", "a", "b", "c", "c", "c", "a"])


@pytest.fixture
def data(rng):
    X = rng.standard_normal((50, 7)) * np.geomspace(0.3, 3.0, 7)
    y = 2.0 + X @ np.where(LABELS == "c", 1.0, 0.0) + rng.standard_normal(50)
    return X, y, rng.uniform(0.1, 2.0, 50)


def cone_optimum(X, y, share, alpha, labels, weights, ratio):
    """Over (w, b, t, u) with ||w_g|| <= t_g and |w| <= u."""
    names, (n, p) = np.unique(labels), X.shape
    m = len(names)
    A = np.hstack([X, np.ones((n, 1))])
    size = p + 1 + m + p
    P = np.zeros((size, size))
    P[: p + 1, : p + 1] = A.T @ (share[:, None] * A)
    cost = np.concatenate([-A.T @ (share * y), alpha * (1 - ratio) * np.asarray(weights), np.full(p, alpha * ratio)])
    variable = np.eye(size)
    w, t, u = variable[:p], variable[p + 1 : p + 1 + m], variable[p + 1 + m :]
    rows, cones = [w - u, -w - u], [clarabel.NonnegativeConeT(2 * p)]
    for k, name in enumerate(names):
        rows += [-t[k : k + 1], -w[labels == name]]
        cones.append(clarabel.SecondOrderConeT(1 + int((labels == name).sum())))
    G = np.vstack(rows)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    solver = clarabel.DefaultSolver(
        sp.csc_matrix(np.triu(P)), cost, sp.csc_matrix(G), np.zeros(len(G)), cones, settings
    )
    found = np.asarray(solver.solve().x)[: p + 1]
    # At Clarabel's coefficients: its own value lacks the sum of y^2 / 2, of which a good fit leaves few digits.
    norms = [np.linalg.norm(found[:p][labels == name]) for name in names]
    penalty = (1 - ratio) * np.dot(weights, norms) + ratio * np.abs(found[:p]).sum()
    return 0.5 * share @ (y - A @ found) ** 2 + alpha * penalty


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("ratio", [0.0, 0.4])
@pytest.mark.parametrize("weights", [None, [0.0, 1.0, 3.0]])
@pytest.mark.parametrize("alpha", [1e-3, 0.3, 2.0])
def test_the_cone_programme(alpha, weights, ratio, container, data):
    X, y, weight = data
    model = learn.GroupLasso(alpha, groups=LABELS, group_weight=weights, l1_ratio=ratio)
    model.fit(container(X), y, sample_weight=weight)
    known = np.sqrt([2.0, 2.0, 3.0]) if weights is None else weights
    optimum = cone_optimum(X, y, weight / weight.sum(), alpha, LABELS, known, ratio)
    assert model.objective_ == pytest.approx(optimum, rel=1e-7)
    assert model.lower_bound_ <= optimum * (1 + 1e-8)
    assert model.gap_ <= 1e-9 * model.objective_
    residual = y - model.predict(X)
    norms = [np.linalg.norm(model.coef_[name == LABELS]) for name in "abc"]
    penalty = (1 - ratio) * np.dot(known, norms) + ratio * np.abs(model.coef_).sum()
    stated = 0.5 * np.average(residual**2, weights=weight) + alpha * penalty
    assert model.objective_ == pytest.approx(stated, rel=1e-9)


def test_groups_vanish_as_a_whole(data):
    X, y, _ = data
    model = learn.GroupLasso(0.5, groups=LABELS).fit(X, y)
    gone = [np.all(model.coef_[name == LABELS] == 0.0) for name in "abc"]
    some = [np.any(model.coef_[name == LABELS] == 0.0) for name in "abc"]
    assert gone == some == [True, True, False]


def test_groups_of_one_are_the_lasso(data):
    X, y, _ = data
    lasso = learn.Lasso(0.1).fit(X, y)
    for groups in (None, np.arange(7)):
        np.testing.assert_allclose(learn.GroupLasso(0.1, groups=groups).fit(X, y).coef_, lasso.coef_, atol=1e-7)


def test_what_is_wrong_with_groups_is_said(data):
    X, y, _ = data
    with pytest.raises(ValueError, match=r"groups must be a label per feature, 7; got an array of shape \(3,\)"):
        learn.GroupLasso(groups=[0, 1, 1]).fit(X, y)
    for lists in ([[0, 1], [2, 3, 4, 5, 6]], [["a", "b"], ["c"]]):
        with pytest.raises(
            ValueError, match=r"a label per feature, 7, such as \['a', 'a', 'b'\]; got lists of members"
        ):
            learn.GroupLasso(groups=lists).fit(X, y)
    for weights in ([1.0], [1.0, -1.0, 1.0], [1.0, np.nan, 1.0]):
        with pytest.raises(ValueError, match="group_weight must be finite, at least 0 and one per group, 3"):
            learn.GroupLasso(groups=LABELS, group_weight=weights).fit(X, y)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(("share", "ratio"), [(0.7, 0.0), (0.2, 0.0), (0.2, 0.3), (0.02, 0.0)])
def test_many_more_features_than_rows(share, ratio, container, rng):
    """A working set of groups: the proof is on all of them."""
    X = rng.standard_normal((30, 240)) * (rng.random((30, 240)) < (1.0 if container is np.asarray else 0.3))
    y = X[:, :12] @ rng.standard_normal(12) + 5.0 + rng.standard_normal(30)
    labels = rng.permutation(np.arange(240) % 50)  # of four and five features, and in no order
    centred = X - X.mean(axis=0)
    sizes = np.sqrt(np.bincount(labels))
    alpha = share * max(np.linalg.norm(centred[:, labels == g].T @ (y - y.mean())) / 30 / sizes[g] for g in range(50))
    model = learn.GroupLasso(alpha, groups=labels, l1_ratio=ratio).fit(container(X), y)
    optimum = cone_optimum(X, y, np.full(30, 1 / 30), alpha, labels, sizes, ratio)
    assert model.gap_ <= 1e-9 * model.objective_
    assert model.objective_ == pytest.approx(optimum, rel=1e-7)
    assert model.lower_bound_ <= optimum * (1 + 1e-8)


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_wide_data_in_other_units(unit, rng):
    X, y = rng.standard_normal((20, 200)), rng.standard_normal(20)
    labels = np.arange(200) // 8
    plain = learn.GroupLasso(0.1, groups=labels).fit(X, y)
    other = learn.GroupLasso(0.1 * unit, groups=labels).fit(X, unit * y)
    np.testing.assert_allclose(other.coef_, unit * plain.coef_, atol=1e-7 * unit)
    assert other.gap_ <= 1e-9 * other.objective_
