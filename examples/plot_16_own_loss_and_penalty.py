"""
A loss and a penalty that nobody pairs
======================================

Energy use by hour of the day: too little forecast costs four times as much as too much,
and neighbouring hours should be alike. The first is a quantile loss, the second a fused
penalty. No estimator has both; written down they are one line.
"""

import numpy as np

import varopt as vo
from varopt.learn import CompositeRegressor

try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    raise SystemExit("Needs Matplotlib: pip install 'varopt[plot]'") from None

# %%
# A year of hourly demand, each hour with a feature of its own.
rng = np.random.default_rng(0)
hours = np.tile(np.arange(24), 365)
profile = np.select(
    [np.arange(24) < 6, np.arange(24) < 9, np.arange(24) < 17, np.arange(24) < 21],
    [20.0, 34.0, 30.0, 42.0],
    26.0,
)
demand = profile[hours] * rng.lognormal(0.0, 0.25, hours.size)
X = (hours[:, None] == np.arange(24)).astype(float)

# %%
# Written down: the 80 % quantile, and a price for every step between neighbouring
# hours.
w = vo.Variable(24, name="profile")
loss = vo.sum(vo.pinball(demand - X @ w, 0.8)) / demand.size
r = vo.minimize(loss + 0.02 * vo.norm1(vo.diff(w)))
print(r)

# %%
# As an estimator, for a pipeline or a grid search.
model = CompositeRegressor(
    loss="quantile",
    quantile=0.8,
    penalty=lambda w: vo.norm1(vo.diff(w)),
    alpha=0.02,
    fit_intercept=False,
)
model.fit(X, demand)
print(
    f"the same to {np.abs(model.coef_ - r[w]).max():.1e}; {np.mean(demand <= model.predict(X)):.1%} of the hours were covered"
)

# %%
figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
axes.plot(
    hours[:2400] + rng.uniform(-0.3, 0.3, 2400),
    demand[:2400],
    ".",
    ms=2,
    color="0.75",
    label="demand, 100 days",
)
axes.stairs(
    r[w],
    np.arange(25) - 0.5,
    baseline=None,
    color="C3",
    lw=2,
    label="80 % quantile, fused",
)
axes.set(
    xlabel="hour of the day",
    ylabel="MWh",
    title=f"{np.count_nonzero(np.abs(np.diff(r[w])) > 1e-6) + 1} levels a day",
    ylim=(0, 90),
)
axes.legend()
plt.show()
