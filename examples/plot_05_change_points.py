"""
When did it change?
===================

A quantity stays at a level and jumps now and then; measurements are noisy. Total
variation finds a signal of few jumps that is close to the data, exactly and in one
pass, however long the record.
"""

import time

import numpy as np

import varopt as vo

try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    raise SystemExit("Needs Matplotlib: pip install 'varopt[plot]'") from None

# %%
# Three years of daily measurements with five jumps.
rng = np.random.default_rng(0)
days = 1095
jumps = np.array([130, 290, 480, 700, 940])
level = np.repeat([2.0, 3.5, 1.0, 2.2, 4.0, 3.0], np.diff([0, *jumps, days]))
y = level + 0.8 * rng.standard_normal(days)

# %%
# Half the squared distance to the data, and a price for every jump.
x = vo.Variable(days, name="level")
started = time.perf_counter()
r = vo.minimize(0.5 * vo.sum_squares(x - y) + 30.0 * vo.norm1(vo.diff(x)))
seconds = time.perf_counter() - started
fitted = r[x]
found = np.flatnonzero(np.abs(np.diff(fitted)) > 0.1) + 1
found = found[
    np.diff(found, prepend=-100) > 10
]  # steps on the way from one level to the next count once
print(f"{r.method}, {1e3 * seconds:.0f} ms, gap {r.gap:.1e}")
print("jumps found at", found)
print("true ones at  ", jumps)

# %%
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
axes.plot(y, ".", ms=2, color="0.7", label="measured")
axes.plot(level, color="C2", lw=3, alpha=0.5, label="true level")
axes.plot(fitted, color="C3", lw=1.5, label="total variation")
axes.vlines(found, *axes.get_ylim(), color="C3", lw=0.5, ls=":")
axes.set(xlabel="day", title=f"{found.size} jumps found, {jumps.size} true ones")
axes.legend(loc="lower right")
plt.show()
