"""
How sure is a coefficient?
==========================

Does another year of experience raise low wages as much as high ones? Quantile regression
fits a line for every level, and `inference` says how well each coefficient is known. The
picture shows them across the levels, with a band that covers the truth 95 times in 100.
"""

import numpy as np

from varopt.learn import QuantileRegressor, inference

try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    raise SystemExit("Needs Matplotlib: pip install 'varopt[plot]'") from None

# %%
# Wages whose spread grows with experience, but not with the size of the firm.
rng = np.random.default_rng(0)
experience, size = rng.uniform(0.0, 30.0, 3000), rng.integers(1, 6, 3000)
noise = rng.standard_normal(3000)
wage = 10.0 + 0.3 * experience + 0.8 * size + (1.0 + 0.12 * experience) * noise
X = np.column_stack([experience, size])

# %%
# Nine levels in one fit. Standard errors allow the spread to differ from row to row.
levels = np.linspace(0.1, 0.9, 9)
model = QuantileRegressor(quantile=levels, alpha=0.0).fit(X, wage)
known = inference(model, X, wage)
axes = known.plot(names=["x0", "x1"])
axes[0, 0].set_title("a year of experience")
axes[0, 1].set_title("a class of size")
plt.show()

# %%
# Is the slope the same at all levels? For experience no, for size there is no sign of
# a difference.
for name, title in (("x0", "experience"), ("x1", "size")):
    test = known.equal_slopes([name])
    print(f"{title}: F = {test.statistic:.1f}, p = {test.pvalue:.2g}")

# %%
# A bootstrap needs no formula. It refits a thousand samples, each in a tenth of a fit.
middle = QuantileRegressor(quantile=0.5, alpha=0.0).fit(X, wage)
print(inference(middle, X, wage, method="bootstrap"))
