"""Values of the exact layers: against 20-digit references, definitions and limits. NumPy only."""

import itertools
import subprocess
import sys

import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.nn.layers import LAYERS, ORDERED, ROWS
from varopt import nn, terms
from varopt.nn._library import needed  # its message where a library is absent


def others_above(x, i, t, sigma):
    """The probabilities that 0, 1, ... of the other numbers lie above t."""
    p = [mp.ncdf((mp.mpf(v) - t) / sigma) for j, v in enumerate(x) if j != i]
    counts = [mp.mpf(0)] * (len(p) + 1)
    for bits in itertools.product((0, 1), repeat=len(p)):
        counts[sum(bits)] += mp.fprod(q if b else 1 - q for q, b in zip(p, bits, strict=True))
    return counts


def place_probabilities(x, sigma):
    """P(number i is the r-th largest), by the definition."""
    with mp.workdps(20):
        ends = [min(x) - 14 * sigma, *sorted(x), max(x) + 14 * sigma]
        ends = sorted(set(map(mp.mpf, ends)))
        table = np.empty((len(x), len(x)), dtype=object)
        for i, v in enumerate(x):
            for r in range(len(x)):
                table[i, r] = mp.quad(
                    lambda t, i=i, r=r, v=v: mp.npdf((t - v) / sigma) / sigma * others_above(x, i, t, sigma)[r], ends
                )
        return table


CASES = [([0.3, -1.2, 0.45, 0.2], 0.4), ([0.0, 0.0, 0.0], 1.0), ([1.0, 0.2, 1.0], 0.15)]


@pytest.fixture(scope="module", params=CASES, ids=["spread", "tied", "narrow"])
def exact(request):
    x, sigma = request.param
    return np.array(x), sigma, place_probabilities(x, sigma)


def test_argmax_matches_mpmath(exact):
    x, sigma, table = exact
    assert_allclose(nn.argmax(x, sigma), table[:, 0].astype(float), rtol=1e-12)


def test_topk_and_discounts_match_mpmath(exact):
    x, sigma, table = exact
    for k in range(1, x.size + 1):
        assert_allclose(nn.topk(x, k, sigma), table[:, :k].sum(axis=1).astype(float), rtol=0, atol=1e-13)
    discount = 1.0 / np.log2(2.0 + np.arange(x.size))
    assert_allclose(nn.average_of_rank(x, discount, sigma), (table @ discount).astype(float), rtol=1e-12)


def test_rank_matches_mpmath(exact):
    x, sigma, table = exact
    places = np.arange(1, x.size + 1)
    assert_allclose(nn.rank(x, sigma), x.size + 1 - (table @ places).astype(float), rtol=1e-13)


def test_sort_matches_mpmath():
    x, sigma = [0.3, -0.2, 0.45], 0.4
    with mp.workdps(20):
        expected = []
        for r in range(3):  # <y_(r)> = int_0^inf P(y_(r) > t) dt - int_-inf^0 P(y_(r) < t) dt

            def above(t, r=r):
                p = [mp.ncdf((mp.mpf(v) - t) / sigma) for v in x]
                return mp.fsum(
                    mp.fprod(q if b else 1 - q for q, b in zip(p, bits, strict=True))
                    for bits in itertools.product((0, 1), repeat=3)
                    if sum(bits) >= 3 - r
                )

            expected.append(mp.quad(above, [0, 1, 6]) - mp.quad(lambda t, f=above: 1 - f(t), [-6, -1, 0]))
    assert_allclose(nn.sort(np.array(x), sigma), np.array(expected, dtype=float), rtol=1e-12)


