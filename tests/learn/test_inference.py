"""Standard errors, intervals and tests, against R's quantreg, the refits themselves, and what is known of designs."""

import shutil
import subprocess

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import t as student
from sklearn import linear_model

from varopt.learn import HuberRegressor, LADRegressor, Lasso, QuantileRegressor, inference
from varopt.learn._inference import _bootstrap  # its fall-back has no door
from varopt.learn._inference._clusters import inflation  # by least squares, of which there is no inference
from varopt.learn._inference._sandwich import bandwidth  # its rules, by those of statsmodels
from varopt.solvers.quantile import Centre, nearby

LEVELS = (0.25, 0.5, 0.75)

# Twenty households of Engel's study (income, expenditure for food, Belgian francs; Koenker and Bassett 1982).
ENGEL = np.array([
    [420.157651, 255.839425], [541.411707, 310.958667], [901.157457, 485.680014], [639.080229, 402.997356],
    [750.875606, 495.560775], [945.798931, 633.797815], [829.397887, 630.756568], [979.164649, 700.440904],
    [1309.878899, 830.958662], [1492.398718, 815.360217], [502.838985, 338.001427], [616.716788, 412.361344],
    [790.92, 520.0006], [555.878558, 452.401509], [713.441227, 512.720109], [838.756117, 658.839527],
    [535.07665, 392.599505], [596.440823, 443.558642], [924.561941, 640.117325], [487.758357, 333.839464],
])  # fmt: skip


def heteroscedastic(rng, n=300, p=3):
    X = rng.uniform(0.0, 2.0, (n, p))
    return X, 1.0 + X @ np.arange(1.0, p + 1.0) + (0.5 + X[:, 0]) * rng.standard_normal(n)


def printed_by_r(X, y):
    """What R's quantreg prints of data, in one run of R, where Rscript finds it."""
    if shutil.which("Rscript") is None:
        pytest.skip("Rscript is not installed")
    data = "\n".join(",".join(repr(float(v)) for v in row) for row in np.column_stack([y, X]))
    program = f"""
        suppressMessages(library(quantreg)); d <- as.matrix(read.csv(file('stdin'), header=FALSE))
        show <- function(name, values) cat(name, format(c(values), digits=15), '\\n')
        fits <- lapply(c{LEVELS}, function(q) rq(d[,1] ~ d[,-1], tau=q))
        for (f in fits) for (se in c('iid', 'nid', 'ker')) show(paste(se, f$tau), summary(f, se=se)$coefficients)
        for (f in fits) show(paste('rank', f$tau), summary(f, se='rank', alpha=0.1)$coefficients)
        show('anova 0', unlist(anova(fits[[1]], fits[[2]], fits[[3]])$table))"""
    run = subprocess.run(["Rscript", "-e", program], input=data, capture_output=True, text=True, check=False)
    if run.returncode:
        pytest.skip("R has no quantreg")
    lines = [line.split() for line in run.stdout.splitlines()]
    return {(words[0], float(words[1])): np.array(words[2:], dtype=float) for words in lines if words}


@pytest.fixture(scope="module")
def quantreg():
    """Generated data, and what R prints of them."""
    X, y = heteroscedastic(np.random.default_rng(5), n=301)
    return X, y, printed_by_r(X, y)


@pytest.fixture(scope="module")
def engel():
    """Engel's 235 households as statsmodels has them, income and expenditure for food."""
    data = pytest.importorskip("statsmodels.datasets").engel.load_pandas().data
    return data[["income"]].to_numpy(), data["foodexp"].to_numpy()


@pytest.mark.filterwarnings(
    "ignore:At . of 301 rows the quantiles beside:UserWarning"
)  # as quantreg's "non-positive fis"
@pytest.mark.parametrize("level", LEVELS)
def test_numbers_are_those_of_quantreg(level, quantreg):
    X, y, printed = quantreg
    assert_as_in_r(QuantileRegressor(quantile=level, alpha=0.0).fit(X, y), X, y, level, printed)


