"""
Choose features that do not repeat each other
=============================================

Which of thirty measurements are worth keeping? Each should tell much about the
diagnosis, and little that another kept one tells already. With a bit for each feature
that is a quadratic in bits, a QUBO; here with a proof that no choice is better.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from varopt.discrete import qubo

try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    raise SystemExit("Needs Matplotlib: pip install 'varopt[plot]'") from None

# %%
# What a feature tells is its correlation with the target, what two repeat is a tenth
# of their correlation with each other.
data = load_breast_cancer()
X, y = data.data, data.target
correlation = np.abs(np.corrcoef(np.column_stack([X, y]).T))
useful, repeated = correlation[-1, :-1], np.triu(correlation[:-1, :-1], 1)
r = qubo(0.1 * repeated, -useful)
chosen = np.flatnonzero(r.x)
keep = chosen.size
print(r)
print([str(data.feature_names[i]) for i in chosen])

# %%
# Against as many that tell most one by one, with a classifier that sees only these.
model = make_pipeline(StandardScaler(), LogisticRegression())
greedy = np.argsort(-useful)[:keep]
for name, features in (("QUBO", chosen), ("one by one", greedy)):
    score = cross_val_score(model, X[:, features], y, cv=5).mean()
    shared = repeated[np.ix_(features, features)].sum() / (keep * (keep - 1) / 2)
    print(
        f"{name:<11} accuracy {score:.1%}, mean correlation of two features {shared:.2f}"
    )

# %%
figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.8), layout="constrained", sharey=True)
for axis, (name, features) in zip(
    axes, (("one by one", np.sort(greedy)), ("QUBO", chosen)), strict=True
):
    image = axis.imshow(
        correlation[np.ix_(features, features)], vmin=0, vmax=1, cmap="magma"
    )
    axis.set(title=f"correlations of {keep} features: {name}", xticks=[], yticks=[])
figure.colorbar(image, ax=axes)
plt.show()
