"""
Gained and lost stretches of a genome
=====================================

Along a genome most genes have two copies. In a tumour stretches are gained or lost: the
log-ratio of copies is zero, but for a few stretches of constant level. That is the
fused lasso [Tibshirani and Wang, 2008], with a price for every level and one for every
change.
"""

import numpy as np
import scipy.sparse as sp

from varopt.learn import FusedLasso

try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    raise SystemExit("Needs Matplotlib: pip install 'varopt[plot]'") from None

# %%
# 990 positions, generated to look like the data of that paper.
levels = np.repeat(
    [0.0, 0.9, 0.0, 4.5, 0.0, -0.6, 0.0], [85, 100, 240, 25, 300, 140, 100]
)
y = levels + 0.45 * np.random.default_rng(0).standard_normal(levels.size)

# %%
# A signal is a design matrix with ones on its diagonal, and stays sparse.
model = FusedLasso(alpha=0.1 / y.size, fusion=3.0 / y.size, fit_intercept=False).fit(
    sp.eye_array(y.size), y
)
changed = np.flatnonzero(np.diff(np.abs(model.coef_) > 0.2)) + 1
print(f"objective {model.objective_:.9f}, at most {model.gap_:.0e} above the optimum")
print("stretches that differ begin and end at", changed)

# %%
figure, axes = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
axes.plot(y, ".", color="0.6", ms=3, label="log-ratios")
axes.plot(model.coef_, color="C3", lw=1.8, label="fused lasso")
axes.axhline(0.0, color="0.8", lw=0.8, zorder=0)
axes.set(
    xlabel="position along the genome",
    ylabel="log-ratio of copy numbers",
    title="Three stretches differ",
)
axes.legend()
plt.show()