def assert_as_in_r(model, X, y, level, printed):
    for ours, theirs in (("iid", "iid"), ("nid", "nid"), ("kernel", "ker")):
        known = inference(model, X, y, method=ours, bandwidth="hall-sheather")
        coef, error, _, pvalue = printed[theirs, level].reshape(4, -1)
        np.testing.assert_allclose(known.coef[0], coef, rtol=1e-8)
        np.testing.assert_allclose(known.error[0], error, rtol=1e-7)
        np.testing.assert_allclose(known.pvalue[0], pvalue, rtol=1e-6, atol=1e-12)
    rank = inference(model, X, y, method="rank", level=0.9)
    _, lower, upper = printed["rank", level].reshape(3, -1)
    np.testing.assert_allclose(rank.lower[0], lower, rtol=1e-6)
    np.testing.assert_allclose(rank.upper[0], upper, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:At . of 23. rows the quantiles beside:UserWarning")
def test_engel_is_as_quantreg_has_it(engel):
    """Three households are there twice: ties."""
    X, y = engel
    once = np.unique(np.column_stack([X, y]), axis=0)[1:]
    for data, targets in ((X, y), (once[:, :1], once[:, 1])):
        printed = printed_by_r(data, targets)
        for level in LEVELS:
            model = QuantileRegressor(quantile=level, alpha=0.0).fit(data, targets)
            assert_as_in_r(model, data, targets, level, printed)


def ends_by_definition(x, y, level, cutoff):
    """Of the slope beside an intercept: scores are one for the largest (1 - q) n of y - b x, a whole number of them.

    T steps where two of these change places. It is interpolated between its steps.
    """
    n, above = y.size, round((1.0 - level) * y.size)
    i, j = np.triu_indices(n, 1)
    places = np.unique((y[i] - y[j]) / (x[i] - x[j]))
    between = np.r_[places[0] - 1.0, 0.5 * (places[1:] + places[:-1]), places[-1] + 1.0]
    largest = [np.argsort(y - b * x)[n - above :] for b in between]
    scale = np.sqrt(level * (1.0 - level) * np.sum((x - x.mean()) ** 2))
    statistic = np.array([x[rows].sum() - (1.0 - level) * x.sum() for rows in largest]) / scale
    stepped = np.abs(np.diff(statistic)) > 1e-9
    places, statistic = places[stepped], np.r_[statistic[:-1][stepped], statistic[-1]]
    low, high = np.searchsorted(-statistic, [-cutoff, cutoff])  # it falls: the first value within, and beyond
    ends = []
    for k, bound in ((low, cutoff), (high, -cutoff)):
        left, right = (places[k - 1], places[k]) if k == low else (places[k - 2], places[k - 1])
        before, after = statistic[k - 1], statistic[k]
        ends.append(left + (right - left) * (before - bound) / (before - after))
    return ends


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", [20, 40])
def test_rank_intervals_where_scores_are_whole(level, n, rng):
    """Rows then meet the plane without a step, where R may end too far out."""
    x = rng.uniform(0.0, 2.0, n)
    y = 1.0 + x + (0.5 + x) * rng.standard_normal(n)
    known = inference(QuantileRegressor(quantile=level, alpha=0.0).fit(x[:, None], y), x[:, None], y, method="rank")
    ends = ends_by_definition(x, y, level, student.ppf(0.975, n - 2))
    np.testing.assert_allclose([known.lower[0, 1], known.upper[0, 1]], ends, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:Convergence cycle detected")
@pytest.mark.parametrize("level", LEVELS)
def test_engel_is_as_statsmodels_has_it(level, engel):
    """Coefficients to the digits of its reweighting; its errors have another estimate of the density, and one digit."""
    X, y = engel
    theirs = pytest.importorskip("statsmodels.api").QuantReg(y, np.column_stack([np.ones(len(y)), X]))
    fit = theirs.fit(q=level, p_tol=1e-10, max_iter=5000)
    known = inference(QuantileRegressor(quantile=level, alpha=0.0).fit(X, y), X, y, method="iid")
    np.testing.assert_allclose(known.coef[0], fit.params, rtol=1e-6)
    np.testing.assert_allclose(known.error[0], fit.bse, rtol=0.3)


@pytest.mark.filterwarnings("ignore:At . of 301 rows the quantiles beside:UserWarning")
def test_equal_slopes_is_the_anova_of_quantreg(quantreg):
    X, y, printed = quantreg
    test = inference(QuantileRegressor(quantile=LEVELS, alpha=0.0).fit(X, y), X, y).equal_slopes()
    np.testing.assert_allclose([*test.df, test.statistic, test.pvalue], printed["anova", 0.0], rtol=1e-6)


def test_recorded_figures_of_quantreg():
    # quantreg 5.94, summary.rq(rq(food ~ income, tau = 0.43)) of these twenty households
    recorded = {
        "iid": [52.8266545032914, 0.0648943730027],
        "nid": [64.616822087244, 0.0945135663668],
        "kernel": [94.291895309084, 0.126450457973],
    }
    X, y = ENGEL[:, :1], ENGEL[:, 1]
    model = QuantileRegressor(quantile=0.43, alpha=0.0).fit(X, y)
    for method, errors in recorded.items():
        known = inference(model, X, y, method=method, bandwidth="hall-sheather")
        np.testing.assert_allclose(known.error[0], errors, rtol=1e-6)
    rank = inference(model, X, y, method="rank")
    np.testing.assert_allclose(rank.lower[0], [-44.949709850428, 0.437487072041], rtol=1e-6)
    np.testing.assert_allclose(rank.upper[0], [182.068414013148, 0.753432921912], rtol=1e-6)


@pytest.mark.parametrize("kind", ["pairs", "bayesian", "ties"])
def test_a_neighbour_is_what_a_fit_of_its_own_finds(kind, rng):
    X, y = heteroscedastic(rng, n=400, p=4)
    X = np.column_stack([np.ones(400), X])
    if kind == "ties":
        X, y = np.round(3.0 * X), np.round(y, 1)
    fit = QuantileRegressor(quantile=0.3, alpha=0.0, fit_intercept=False).fit(X, y)
    weights = rng.exponential(size=(400, 6)) if kind != "pairs" else rng.multinomial(400, [1 / 400] * 400, 6).T * 1.0
    moves = nearby(Centre(X, y - X @ fit.coef_, 0.3, X.T @ X), weights)
    for move, weight in zip(moves, weights.T, strict=True):
        own = QuantileRegressor(quantile=0.3, alpha=0.0, fit_intercept=False).fit(X, y, sample_weight=weight)
        np.testing.assert_allclose(fit.coef_ + move, own.coef_, atol=1e-8)


def test_a_neighbour_far_away_is_right_or_not_found(rng):
    X, y = heteroscedastic(rng, n=500, p=2)
    fit = QuantileRegressor(quantile=0.5, alpha=0.0, fit_intercept=False).fit(X, y)
    weights = np.where(np.arange(500)[:, None] < [20, 100, 250], 1e3, 1e-3)
    moves = nearby(Centre(X, y - X @ fit.coef_, 0.5, X.T @ X), weights)
    found = ~np.isnan(moves).any(axis=1)
    assert found.any()
    for move, weight in zip(moves[found], weights.T[found], strict=True):
        own = QuantileRegressor(quantile=0.5, alpha=0.0, fit_intercept=False).fit(X, y, sample_weight=weight)
        np.testing.assert_allclose(fit.coef_ + move, own.coef_, atol=1e-8)


def test_refits_that_are_not_found_nearby_are_made_from_the_start(rng, monkeypatch):
    X, y = heteroscedastic(rng, n=80, p=1)
    model = QuantileRegressor(quantile=0.4, alpha=0.0).fit(X, y)
    near = inference(model, X, y, method="bootstrap", refits=5, kind="bayesian").draws
    monkeypatch.setattr(_bootstrap, "nearby", lambda centre, weights, residuals: np.full((5, 2), np.nan))
    np.testing.assert_allclose(
        inference(model, X, y, method="bootstrap", refits=5, kind="bayesian").draws, near, atol=1e-8
    )


@pytest.mark.parametrize("kind", ["pairs", "bayesian", "wild"])
def test_bootstraps_agree_with_the_sandwich_and_hang_on_the_seed_alone(kind, rng):
    X, y = heteroscedastic(rng, n=1000)
    model = QuantileRegressor(quantile=[0.5, 0.8], alpha=0.0).fit(X, y)
    drawn = inference(model, X, y, method="bootstrap", kind=kind, refits=100, random_state=3)
    again = inference(model, X, y, method="bootstrap", kind=kind, refits=100, random_state=3)
    np.testing.assert_array_equal(drawn.draws, again.draws)
    # 100 refits know a standard error to 7 %, the density is known to about 10 %
    np.testing.assert_allclose(drawn.error, inference(model, X, y).error, rtol=0.35)


@pytest.mark.parametrize("kind", ["pairs", "bayesian", "wild"])
def test_workers_share_refits_and_change_no_number(kind, rng, monkeypatch):
    X, y = heteroscedastic(rng, n=60, p=1)
    model = LADRegressor().fit(X, y)
    settings = {"method": "bootstrap", "kind": kind, "refits": 25, "random_state": 3}
    monkeypatch.setattr(_bootstrap, "_REFITS_AT_ONCE", 8)  # four tasks
    alone, together = (inference(model, X, y, n_jobs=jobs, **settings).draws for jobs in (1, 2))
    np.testing.assert_array_equal(alone, together)
    assert len(np.unique(alone[:, 0, 1])) > 8  # tasks do not draw the same


def test_clusters_are_drawn_together(rng):
    labels = np.repeat(np.arange(60), 10)
    shared = rng.standard_normal(60)[labels]
    X = rng.standard_normal(60)[labels][:, None]
    y = X[:, 0] + shared + 0.1 * rng.standard_normal(600)
    model = LADRegressor().fit(X, y)
    alone = inference(model, X, y, method="bootstrap", refits=100).error[0, 1]
    for kind in ("pairs", "bayesian"):
        known = inference(model, X, y, method="bootstrap", kind=kind, refits=100, clusters=labels)
        together = known.error[0, 1]
        assert 2.0 * alone < together < 5.0 * alone  # ten rows tell as much as one: sqrt(10)
        np.testing.assert_allclose(known.upper - known.coef, student.ppf(0.975, 59) * known.error)
        assert "600 rows in 60 clusters" in known.summary()
        assert "clusters" in known._repr_html_()


@pytest.mark.parametrize("sparse", [False, True])
def test_what_clusters_add_is_the_jackknife_of_least_squares(sparse, rng):
    groups = np.r_[rng.integers(9, size=70), np.arange(9), 9]  # of many sizes, one of a single row
    X = np.column_stack([np.ones(80), rng.standard_normal((80, 3)), groups == 4])  # a dummy of a whole cluster
    X[:, 1] += 2.0 * rng.standard_normal(10)[groups]
    y = rng.standard_normal(80) + rng.standard_normal(10)[groups]
    fit = np.linalg.lstsq(X, y, rcond=None)[0]
    residual, inverse = y - X @ fit, np.linalg.inv(X.T @ X)
    plain = sum((inverse @ X[groups == g].T @ residual[groups == g]) ** 2 for g in range(10))
    # without its cluster nothing is known of the dummy's coefficient, and the others are as without the dummy
    without = [np.linalg.lstsq(X[groups != g], y[groups != g], rcond=None)[0] for g in range(10)]
    jackknife = 0.9 * sum((b - fit) ** 2 for b in without)
    factor = inflation(sp.csr_array(X) if sparse else X, residual[:, None], groups)[0]
    np.testing.assert_allclose(factor[:4] ** 2, jackknife[:4] / plain[:4], rtol=1e-8)
    assert factor[1] > 1.05
    assert np.isfinite(factor).all()


def test_errors_of_clusters_are_those_of_refits_and_the_jackknife(rng):
    labels = np.repeat(np.arange(8), 10)
    X, y = heteroscedastic(rng, n=80, p=2)
    X[:, 0] += 3.0 * (labels == 2)  # of a large leverage
    weight = rng.uniform(0.5, 2.0, 80)
    for model in (QuantileRegressor(quantile=[0.4, 0.6], alpha=0.0), HuberRegressor(alpha=0.0)):
        model.fit(X, y, sample_weight=weight)
        known = inference(model, X, y, weight, method="bootstrap", refits=30, clusters=labels, kind="bayesian")
        spread = known.draws.std(axis=0, ddof=1)
        for k in range(len(known.coef)):
            residual = y - np.column_stack([np.ones(80), X]) @ known.coef[k]
            if known.levels.size:
                psi, rows = np.where(residual < 0.0, known.levels[k] - 1.0, known.levels[k]), weight
                resting = np.argsort(np.abs(residual))[:3].tolist()
            else:
                psi, rows, resting = np.clip(residual / model.scale_, -1.35, 1.35), np.sqrt(weight), []
                psi = psi * rows
            Z = np.column_stack([np.ones(80), X]) * rows[:, None]
            if resting:  # their subgradients balance the others
                psi[resting] = 0.0
                psi[resting] = np.linalg.solve(Z[resting].T, -Z.T @ psi)
            hat, plain, jackknife = Z @ np.linalg.inv(Z.T @ Z), 0.0, 0.0
            for g in range(8):
                mine = labels == g
                own = np.eye(10) - hat[mine] @ Z[mine].T
                plain += (hat[mine].T @ psi[mine]) ** 2
                jackknife += (hat[mine].T @ np.linalg.solve(own, psi[mine])) ** 2
            np.testing.assert_allclose(known.error[k], spread[k] * np.sqrt(7 / 8 * jackknife / plain), rtol=1e-6)


@pytest.mark.parametrize("count", [2, 5, 40])
def test_a_mean_of_equal_clusters_gets_the_usual_factor(count, rng):
    y = rng.standard_normal(4 * count)
    labels = np.repeat([f"school {g}" for g in range(count)], 4)
    model = LADRegressor(fit_intercept=False).fit(np.ones((4 * count, 1)), y)
    known = inference(model, np.ones((4 * count, 1)), y, method="bootstrap", refits=40, clusters=labels)
    factor = known.error[0, 0] / known.draws[:, 0, 0].std(ddof=1)
    np.testing.assert_allclose(factor, np.sqrt(count / (count - 1)))


def test_equal_slopes_of_clusters_knows_how_few_they_are(rng):
    X, y = heteroscedastic(rng, n=240, p=2)
    model = QuantileRegressor(quantile=LEVELS, alpha=0.0).fit(X, y)
    labels = np.arange(240) % 12
    test = inference(model, X, y, method="bootstrap", refits=60, clusters=labels).equal_slopes()
    assert test.df[1] == 11


@pytest.mark.parametrize("kind", ["pairs", "bayesian"])
def test_clusters_of_rows_that_have_nothing_in_common_change_little(kind, rng):
    X, y = heteroscedastic(rng, n=1000, p=2)
    model = LADRegressor().fit(X, y)
    drawn = inference(model, X, y, method="bootstrap", kind=kind, refits=200, clusters=np.arange(1000) % 200)
    np.testing.assert_allclose(drawn.error, inference(model, X, y).error, rtol=0.35)


def test_labels_of_clusters_may_be_words(rng):
    X, y = heteroscedastic(rng, n=60, p=1)
    model, numbers = LADRegressor().fit(X, y), np.repeat(np.arange(10), 6)
    words = np.array([f"region {number}" for number in numbers])
    weight = np.ones(60)
    drawn = [inference(model, X, y, weight, method="bootstrap", refits=5, clusters=c).draws for c in (numbers, words)]
    np.testing.assert_array_equal(*drawn)


def test_labels_of_clusters_need_no_order(rng):
    X, y = heteroscedastic(rng, n=60, p=1)
    model, numbers = LADRegressor().fit(X, y), np.repeat(np.arange(10), 6)
    settings = {"method": "bootstrap", "refits": 5}
    mixed = np.array([g if g % 2 else f"region {g}" for g in numbers], dtype=object)
    drawn = [inference(model, X, y, clusters=c, **settings).error for c in (numbers, 9 - numbers, mixed)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[0], drawn[2])


def test_clusters_know_no_units(rng):
    X, y = heteroscedastic(rng, n=60, p=2)
    settings = {"method": "bootstrap", "kind": "bayesian", "refits": 5, "clusters": np.repeat(np.arange(10), 6)}
    small = X * [1e-150, 1e3]
    here, there = (inference(LADRegressor().fit(x, y), x, y, **settings).error[0] for x in (X, small))
    np.testing.assert_allclose(there * [1.0, 1e-150, 1e3], here, rtol=1e-6)


def test_a_generator_draws_refits(rng):
    X, y = heteroscedastic(rng, n=60, p=1)
    model = LADRegressor().fit(X, y)
    settings = [{"method": "bootstrap", "refits": 5, "random_state": np.random.default_rng(seed)} for seed in (3, 3, 4)]
    first, same, other = (inference(model, X, y, **s).draws for s in settings)
    np.testing.assert_array_equal(first, same)
    assert (first != other).any()


def test_equal_slopes_says_what_it_cannot_compare(rng):
    X, y = heteroscedastic(rng, n=120, p=2)
    model = QuantileRegressor(quantile=LEVELS, alpha=0.0).fit(X, y)
    with pytest.raises(ValueError, match="no names"):
        inference(model, X, y, method="kernel").equal_slopes([])
    with pytest.raises(ValueError, match="no names"):
        inference(model, X, y, method="kernel").plot([])
    with pytest.raises(ValueError, match="compares 4 differences at once, and 4 refits"):
        inference(model, X, y, method="bootstrap", refits=4).equal_slopes()
    with pytest.raises(ValueError, match="compares 4 differences at once, and 3 clusters"):
        inference(model, X, y, method="bootstrap", refits=40, clusters=np.arange(120) % 3).equal_slopes()
    twice = QuantileRegressor(quantile=[0.5, 0.5], alpha=0.0).fit(X, y)
    with pytest.raises(ValueError, match="given twice"):
        inference(twice, X, y, method="kernel").equal_slopes()


def test_a_column_may_be_called_intercept(rng):
    pandas = pytest.importorskip("pandas")
    X, y = heteroscedastic(rng, n=60, p=2)
    named = pandas.DataFrame(X, columns=["intercept", "slope"])
    drawn = [
        inference(HuberRegressor(alpha=0.0, fit_intercept=False).fit(data, y), data, y, method="bootstrap", refits=3)
        for data in (X, named)
    ]
    np.testing.assert_array_equal(drawn[0].draws, drawn[1].draws)


def test_huber_covers_least_squares_and_agrees_with_its_bootstrap(rng):
    X, y = rng.standard_normal((400, 2)), rng.standard_normal(400)
    everything = HuberRegressor(epsilon=50.0, alpha=0.0).fit(X, y)
    A = np.column_stack([np.ones(400), X])
    residual = y - A @ np.r_[everything.intercept_, everything.coef_]
    classical = np.linalg.inv(A.T @ A) * float(residual @ residual) / 397
    np.testing.assert_allclose(inference(everything, X, y, method="iid").covariance, classical, rtol=1e-6)
    model = HuberRegressor().fit(X, y)
    drawn = inference(model, X, y, method="bootstrap", refits=100)
    np.testing.assert_allclose(inference(model, X, y).error, drawn.error, rtol=0.35)


@pytest.mark.parametrize("method", ["iid", "nid", "kernel", "rank"])
def test_units_change_nothing_but_the_units(method, rng):
    X, y = heteroscedastic(rng, n=200)
    one = inference(QuantileRegressor(quantile=0.4, alpha=0.0).fit(X, y), X, y, method=method)
    X2, y2 = 1e3 * X, 1e-4 * y
    other = inference(QuantileRegressor(quantile=0.4, alpha=0.0).fit(X2, y2), X2, y2, method=method)
    unit = np.r_[1e-4, [1e-7] * 3]
    np.testing.assert_allclose(other.upper / unit, one.upper, rtol=1e-3)
    np.testing.assert_allclose(other.lower / unit, one.lower, rtol=1e-3)


@pytest.mark.parametrize("method", ["iid", "nid", "kernel", "rank", "bootstrap"])
def test_sparse_data_frames_and_the_fits_of_scikit_learn(method, rng):
    pandas = pytest.importorskip("pandas")
    X, y = heteroscedastic(rng, n=150)
    dense = inference(QuantileRegressor(alpha=0.0).fit(X, y), X, y, method=method, refits=20)
    sparse = sp.csr_array(X)
    same = inference(QuantileRegressor(alpha=0.0).fit(sparse, y), sparse, y, method=method, refits=20)
    np.testing.assert_allclose(same.upper, dense.upper, rtol=1e-6)
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    theirs = linear_model.QuantileRegressor(alpha=0.0).fit(frame, y)
    named = inference(theirs, frame, y, method=method, refits=20)
    assert named.names == ("intercept", "a", "b", "c")
    np.testing.assert_allclose(named.lower, dense.lower, rtol=1e-4)


def test_equal_rows_change_a_rank_interval_as_little_as_their_order(rng):
    X, y = heteroscedastic(rng, n=101)
    X, y = np.vstack([X, X[:40]]), np.r_[y, y[:40]]
    order = rng.permutation(141)
    model = QuantileRegressor(quantile=0.3, alpha=0.0).fit(X, y)
    one, other = (inference(model, X[i], y[i], method="rank") for i in (np.arange(141), order))
    np.testing.assert_allclose(one.lower, other.lower, rtol=1e-2)
    assert np.all(np.isfinite([one.lower, one.upper]))


def test_weights_of_zero_are_absent_rows(rng):
    X, y = heteroscedastic(rng, n=200)
    weight = (np.arange(200) < 150).astype(float)
    model = QuantileRegressor(alpha=0.0).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(
        inference(model, X, y, weight).error, inference(model, X[:150], y[:150]).error, rtol=1e-6
    )


def test_shows_itself(rng):
    pytest.importorskip("matplotlib").use("Agg")
    X, y = heteroscedastic(rng, n=400, p=2)
    known = inference(QuantileRegressor(quantile=LEVELS, alpha=0.0).fit(X, y), X, y)
    assert "quantile 0.25" in known.summary()
    assert "std err" in str(known)
    assert "<table" in known._repr_html_()
    assert known.to_frame().shape == (9, 8)
    assert known.plot().size == 3
    one = inference(LADRegressor().fit(X, y), X, y, method="rank")
    assert "std err" not in str(one)
    assert one.plot(names="x0") is not None
    with pytest.raises(ValueError, match="only one"):
        one.equal_slopes()
    with pytest.raises(ValueError, match="no coefficient 'z'"):
        known.plot(names="z")


def test_intervals_without_ends_run_out_of_the_picture(rng):
    pytest.importorskip("matplotlib").use("Agg")
    X, y = heteroscedastic(rng, n=60, p=1)
    several = inference(QuantileRegressor(quantile=[0.02, 0.5], alpha=0.0).fit(X, y), X, y, method="rank")
    assert np.isinf(several.lower[0]).any()
    for panel, column in zip(np.ravel(several.plot()), several.lower.T, strict=True):
        drawn = panel.collections[0].get_paths()[0].vertices[:, 1]
        assert np.all(np.isfinite(drawn))
        assert (drawn.min() < panel.get_ylim()[0]) == np.isinf(column).any()
    one = inference(QuantileRegressor(quantile=0.02, alpha=0.0).fit(X, y), X, y, method="rank")
    axes = one.plot()
    ends = np.concatenate([path.vertices[:, 0] for path in axes.collections[0].get_paths()])
    assert ends.min() < axes.get_xlim()[0]


def bad(**changes):
    rng = np.random.default_rng(0)
    X, y = heteroscedastic(rng, n=60)
    return {"model": QuantileRegressor(alpha=0.0).fit(X, y), "X": X, "y": y} | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "boot"}, "method must be one of iid, nid, kernel, rank, bootstrap"),
        ({"level": 95}, "between 0 and 1"),
        ({"kind": "xy"}, "kind must be one of pairs, bayesian, wild"),
        ({"refits": 1}, "at least 2"),
        ({"refits": 10.0, "method": "bootstrap"}, "refits must be a whole number"),
        ({"refits": "10", "method": "bootstrap"}, "refits must be a whole number"),
        ({"level": "95"}, "level is the confidence"),
        ({"level": 95}, "level is the confidence"),
        ({"random_state": -1, "method": "bootstrap"}, "random_state must not be negative"),
        ({"clusters": [1]}, 'need method="bootstrap"'),
        ({"clusters": [1], "method": "bootstrap"}, "a label for each row"),
        ({"clusters": ["a"] * 60, "method": "bootstrap"}, "All rows are of one cluster"),
        ({"clusters": [1, 2] * 30, "method": "bootstrap", "kind": "wild"}, 'clusters take "pairs" or "bayesian"'),
        ({"clusters": ["a"] * 61, "method": "bootstrap"}, "a label for each row of X, which are 60"),
        ({"clusters": ["a", None] * 30, "method": "bootstrap"}, "no label for 30 of the rows"),
        ({"clusters": np.r_[np.nan, np.ones(59)], "method": "bootstrap"}, "no label for 1 of the rows"),
        ({"y": np.arange(60.0)}, "not the optimum for these"),
        ({"X": np.ones((60, 2))}, "X has 2 features"),
        ({"model": Lasso().fit([[0.0], [1.0]], [0.0, 1.0])}, "takes a fitted QuantileRegressor"),
        ({"model": QuantileRegressor(alpha=0.0)}, "not fitted"),
    ],
)
def test_bad_input_gets_a_sentence(changes, message):
    arguments = bad(**changes)
    with pytest.raises(ValueError, match=message):
        inference(arguments.pop("model"), arguments.pop("X"), arguments.pop("y"), **arguments)


