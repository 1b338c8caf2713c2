"""
A timetable without clashes
===========================

Exams that share students must not be in the same slot. Give each exam one of a few
slots: a colouring of the graph of clashes, as a polynomial in choices. An energy of
zero is a timetable; a proof that zero is out of reach says that the slots are too few.
"""

import numpy as np

import varopt as vo

try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    raise SystemExit("Needs Matplotlib: pip install 'varopt[plot]'") from None

# %%
# 20 exams of a course of studies; 60 students take three each, of those that are
# taught at about the same time.
rng = np.random.default_rng(0)
exams = 20
clash = np.zeros((exams, exams))
for _ in range(60):
    taken = (rng.integers(exams) + rng.choice(5, 3, replace=False)) % exams
    clash[np.ix_(taken, taken)] += 1.0
np.fill_diagonal(clash, 0.0)
pairs = np.argwhere(np.triu(clash))


def clashes(slots):
    """The number of students, summed over pairs of exams, who would have to be in two places at once."""
    slot = vo.Categorical(exams, slots, name="slot")
    first, *others = (
        clash[i, j] * (slot[i] @ slot[j]) for i, j in pairs
    )  # one where both are in the same slot
    return vo.minimize(sum(others, start=first)), slot


# %%
# How many slots does it take?
counts = range(2, 7)
results = {slots: clashes(slots) for slots in counts}
for slots, (r, _) in results.items():
    print(
        f"{slots} slots: {r.fun:3.0f} clashes, and no timetable has fewer than {r.lower:.0f}: {r.status.name}"
    )
enough = min(slots for slots, (r, _) in results.items() if r.fun == 0.0)

# %%
r, slot = results[enough]
timetable = r[slot].argmax(axis=1)
order = np.argsort(timetable, kind="stable")
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
left.bar(list(counts), [results[slots][0].fun for slots in counts])
left.set(
    xlabel="slots", ylabel="clashes", title=f"{enough} slots are enough, fewer are not"
)
right.imshow(clash[np.ix_(order, order)], cmap="Blues")
edges = np.cumsum(np.bincount(timetable, minlength=enough))[:-1] - 0.5
right.vlines(edges, -0.5, exams - 0.5, color="C3", lw=0.8)
right.hlines(edges, -0.5, exams - 0.5, color="C3", lw=0.8)
right.set(title="clashes by slot: none inside a block", xticks=[], yticks=[])
plt.show()
