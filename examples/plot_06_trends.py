"""
The trend in a noisy series
===========================

Where did a price turn? Trend filtering fits a line that bends only where the data
insist [Kim, Koh, Boyd and Gorinevsky, 2009]: the number of bends is found, not given.
"""

import numpy as np

from varopt.learn import TrendFilter

try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    raise SystemExit("Needs Matplotlib: pip install 'varopt[plot]'") from None

# %%
# Four years of trading days: a log price whose drift changes every half year or so.
rng = np.random.default_rng(0)
drift = np.repeat(rng.normal(0.0, 6e-4, 8), 125)
price = 7.0 + np.cumsum(drift) + 0.2 * np.cumsum(rng.normal(0.0, 0.011, drift.size))
days = np.arange(price.size)[:, None]

# %%
# A larger alpha gives fewer bends. Every fit is exact, whatever the length.
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(price, color="0.7", lw=0.8, label="log price")
for alpha, colour in ((0.002, "C1"), (0.025, "C0"), (0.5, "C3")):
    model = TrendFilter(alpha=alpha).fit(days, price)
    trend = model.predict(days)
    bends = np.flatnonzero(np.abs(np.diff(trend, 2)) > 1e-8) + 1
    bends = bends[
        np.diff(bends, prepend=-1) > 1
    ]  # one that falls between two days bends at both
    print(f"alpha {alpha}: {bends.size + 1} straight lines, gap {model.gap_:.0e}")
    axes.plot(
        trend, color=colour, lw=1.6, label=f"alpha {alpha}: {bends.size + 1} lines"
    )
axes.set(xlabel="trading day", ylabel="log price", title="A trend in straight lines")
axes.legend()
plt.show()
