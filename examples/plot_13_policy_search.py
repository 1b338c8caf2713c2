"""
A policy by trial and error
===========================

A cart has to keep a pole upright. The score of a policy comes from a simulation with
pushes left or right, and has no gradient: the pole falls or it does not. The
distribution over policies has one.
"""

import numpy as np

import varopt as vo

try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    raise SystemExit("Needs Matplotlib: pip install 'varopt[plot]'") from None

# %%
# A cart and a pole, 0.02 s a step, in plain NumPy [Barto, Sutton and Anderson, 1983].
# The push is to the left or to the right, never between.
STARTS = np.random.default_rng(0).uniform(-0.15, 0.15, (8, 4))


def steps_upright(weights, starts=STARTS, most=500):
    """Steps that the pole stays up, on average over starts; and the angles on the way."""
    x, v, angle, spin = starts.T.copy()
    alive, total, angles = np.ones(len(starts), dtype=bool), 0.0, []
    for _ in range(most):
        push = np.where(weights @ np.array([x, v, angle, spin]) > 0.0, 10.0, -10.0)
        swing = (push + 0.05 * spin**2 * np.sin(angle)) / 1.1
        turn = (9.8 * np.sin(angle) - np.cos(angle) * swing) / (
            0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1)
        )
        drive = swing - 0.05 * turn * np.cos(angle) / 1.1
        x, v, angle, spin = (
            x + 0.02 * v,
            v + 0.02 * drive,
            angle + 0.02 * spin,
            spin + 0.02 * turn,
        )
        alive &= (np.abs(x) < 2.4) & (np.abs(angle) < 0.21)
        total += alive.mean()
        angles.append(np.where(alive, angle, np.nan))
        if not alive.any():
            break
    return total, np.array(angles)


# %%
# Four weights, at most 400 trials. For so few ``minimize`` would take a Gaussian
# process; by name, ``cma`` moves a distribution over policies uphill.
r = vo.maximize(
    lambda w: steps_upright(w)[0],
    vo.Box(-1.0, 1.0, size=4),
    budget=400,
    seed=0,
    target=500.0,
    method="cma",
)
print(r)
fresh = np.random.default_rng(1).uniform(-0.15, 0.15, (50, 4))
print(
    f"From 50 starts never tried before: {steps_upright(r.x, fresh)[0]:.0f} of 500 steps"
)

# %%
# Left: the average climbs with the best, generation after generation. Right: the first
# guess drives the cart off its track, where its line ends.
first = vo.Search(vo.Box(-1.0, 1.0, size=4), seed=0, method="cma").ask(1)[0]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
left.plot(r.history["evaluations"], r.history["best"], label="best policy")
left.plot(
    r.history["evaluations"], r.history["mean"], label="average of the distribution"
)
left.set(xlabel="trials", ylabel="steps upright, of 500", title="learning")
left.legend()
for name, weights in (("first guess", first), ("found", r.x)):
    angles = steps_upright(weights)[1][:, 0]
    right.plot(0.02 * np.arange(angles.size), np.degrees(angles), label=name)
    if np.isnan(angles).any():
        last = np.isfinite(angles).sum() - 1
        right.plot(0.02 * last, np.degrees(angles[last]), "kx")
right.set(xlabel="seconds", ylabel="angle of the pole in degrees", title="one start")
right.legend()
plt.show()
