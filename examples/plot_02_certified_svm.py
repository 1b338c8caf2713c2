"""
A classifier that says how wrong it may be
==========================================

A support vector machine minimises a loss. Solvers stop somewhere near the minimum, and
most do not say how near. This one keeps two numbers: what it has reached, and what no
coefficients can go below. Watch them meet.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer, make_classification

import varopt as vo
from varopt.learn import LinearSVC

try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    raise SystemExit("Needs Matplotlib: pip install 'varopt[plot]'") from None

# %%
# Tumours, described by 30 measurements in their own units, from 0.001 to 4000.
# Nothing is scaled.
X, y = load_breast_cancer(return_X_y=True)
model = LinearSVC(loss="hinge", C=1.0).fit(X, y)
print(f"loss         {model.objective_:.12f}")
print(f"no less than {model.lower_bound_:.12f}")
print(f"accuracy     {model.score(X, y):.1%} on the data it was fitted to")

# %%
# A larger problem, written down. It is stopped after the first level of sigma, after
# the second, and so on: whenever it ends, by a limit or from the keyboard, the answer
# comes with a bracket.
X, y = make_classification(4000, 40, n_informative=15, flip_y=0.1, random_state=0)
t = np.where(y == 1, 1.0, -1.0)
w, b = vo.Variable(40, name="w"), vo.Variable(name="b")
f = 0.5 * vo.sum_squares(w) + vo.sum(vo.hinge(t * (X @ w + b)))


def stop_after(levels):
    """A callback that ends a run after so many levels of sigma."""
    seen = []

    def callback(state):
        seen.append(state.sigma)
        if len(seen) == levels:
            raise StopIteration

    return callback


best = vo.minimize(f, method="newton")
stopped = [
    vo.minimize(f, method="newton", callback=stop_after(levels))
    for levels in range(1, len(best.history["sigma"]))
]
for r in stopped:
    print(f"sigma {r.sigma:<9.3g} between {r.lower:.4f} and {r.upper:.4f}")
print(best)

# %%
# How far the two numbers are from the optimum. The last step is exact.
levels = np.arange(1, len(stopped) + 2)
above = [r.upper / best.fun - 1.0 for r in [*stopped, best]]
below = [1.0 - r.lower / best.fun for r in [*stopped, best]]
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.semilogy(levels, np.maximum(above, 1e-16), "o-", label="reached: above it by")
axes.semilogy(levels, np.maximum(below, 1e-16), "s-", label="proved: below it by")
axes.fill_between(levels, 1e-17, np.maximum(above, below), alpha=0.1)
axes.set(
    xlabel="levels of sigma", ylabel="distance to the optimum, relative",
    title="The bracket closes", ylim=(1e-17, 1),
)  # fmt: skip
axes.legend(loc="lower left")
plt.show()