@pytest.mark.parametrize("sigma", [0.05, 0.3, 0.49, 0.51, 2.0])
def test_round_matches_its_sum(sigma):
    x = np.array([-2.5, -0.3, 0.0, 0.5, 0.9, 7.2])
    knots = np.arange(-60, 60) + 0.5
    with mp.workdps(30):
        expected = [
            float(mp.fsum(mp.ncdf((mp.mpf(v) - k) / mp.mpf(sigma)) - (k < 0) for k in map(mp.mpf, knots))) for v in x
        ]
    assert_allclose(nn.round(x, sigma), expected, rtol=1e-13, atol=1e-14)
    assert_allclose(nn.round(0.25 * x, 0.25 * sigma, 0.25), 0.25 * np.array(expected), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", terms.REGISTRY)
def test_expect_knows_every_named_term(name):
    x = np.linspace(-3.0, 3.0, 13)
    assert_allclose(nn.expect(name, x, 0.7), terms.REGISTRY[name].build().expectation(x, 0.7), rtol=1e-15)


def test_expect_knows_the_names_of_layers():
    x = np.linspace(-1.0, 1.0, 5)
    assert_allclose(nn.expect("sign", x, 0.3), nn.sign(x, 0.3))
    assert_allclose(nn.expect("relu", x, 0.3), nn.relu(x, 0.3))
    assert_allclose(nn.gap("sign", 0.1), 1.0)


def test_expect_takes_terms_with_parameters_by_row():
    levels = np.array([0.1, 0.5, 0.9])
    both = nn.expect(terms.pinball(levels), np.zeros((2, 3)), 1.0)
    assert_allclose(both[1], [nn.pinball(0.0, level, 1.0) for level in levels])


@pytest.mark.parametrize("n", [2, 7, 30, 100, 1000])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_argmax_sums_to_one_and_is_fair(n, dtype, rng):
    tolerance = 1e-12 if dtype is np.float64 else 2e-6
    for x in (np.zeros(n), rng.standard_normal(n), 5.0 * rng.standard_normal(n)):
        assert_allclose(nn.argmax(x.astype(dtype), 1.0).sum(), 1.0, rtol=tolerance)
    assert_allclose(nn.argmax(np.zeros(n, dtype), 1.0), 1.0 / n, rtol=10 * tolerance)


@pytest.mark.parametrize(("n", "k"), [(2, 1), (7, 2), (20, 5), (20, 19), (60, 30), (100, 2)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_topk_sums_to_k_and_is_fair(n, k, dtype, rng):
    tolerance = 1e-11 if dtype is np.float64 else 5e-6
    for x in (np.zeros(n), rng.standard_normal(n), 30.0 * rng.standard_normal(n)):
        assert_allclose(nn.topk(x.astype(dtype), k, 1.0).sum(), k, rtol=tolerance)
    assert_allclose(nn.topk(np.zeros(n, dtype), k, 1.0), k / n, rtol=10 * tolerance)


def hard_rows(n, k, rng):
    """Equal numbers, random ones, clusters that part at, before and after the k-th: what is hardest to integrate."""
    rows = [np.zeros(n), *(scale * rng.standard_normal(n) for scale in (0.3, 1.0, 3.0, 10.0))]
    for first in {max(1, k - 1), k, min(n - 1, k + 1), n // 2}:
        rows += [np.where(np.arange(n) < first, 0.0, -gap) for gap in (1.0, 2.0, 3.0, 4.0, 8.0, 40.0)]
    rows += [np.where(np.arange(n) < k - 1, gap, np.where(np.arange(n) < k, 0.0, -gap)) for gap in (2.0, 4.0, 1e3)]
    return np.stack(rows)


@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 1), (5, 2), (20, 1), (20, 5), (20, 13), (60, 30), (200, 2)])
def test_topk_is_the_sum_over_places(n, k, rng):
    """Another integral, with nodes of its own, sums the chances of the first k places; that of argmax is a third."""
    x = hard_rows(n, k, rng)
    exact = nn.average_of_rank(x, np.ones(k), 1.0)
    assert_allclose(nn.topk(x, k, 1.0), exact, rtol=0, atol=2e-12)
    assert_allclose(nn.topk(x.astype(np.float32), k, np.float32(1.0)), exact, rtol=0, atol=3e-6)
    if k == 1:
        assert_allclose(nn.topk(x, 1, 1.0), nn.argmax(x, 1.0), rtol=0, atol=5e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_infinities_are_masks(dtype):
    inf = np.inf
    one, two = np.array([-inf, 1.0, 1.0], dtype), np.array([-inf, -inf, 2.0], dtype)
    assert_allclose(nn.argmax(one, 0.5), [0.0, 0.5, 0.5], atol=1e-6)
    assert_allclose(nn.argmax(two, 0.5), [0.0, 0.0, 1.0], atol=1e-6)
    assert_allclose(nn.topk(one, 2, 0.5), [0.0, 1.0, 1.0], atol=1e-6)
    assert_allclose(nn.topk(two, 2, 0.5), [0.5, 0.5, 1.0], atol=1e-6)
    assert_allclose(nn.rank(one, 0.5), [1.0, 2.5, 2.5], rtol=1e-6)
    assert_allclose(nn.rank(two, 0.5), [1.5, 1.5, 3.0], rtol=1e-6)
    assert_allclose(nn.average_of_rank(two, [1.0, 0.5], 0.5), [0.25, 0.25, 1.0], rtol=1e-6)
    assert_allclose(nn.sort(one, 0.5)[1:], nn.sort(one[1:], 0.5), rtol=1e-6)
    assert_allclose(nn.argmax(np.array([1.0, inf], dtype), 0.5), [0.0, 1.0], atol=1e-6)


def test_order_layers_agree_with_samples(rng):
    x, sigma, n = rng.standard_normal(6), 0.4, 200_000
    y = x + sigma * rng.standard_normal((n, 6))
    places = np.argsort(np.argsort(-y, axis=1), axis=1)
    discount = np.array([1.0, 0.6, 0.5, 0.4, 0.3, 0.2])
    for exact, samples in (
        (nn.argmax(x, sigma), places == 0),
        (nn.topk(x, 2, sigma), places < 2),
        (nn.topk(x, 4, sigma), places < 4),
        (nn.rank(x, sigma), 6.0 - places),
        (nn.sort(x, sigma), np.sort(y, axis=1)),
        (nn.average_of_rank(x, discount, sigma), discount[places]),
    ):
        error = samples.std(axis=0) / np.sqrt(n) + 1.0 / n  # what was never seen may be that likely
        assert np.all(np.abs(exact - samples.mean(axis=0)) < 5.0 * error)


@pytest.mark.parametrize("name", ORDERED)
def test_order_layers_follow_shift_scale_and_permutation(name, rng):
    layer, x = ORDERED[name], rng.standard_normal((3, 5))
    base = layer(x, 0.5)
    shift, scale = (10.0, 3.0) if name == "sort" else (0.0, 1.0)
    assert_allclose(layer(x + 10.0, 0.5), base + shift, rtol=1e-11, atol=1e-13)
    assert_allclose(layer(3.0 * x, 1.5), scale * base, rtol=1e-12, atol=1e-14)
    order = rng.permutation(5)
    assert_allclose(layer(x[:, order], 0.5), base if name == "sort" else base[:, order], rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("name", ORDERED)
def test_axis_and_sigma_by_row(name, rng):
    layer, x = ORDERED[name], rng.standard_normal((3, 5))
    sigma = np.array([0.1, 0.5, 2.0])
    rows = np.stack([layer(row, s) for row, s in zip(x, sigma, strict=True)])
    assert_allclose(layer(x, sigma), rows, rtol=1e-11, atol=1e-13)
    assert_allclose(layer(x, sigma[:, None]), rows, rtol=1e-11, atol=1e-13)  # as std(-1, keepdims=True) gives it
    along = {"argmax": nn.argmax, "rank": nn.rank, "sort": nn.sort}.get(name)
    if along:
        assert_allclose(along(x.T, sigma, axis=0), rows.T, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("sigma", [1e-6, 1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("name", LAYERS)
def test_extremes_are_finite_and_single_precision_follows(name, row, sigma):
    x = np.array(ROWS[row])
    # the same numbers in both precisions, so that only the arithmetic differs
    x32, s32 = x.astype(np.float32), np.float32(sigma)
    exact = LAYERS[name](x32.astype(np.float64), float(s32))
    single = LAYERS[name](x32, s32)
    assert np.all(np.isfinite(exact))
    assert single.dtype == np.float32
    scale = np.maximum(np.abs(exact), np.max(np.abs(exact))) + 1e-30
    assert np.max(np.abs(single - exact) / scale) < 1e-5


def test_far_apart_is_the_hard_answer():
    x = np.array(ROWS["far"])
    assert_allclose(nn.argmax(x, 1e-6), [1, 0, 0, 0, 0], atol=1e-15)
    assert_allclose(nn.topk(x, 2, 1e-6), [1, 0, 0, 1, 0], atol=1e-15)
    assert_allclose(nn.rank(x, 1e-6), [5, 1, 3, 4, 2], rtol=1e-15)
    assert_allclose(nn.sort(x, 1e-6), np.sort(x), rtol=1e-14)
    assert_allclose(nn.sort(np.array([0.0, 1e3]), 1.0), [0.0, 1e3], atol=1e-10)


def test_one_entry_all_entries_and_no_rows():
    one = np.array([0.7])
    assert_allclose(nn.argmax(one, 0.5), [1.0], rtol=1e-13)
    assert_allclose(nn.topk(one, 1, 0.5), [1.0])
    assert_allclose(nn.rank(one, 0.5), [1.0])
    assert_allclose(nn.sort(one, 0.5), [0.7], rtol=1e-13)
    assert_allclose(nn.topk(np.arange(4.0), 4, 0.5), np.ones(4))
    for name, layer in ORDERED.items():
        assert layer(np.empty((0, 5)), 0.5).shape == (0, 5), name


def test_integers_become_floats():
    for name, layer in LAYERS.items():
        assert_allclose(layer(np.array([1, 0, 3, -1, 2]), 1), layer(np.array([1.0, 0.0, 3.0, -1.0, 2.0]), 1.0)), name


def test_chunks_do_not_show(monkeypatch, rng):
    x = rng.standard_normal((7, 5))
    whole = {name: layer(x, 0.5) for name, layer in ORDERED.items()}
    monkeypatch.setattr("varopt.nn._order._LIMIT", 600)
    for name, layer in ORDERED.items():
        assert_allclose(layer(x, 0.5), whole[name], rtol=1e-14), name


def test_gap_is_the_most_that_smoothing_adds():
    x = np.linspace(-5.0, 5.0, 20001)
    for name in ("abs", "hinge", "huber", "epsilon_insensitive"):
        added = nn.expect(name, x, 0.3) - terms.REGISTRY[name].build().value(x)
        assert_allclose(nn.gap(name, 0.3), added.max(), rtol=1e-6)


# -- Refusals ---------------------------------------------------------------------------------------------------------

X = np.array([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: nn.step(X, 0.0), "sigma must be positive and finite; got 0."),
        (lambda: nn.step(X, -1.0), "sigma must be positive and finite; got -1."),
        (lambda: nn.argmax(X, float("nan")), "sigma must be positive and finite; got nan."),
        (lambda: nn.rank(X[None], np.array([1.0, -2.0])), "sigma must be positive and finite; got -2."),
        (lambda: nn.step(X, None), "sigma must be a positive number or an array of them; got None."),
        (lambda: nn.step(X, "0.1"), "sigma must be a positive number or an array of them; got '0.1'."),
        (lambda: nn.rank(X, np.ones(2)), r"sigma must be a number or have one entry per row, shape \(\)"),
        (lambda: nn.expect("stepp", X, 1.0), "term must be one of abs, .*; got 'stepp'."),
        (lambda: nn.expect(3.0, X, 1.0), "term must be a name or a term such as"),
        (lambda: nn.topk(X, 0, 1.0), "k must be an integer between 1 and the 3 entries along the axis; got 0."),
        (lambda: nn.topk(X, 4, 1.0), "k must be an integer between 1 and the 3 entries along the axis; got 4."),
        (lambda: nn.topk(X, 1.5, 1.0), "k must be an integer .*; got 1.5."),
        (lambda: nn.argmax(np.empty((3, 0)), 1.0), "x must not be empty along axis -1."),
        (lambda: nn.argmax(1.0, 1.0), "x must have at least one axis"),
        (lambda: nn.sort(X, 1.0, axis=1), "axis must be an integer between -1 and 0; got 1."),
        (lambda: nn.round(X, 1.0, grid=0.0), "grid must be positive and finite; got 0."),
        (lambda: nn.average_of_rank(X, np.ones(4), 1.0), "discount must be a vector of 1 to 3 numbers"),
        (lambda: nn.zero_one_loss(X, np.array([1, 1, 0]), 1.0, reduction="avg"), "reduction must be one of mean"),
        (lambda: nn.zero_one_loss(X, np.array([1, 2, 0]), 1.0), r"target must be 0 or 1 \(or -1 and 1\)"),
        (lambda: nn.zero_one_loss(X[None], np.array([3]), 1.0), "target must be classes from 0 to 2"),
        (lambda: nn.topk_error(X[None], np.array([1, 2]), 1, 1.0), "target must have one class per row"),
        (lambda: nn.ndcg(X, X, 1.0, k=4), "k must be an integer between 1 and 3; got 4."),
        (lambda: nn.ndcg(X, X[:2], 1.0), "relevance must have the shape of scores"),
        (lambda: nn.spearman(X[:1], X[:1], 1.0), "x must have at least two entries"),
        (lambda: nn.smooth(3.0), "fn must be callable; got float."),
        (lambda: nn.smooth(abs, sigma=-1.0), "sigma must be positive and finite; got -1."),
        (lambda: nn.smooth(abs, samples=1), "samples must be an integer of at least 2; got 1."),
        (lambda: nn.smooth(abs, samples=7, control="antithetic"), "samples must be even for antithetic pairs; got 7."),
        (lambda: nn.smooth(abs, noise="cauchy"), "noise must be one of gaussian, .*; got 'cauchy'."),
        (lambda: nn.smooth(abs, control="magic"), "control must be one of quasi, .*; got 'magic'."),
        (lambda: nn.smooth(abs)(1.0), r"or a pytree of them. In NumPy vo.bound\("),
    ],
)
def test_refused_in_a_sentence(call, says):
    with pytest.raises(ValueError, match=says):
        call()


# -- Losses -----------------------------------------------------------------------------------------------------------


def test_losses_are_the_hard_ones_for_small_sigma(rng):
    from scipy.stats import spearmanr
    from sklearn.metrics import ndcg_score, top_k_accuracy_score

    scores, labels = rng.standard_normal((50, 4)), rng.integers(0, 4, 50)
    assert_allclose(nn.zero_one_loss(scores, labels, 1e-6), np.mean(scores.argmax(1) != labels), atol=1e-12)
    assert_allclose(nn.topk_error(scores, labels, 2, 1e-6), 1 - top_k_accuracy_score(labels, scores, k=2), atol=1e-12)
    signs = rng.integers(0, 2, 50)
    assert_allclose(nn.zero_one_loss(scores[:, 0], signs, 1e-6), np.mean((scores[:, 0] > 0) != (signs > 0)), atol=1e-12)
    assert_allclose(
        nn.zero_one_loss(scores[:, 0], 2 * signs - 1, 0.3), nn.zero_one_loss(scores[:, 0], signs, 0.3), rtol=1e-14
    )
    y = np.round(2.0 * rng.standard_normal(50))  # with ties
    assert_allclose(nn.spearman(scores[:, 0], y, 1e-7), spearmanr(scores[:, 0], y).statistic, rtol=2e-3)
    relevance = rng.integers(0, 4, (5, 9)).astype(float)
    ranked = rng.standard_normal((5, 9))
    for k in (None, 3):
        expected = ndcg_score(2.0**relevance - 1.0, ranked, k=k)
        assert_allclose(nn.ndcg(ranked, relevance, 1e-6, k=k), expected, rtol=1e-9)


def test_losses_are_averages_of_hard_ones(rng):
    from sklearn.metrics import ndcg_score

    x, relevance, sigma, n = rng.standard_normal(6), np.array([0.0, 3.0, 1.0, 0.0, 2.0, 1.0]), 0.5, 20_000
    noisy = x + sigma * rng.standard_normal((n, 6))
    gains = np.broadcast_to(2.0**relevance - 1.0, (n, 6))
    assert_allclose(nn.ndcg(x, relevance, sigma), ndcg_score(gains, noisy), atol=0.005)
    assert_allclose(nn.ndcg(x, np.zeros(6), sigma), 1.0)
    residual = 0.2 - x
    assert_allclose(nn.quantile_loss(x, 0.2, 0.9, sigma, "none"), nn.pinball(residual, 0.9, sigma))


def test_nothing_is_imported_before_it_is_used():
    code = (
        "import sys, numpy as np, varopt as vo; from varopt import nn; vo.smooth(abs); nn.argmax(np.ones(3), 1.0);"
        "print([m for m in ('torch', 'jax') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_absent_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs PyTorch: pip install varopt\[torch\]"):
        needed("torch")
