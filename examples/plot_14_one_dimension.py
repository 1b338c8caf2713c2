"""
The idea in one dimension
=========================

The paper's idea, moving: a function with kinks and jumps, its average under a Gaussian,
and the Gaussian that walks down the average while it narrows [Staines and Barber,
2012]. For every mean and every sigma the average lies above the minimum.
"""

import numpy as np

import varopt as vo

try:
    import matplotlib.pyplot as plt
    from matplotlib.animation import FuncAnimation
except ModuleNotFoundError:
    raise SystemExit("Needs Matplotlib: pip install 'varopt[plot]'") from None

# %%
# A function with a kink, a step and two valleys, as a sum of terms: its average is
# known in closed form.
x = vo.Variable(name="x")
f = (
    vo.abs(x - 1.0)
    + 1.5 * vo.step(x + 1.0)
    - 2.0 * vo.ramp(x + 3.0)
    + 0.6 * vo.capped_abs(x - 2.5, 1.0)
)
print(f.explain())

# %%
# Descend the average in the mean, by its own gradient, while sigma falls by a
# twentieth a step. A descent of f itself from here would end in the first valley, at
# -3.
mean, sigma, course = -5.0, 4.0, []
for _ in range(70):
    E = vo.bound(f, vo.Gaussian([mean], sigma))
    course.append((mean, sigma, E.value))
    mean -= 0.35 * sigma * float(np.asarray(E.gradient["mean"]).item())
    sigma *= 0.95
print(f"the mean ends at {mean:.3f}, where f is {float(f(mean)):.4f}")

# %%
# The function, the average as a function of the mean at the present sigma, and the
# distribution.
grid = np.linspace(-6.0, 6.0, 241)
means = grid[::4]
values = np.array([float(f(g)) for g in grid])
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(grid, values, color="0.4", lw=1, label="f")
axes.axhline(values.min(), color="0.7", lw=0.8, ls=":", label="its minimum")
(average,) = axes.plot(
    [], [], color="C0", lw=2, label="average of f under the Gaussian"
)
(bell,) = axes.plot([], [], color="C1", lw=1, label="the Gaussian")
(point,) = axes.plot([], [], "o", color="C3", label="where it is")
axes.set(xlabel="x", ylim=(values.min() - 1.5, 8.0))
axes.legend(loc="upper right", fontsize=8)


def draw(frame):
    """One step of the descent."""
    mean, sigma, value = course[frame]
    average.set_data(means, [vo.bound(f, vo.Gaussian([g], sigma)).value for g in means])
    density = np.exp(-0.5 * ((grid - mean) / sigma) ** 2)
    bell.set_data(grid, values.min() - 1.4 + density)
    point.set_data([mean], [value])
    axes.set_title(
        f"step {frame}: sigma {sigma:.2f}, average {value:.3f} >= minimum {values.min():.3f}"
    )
    return average, bell, point


animation = FuncAnimation(figure, draw, frames=range(0, len(course), 2), interval=120)
plt.show()