def test_bandwidths_are_those_of_statsmodels():
    theirs = pytest.importorskip("statsmodels.regression.quantile_regression")
    rules = {"hall-sheather": theirs.hall_sheather, "bofinger": theirs.bofinger, "chamberlain": theirs.chamberlain}
    for rule, reference in rules.items():
        for level, count in ((0.5, 400), (0.2, 60), (0.9, 5000)):
            if rule == "bofinger" and level != 0.5:  # statsmodels 0.15 has phi(2 z) where R has phi(z)
                continue
            assert bandwidth(level, count, rule, shrink=False) == pytest.approx(reference(count, level), rel=1e-12)


def test_the_wider_the_bandwidth_the_larger_the_errors_of_a_kernel(rng):
    X, y = heteroscedastic(rng)
    model = QuantileRegressor(quantile=0.5, alpha=0.0).fit(X, y)
    narrow, middle, wide = (
        inference(model, X, y, method="kernel", bandwidth=rule).error[0]
        for rule in ("chamberlain", "hall-sheather", "bofinger")
    )
    assert np.all(narrow < middle)
    assert np.all(middle < wide)
    np.testing.assert_array_equal(narrow, inference(model, X, y, method="kernel").error[0])
    first, default = (inference(model, X, y, bandwidth=rule).error for rule in ("hall-sheather", None))
    np.testing.assert_array_equal(first, default)
    with pytest.raises(ValueError, match="bandwidth must be one of"):
        inference(model, X, y, bandwidth="silverman")


