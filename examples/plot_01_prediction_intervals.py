"""
A range for every prediction
============================

How long will a delivery take? Rather than one number for each distance, give two: below
the first arrive 5 %, above the second 5 %. Quantile regression fits them. Its loss has
a kink at zero, which slows general solvers down; here all levels are fitted together,
exactly, and on request never cross.
"""

import numpy as np
from sklearn.model_selection import train_test_split

from varopt.learn import QuantileRegressor

try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    raise SystemExit("Needs Matplotlib: pip install 'varopt[plot]'") from None

# %%
# Delivery times that spread with the distance, and now and then take very long.
rng = np.random.default_rng(0)
distance = rng.uniform(1.0, 20.0, 3000)
minutes = (
    12.0 + 2.2 * distance + (0.5 + 0.45 * distance) * rng.standard_gamma(1.5, 3000)
)
X = np.column_stack([distance, np.sqrt(distance)])
X_train, X_test, y_train, y_test = train_test_split(X, minutes, random_state=0)

# %%
# One fit for three levels.
model = QuantileRegressor(quantile=[0.05, 0.5, 0.95], alpha=0.0, non_crossing=True).fit(
    X_train, y_train
)
low, median, high = model.predict(X_test).T
inside = np.mean((low <= y_test) & (y_test <= high))
print(
    f"{inside:.1%} of the new deliveries are inside their range; 90 % were meant to be."
)
print(
    f"No coefficients have a loss below {model.lower_bound_:.9f}; these have {model.objective_:.9f}."
)

# %%
# The band widens where deliveries are less predictable. A normal distribution around
# a mean would be symmetric, and of one width.
grid = np.linspace(1.0, 20.0, 200)
low, median, high = model.predict(np.column_stack([grid, np.sqrt(grid)])).T
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(X_test[:, 0], y_test, ".", ms=3, color="0.6", label="new deliveries")
axes.fill_between(grid, low, high, alpha=0.25, label="90 % of them")
axes.plot(grid, median, lw=2, label="as many above as below")
axes.set(
    xlabel="distance in km",
    ylabel="minutes",
    title=f"{inside:.1%} of new deliveries inside",
    ylim=(0, 120),
)
axes.legend(loc="upper left")
plt.show()
