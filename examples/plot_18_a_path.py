"""
A path, from strong to weak
===========================

How many of ten measurements does one need to foretell how diabetes goes on? The lasso
answers with a path: as its penalty weakens, one coefficient after the other leaves zero.
Cross-validation says how far to go.
"""

import numpy as np
from sklearn.datasets import load_diabetes

from varopt.learn import Lasso, LassoCV

try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    raise SystemExit("Needs Matplotlib: pip install 'varopt[plot]'") from None

# %%
# A hundred strengths. Between its breaks the path is straight, so that few of them need a
# solve of their own, and each has a certified gap.
data = load_diabetes()
X, y = data.data, data.target
alphas, coefs, gaps = Lasso.path(X, y - y.mean(), l1_ratio=1.0)
print(f"largest gap: {gaps.max():.1e}, of objectives of about {np.var(y) / 2:.0f}")

# %%
# The validation curve, and two rules: the least mean error of five folds, and the
# strongest penalty within one standard error of it.
best, sparse = LassoCV().fit(X, y), LassoCV(rule="1se").fit(X, y)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
lines = left.plot(alphas, coefs.T, lw=1.2)
for model, style in ((best, ":"), (sparse, "--")):
    left.axvline(model.alpha_, color="0.3", lw=1, ls=style)
left.set(xscale="log", xlabel="alpha", ylabel="coefficient")
left.legend(lines, data.feature_names, frameon=False, fontsize="small", ncols=2)
sparse.plot(right)
plt.show()

# %%
# As good as can be told, with fewer measurements:
for name, model in (("least error", best), ("one standard error", sparse)):
    kept = [data.feature_names[k] for k in np.flatnonzero(model.coef_)]
    print(f"{name}: {len(kept)} of 10 ({', '.join(kept)})")