def test_what_has_no_inference_is_refused(rng):
    X, y = heteroscedastic(rng, n=60)
    with pytest.raises(ValueError, match="alpha=1"):
        inference(QuantileRegressor().fit(X, y), X, y)
    with pytest.raises(ValueError, match="one target, and the model was fitted to 2"):
        inference(QuantileRegressor(alpha=0.0).fit(X, np.column_stack([y, y])), X, y)
    with pytest.raises(ValueError, match="positive=True holds coefficients"):
        inference(QuantileRegressor(alpha=0.0, positive=True).fit(-X, y), -X, y)
    twice = np.column_stack([X, X[:, 0]])
    with pytest.raises(ValueError, match="depend on each other"):
        inference(QuantileRegressor(alpha=0.0).fit(twice, y), twice, y)
    with pytest.raises(ValueError, match="more rows than coefficients"):
        inference(QuantileRegressor(alpha=0.0).fit(X[:4], y[:4]), X[:4], y[:4])
    with pytest.raises(ValueError, match="is for quantiles"):
        inference(HuberRegressor().fit(X, y), X, y, method="rank")
    exact = np.zeros(60)
    with pytest.raises(ValueError, match="exact"):
        inference(QuantileRegressor(alpha=0.0).fit(X, exact), X, exact, method="rank")


@pytest.mark.parametrize("kind", ["pairs", "wild", "bayesian"])
def test_a_bootstrap_needs_no_density(kind):
    """All quartiles of the residuals are zero: refits are made afresh."""
    X, y = np.arange(6.0)[:, None], np.array([0.0, 0.0, 0.0, 0.0, 1.0, 0.0])
    model = QuantileRegressor(alpha=0.0).fit(X, y)
    made = inference(model, X, y, method="bootstrap", kind=kind, refits=20, random_state=0)
    assert np.all(np.isfinite(made.error))


def test_rows_that_all_rest_have_no_density():
    X = np.arange(6.0)[:, None]
    model = QuantileRegressor(alpha=0.0).fit(X, X[:, 0])
    with pytest.raises(ValueError, match='"iid" finds no density'):
        inference(model, X, X[:, 0], method="iid")
