"""
Two teams with the most rivalry between them
============================================

Divide a network in two so that as many links as possible run between the parts: Max-
Cut. Searches give a number. Here a semidefinite programme gives another that no
division exceeds, so that you know when to stop looking.
"""

import numpy as np

from varopt.discrete import max_cut

try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    raise SystemExit("Needs Matplotlib: pip install 'varopt[plot]'") from None

# %%
# 300 people, each knows about ten others; too many for a proof by branching.
rng = np.random.default_rng(0)
people = 300
links = np.triu(rng.random((people, people)) < 10 / people, 1)
history = []
r = max_cut(
    links + links.T,
    time_limit=3.0,
    callback=lambda s: history.append((s.elapsed, s.upper, s.lower)),
)
print(r)
print(
    f"{r.fun:.0f} of {links.sum()} links run between the teams; at most {r.upper:.0f} can: within {r.gap / r.fun:.1%}"
)

# %%
# Small ones are proved: the first 60 people among themselves.
small = max_cut((links + links.T)[:60, :60])
print(f"Of 60 people: {small.status.name}, {small.fun:.0f} links between the teams")

# %%
# The two sides against time. The search knows its best value early; the rest of the
# time is a bound and attempts to do better.
seconds, cut, bound = np.array(history).T
figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
axes.step(seconds, -cut, where="post", label="best cut found")
axes.step(
    seconds,
    np.where(np.isfinite(bound), -bound, np.nan),
    where="post",
    label="no cut is larger",
)
axes.axhspan(r.lower, r.upper, color="0.9", zorder=0)
axes.set(
    xlabel="seconds",
    ylabel="links between the teams",
    title=f"the optimum lies in [{r.lower:.0f}, {r.upper:.0f}]",
)
axes.set_ylim(0.97 * r.lower, 1.06 * r.upper)
axes.legend()
plt.show()
