"""
A sparse signal from few measurements
=====================================

Sixty measurements of a signal with 200 entries are too few, unless most entries are
zero: then least squares with an L1 penalty (the lasso) recovers it. The whole path of
penalties is one call.
"""

import numpy as np

import varopt as vo

try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    raise SystemExit("Needs Matplotlib: pip install 'varopt[plot]'") from None

# %%
# Eight spikes among 200 entries, seen through 60 random averages with a little noise.
rng = np.random.default_rng(0)
signal = np.zeros(200)
places = rng.choice(200, 8, replace=False)
signal[places] = rng.choice([-1.0, 1.0], 8) * rng.uniform(1.0, 3.0, 8)
A = rng.standard_normal((60, 200)) / np.sqrt(60)
y = A @ signal + 0.05 * rng.standard_normal(60)

# %%
# A parameter left open makes a family of problems, each solved from its neighbour's
# solution.
x, lam = vo.Variable(200, name="x"), vo.Parameter(name="lam")
largest = 2 * np.abs(A.T @ y).max()
path = vo.path(
    vo.sum_squares(y - A @ x) + lam * vo.norm1(x),
    lam,
    largest * np.geomspace(0.9, 1e-3, 40),
)
print(path)

# %%
# Most of the noise is averaged out near the penalty at which the residual is as large
# as the noise.
residual = np.array([np.linalg.norm(y - A @ point) for point in path.x])
chosen = int(np.flatnonzero(residual <= 0.05 * np.sqrt(60) * 1.5)[0])
found = path[chosen][x]
print(
    f"{np.count_nonzero(np.abs(found) > 0.1)} entries above 0.1, at {np.flatnonzero(np.abs(found) > 0.1)}"
)
print(f"true ones at                 {np.sort(places)}")

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
path.plot(x, axes=left)
left.axvline(path.values[chosen], color="0.5", ls=":", label="chosen")
left.set(title="every entry along the path", xlabel="penalty lam", ylabel="entry")
left.legend(loc="lower right")
right.stem(
    places, signal[places], linefmt="C2-", markerfmt="C2o", basefmt=" ", label="true"
)
nonzero = np.flatnonzero(found)
right.plot(nonzero, found[nonzero], "x", color="C3", label="found")
right.set(title="the signal", xlabel="place")
right.legend()
plt.show()
