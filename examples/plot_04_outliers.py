"""
A line through data with outliers
=================================

One row in five was recorded wrongly. Least squares follows it. Losses with a kink, or
that stop growing, do not.
"""

import numpy as np
from sklearn.linear_model import LinearRegression

import varopt as vo
from varopt.learn import HuberRegressor, LADRegressor

try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    raise SystemExit("Needs Matplotlib: pip install 'varopt[plot]'") from None

# %%
# A true slope of 2, and 20 % of the rows far off, all on one side.
rng = np.random.default_rng(1)
x = np.sort(rng.uniform(0.0, 10.0, 120))
y = 1.0 + 2.0 * x + rng.standard_normal(120)
wrong = rng.random(120) < 0.05 + 0.03 * x
y[wrong] -= rng.uniform(15.0, 30.0, wrong.sum())
X = x[:, None]

# %%
# Least squares, Huber's loss and absolute deviations, as estimators.
fits = {
    "least squares": LinearRegression().fit(X, y),
    "Huber": HuberRegressor().fit(X, y),
    "absolute deviations": LADRegressor(alpha=0.0).fit(X, y),
}
lines = {
    name: (model.coef_.item(), float(model.intercept_)) for name, model in fits.items()
}

# %%
# A loss that stops growing at 3 is not convex. ``minimize`` then says so: the answer
# is the best of several starts, and the lower bound is what a convex relaxation
# proves.
w, b = vo.Variable(name="slope"), vo.Variable(name="intercept")
r = vo.minimize(vo.sum(vo.capped_abs(y - x * w - b, 3.0)))
lines["capped at 3"] = (r[w], r[b])
print(r)
for name, (slope, _) in lines.items():
    print(f"{name:<20} slope {slope:.3f}, {abs(slope - 2.0):.3f} off")

# %%
figure, axes = plt.subplots(figsize=(7, 4.8), layout="constrained")
axes.plot(x[~wrong], y[~wrong], ".", color="0.5", label="rows")
axes.plot(x[wrong], y[wrong], "x", color="C3", ms=5, label="recorded wrongly")
for name, (slope, intercept) in lines.items():
    axes.plot(x, intercept + slope * x, label=f"{name}: slope {slope:.2f}")
axes.set(xlabel="x", ylabel="y", title="The true slope is 2")
figure.legend(loc="outside lower center", ncols=2, fontsize=9)
plt.show()
