"""
Intervals that cover
====================

A pair of quantiles holds nine of ten rows of its own fit. Of new ones it holds fewer, the
more so the fewer rows there were and the more features. Conformal prediction looks at
rows that the fit has not seen, counts how many fall outside, and moves the ends until the
promise holds.
"""

import numpy as np

from varopt.learn import ConformalIntervals, LADRegressor, QuantileRegressor

try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    raise SystemExit("Needs Matplotlib: pip install 'varopt[plot]'") from None

# %%
# Minutes that grow with the distance, and spread with it; ten more columns that say
# nothing about them.
rng = np.random.default_rng(3)


def deliveries(count):
    distance = rng.uniform(0.0, 20.0, count)
    spread = 1.0 + 0.5 * distance
    minutes = 15.0 + 2.0 * distance + spread * rng.standard_gamma(1.5, count)
    return np.column_stack([distance, rng.standard_normal((count, 10))]), minutes


X, y = deliveries(150)
X_new, y_new = deliveries(5000)

# %%
# The pair alone, one width for all, and the pair conformalised.
pair = QuantileRegressor(quantile=[0.05, 0.95], alpha=0.0).fit(X, y)
models = {
    "quantiles alone": pair.predict,
    "around the median": ConformalIntervals(LADRegressor()).fit(X, y).predict_interval,
    "quantiles, split": ConformalIntervals().fit(X, y).predict_interval,
    "quantiles, jackknife+": ConformalIntervals(method="jackknife+")
    .fit(X, y)
    .predict_interval,
}
for name, predict in models.items():
    low, high = predict(X_new).T
    covered = np.mean((low <= y_new) & (y_new <= high))
    print(f"{name:22} covers {covered:.1%}, mean width {np.mean(high - low):.1f}")

# %%
# The widths tell them apart: short ways are foretold better than long ones.
grid = np.zeros((100, 11))
grid[:, 0] = np.linspace(0.0, 20.0, 100)
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(X[:, 0], y, ".", color="0.6", ms=4)
shown = ["around the median", "quantiles, jackknife+"]
for name, colour in zip(shown, ["C1", "C0"], strict=True):
    low, high = models[name](grid).T
    axes.fill_between(grid[:, 0], low, high, alpha=0.2, lw=0, color=colour)
    axes.plot(grid[:, 0], np.column_stack([low, high]), color=colour, lw=1)
    axes.plot([], [], color=colour, label=name)
axes.set(xlabel="distance", ylabel="minutes")
axes.legend(frameon=False)
plt.show()
