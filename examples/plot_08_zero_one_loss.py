"""
The fewest errors a line can make
=================================

Classifiers minimise a stand-in for the number of errors, because that number is flat
almost everywhere. Its average under noise is not flat: it can be descended. With two
features all ways to draw a line are then looked at, and the answer is proved.
"""

import numpy as np
from sklearn.linear_model import LogisticRegression

from varopt.learn import LinearSVC, ZeroOneClassifier

try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    raise SystemExit("Needs Matplotlib: pip install 'varopt[plot]'") from None

# %%
# Two classes that a line would divide with few errors, and a cluster of rows with
# swapped labels far away.
rng = np.random.default_rng(3)
X = rng.normal(size=(140, 2)) @ [[1.2, 0.4], [0.0, 0.8]]
y = (X @ [1.0, -1.5] + 0.35 * rng.normal(size=140) > 0).astype(int)
X = np.vstack([X, rng.normal([3.0, -2.5], 0.3, size=(8, 2))])
y = np.append(y, np.zeros(8, dtype=int))

models = {
    "logistic regression": LogisticRegression(C=1e3).fit(X, y),
    "support vector machine": LinearSVC(loss="hinge", C=100.0).fit(X, y),
    "0-1 loss": ZeroOneClassifier().fit(X, y),
}
errors = {name: int(np.sum(model.predict(X) != y)) for name, model in models.items()}
for name, count in errors.items():
    print(f"{name:<24} {count} errors")
exact = models["0-1 loss"]
print(
    f"No line makes fewer than {round(exact.lower_bound_ * y.size)}: {type(exact.certificate_).__name__}."
)

# %%
figure, axes = plt.subplots(figsize=(7, 4.4), layout="constrained")
for label, marker in ((0, "o"), (1, "s")):
    axes.plot(*X[y == label].T, marker, ms=4, alpha=0.6, label=f"class {label}")
ends = np.array([-7.0, 4.5])
for (name, model), style in zip(models.items(), (":", "--", "-"), strict=True):
    (a, c), b = model.coef_.ravel(), model.intercept_.item()
    axes.plot(
        ends,
        -(a * ends + b) / c,
        style,
        color="k",
        label=f"{name}: {errors[name]} errors",
    )
axes.set(
    xlim=(-7, 4.5), ylim=(-4, 3), title="Eight rows with swapped labels, lower right"
)
axes.legend(fontsize=8, loc="upper left")
plt.show()
