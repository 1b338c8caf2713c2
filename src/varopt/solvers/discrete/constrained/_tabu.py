r"""A tabu search whose moves keep to what they can, and whose multipliers are found for the rest [GloverLaguna97].

A group of which exactly one bit is on stays so: moves change which, or let two groups of one length exchange theirs,
as two cities of a tour or two facilities their places; bits of no group flip, or one goes off as another goes on. What
constraints are missed by is charged with multipliers: raised while they are missed, lowered while all hold, so that the
search goes to and fro across the boundary and nobody has to guess a penalty.

[GloverLaguna97] F. Glover, M. Laguna. Tabu Search. Kluwer, 1997. [Taillard91] E. Taillard. Robust taboo search for the
quadratic assignment problem. Parallel Computing 17, 1991.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.discrete._energy import Energy
from varopt.solvers.discrete.constrained._limits import Limits

__all__ = ["searched"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

_STARTS = 12
_TABU_STEPS = 250  # of each start without improvement,
_EXCHANGE_STEPS = 1000  # and of exchanges, which are cheaper
_MOVES = 200  # of each kind that are looked at in one step, drawn at random where there are more
_MULTIPLIERS_RAISED, _MULTIPLIERS_LOWERED = 1.3, 0.93  # by which multipliers change


def searched(
    energy: Energy, limits: Limits, rng: np.random.Generator, see: Callable[[Vector, float], None],
    check: Callable[[], None], start: Vector | None = None,
) -> None:  # fmt: skip
    """Show `see` every better point that satisfies all constraints; `check` may raise to end the search."""
    search = _Search(energy, limits, rng, see)
    for k in range(_STARTS):
        search.run(start if k == 0 and start is not None else search.drawn(), check)


class _Search:
    def __init__(self, energy: Energy, limits: Limits, rng: np.random.Generator, see: Callable[[Vector, float], None]):
        self.energy, self.limits, self.rng, self.see = energy, limits, rng, see
        self.groups = limits.groups(energy)
        grouped = np.zeros(energy.size, dtype=bool)
        for group in self.groups:
            grouped[group] = True
        self.free = np.flatnonzero(~grouped)
        lengths = [group.size for group in self.groups]
        alike = [(a, b) for a, b in combinations(range(len(lengths)), 2) if lengths[a] == lengths[b]]
        self.pairs = np.array(alike, dtype=np.intp).reshape(-1, 2)
        self.table = np.full((len(lengths), max(lengths, default=0)), -1)  # the bits of each group,
        self.place = np.zeros(energy.size, dtype=np.intp)  # and where in its group a bit is
        for k, group in enumerate(self.groups):
            self.table[k, : group.size] = group
            self.place[group] = np.arange(group.size)
        self.tied = bool(self.pairs.size) and self._tied()
        self.best = np.inf
        self.charge = max(energy.unit, 1e-12) / np.maximum(
            np.asarray(abs(limits.matrix).max(axis=1).toarray()).ravel(), 1e-12
        )

    def _tied(self) -> bool:
        """Whether each bit is in an equation beside that of its group, as in an assignment: exchanges keep these."""
        own = {tuple(np.sort(group).tolist()) for group in self.groups}
        tied = np.zeros(self.energy.size, dtype=bool)
        for k in np.flatnonzero(self.limits.equal):
            bits = self.limits.matrix[[k]].indices
            if tuple(np.sort(bits).tolist()) not in own:
                tied[bits] = True
        return not self.free.size and bool(tied.all())

    def drawn(self) -> Vector:
        """A random point: one of each group, as a permutation where the groups are as many as their bits."""
        x = np.zeros(self.energy.size)
        x[self.free] = self.rng.random(self.free.size) < 0.5
        orders: dict[int, list[int]] = {}
        for group in self.groups:
            left = orders.get(group.size) or self.rng.permutation(group.size).tolist()
            x[group[left[-1]]] = 1.0
            orders[group.size] = left[:-1]
        return x

    def run(self, x: Vector, check: Callable[[], None]) -> None:
        x, tabu = x.copy(), np.zeros(self.energy.size, dtype=np.intp)
        charge, idle, step, own, exchanges = self.charge.copy(), 0, 0, np.inf, False
        while idle < (_EXCHANGE_STEPS if exchanges else _TABU_STEPS):
            check()
            step, idle = step + 1, idle + 1
            missed = self.limits.excess(x)
            value = float(self.energy.value(x))
            if not missed.any():
                charge = charge * _MULTIPLIERS_LOWERED
                if value < own:
                    own, idle = value, 0
                if value < self.best:
                    self.best = value
                    self.see(x.copy(), value)
            else:
                charge = np.where(missed > 0.0, charge * _MULTIPLIERS_RAISED, charge)
            exchanges = self.tied and not missed.any()
            moves = self._moves(x, exchanges)
            if not len(moves):
                return
            trial, columns = np.repeat(x[:, None], len(moves), axis=1), np.arange(len(moves))
            for bits in moves.T:  # a bit that is named twice changes once: -1 names none
                live = bits >= 0
                trial[bits[live], columns[live]] = 1.0 - x[bits[live]]
            recent = np.where(moves >= 0, tabu[moves], 0) > step
            # An exchange is held where both of the bits that it turns on were turned off not long ago [Taillard91].
            held = recent[:, 2] & recent[:, 3] if exchanges else np.any(recent, axis=1)
            excess = self.limits.excess(trial)
            values = np.asarray(self.energy.value(trial))
            allowed = ~excess.any(axis=0)
            score = values + charge @ excess
            score = np.where(held & ~(allowed & (values < self.best)), np.inf, score)
            if not np.isfinite(score).any():
                continue
            least = np.flatnonzero(score <= score.min() + 1e-12 * self.energy.unit)
            chosen = moves[int(self.rng.choice(least))]
            chosen = chosen[chosen >= 0]
            x[chosen] = 1.0 - x[chosen]
            if exchanges:
                tabu[chosen[:2]] = step + self.rng.integers(len(self.groups) // 2, 3 * len(self.groups) // 2 + 2, 2)
                continue
            tabu[chosen] = step + 1 + int(self.rng.integers(3, 4 + max(3, len(self.groups) // 2 + self.free.size // 8)))

    def _moves(self, x: Vector, exchanges: bool) -> NDArray[np.intp]:
        """Bits that change together, a row for each move, filled up with -1; or only exchanges of two groups."""
        flips = self.free[:, None]
        ones, zeros = self.free[x[self.free] == 1.0], self.free[x[self.free] == 0.0]
        pairs = np.stack(np.meshgrid(ones, zeros), axis=-1).reshape(-1, 2)
        parts = [flips, pairs]
        on = np.array([group[int(np.argmax(x[group]))] for group in self.groups], dtype=np.intp)
        for group, i in zip(self.groups, on, strict=True):
            others = group[group != i]
            parts.append(np.stack([np.full(others.size, i), others], axis=1))
        if self.pairs.size:
            a, b = self.pairs.T
            p, q = self.place[on[a]], self.place[on[b]]
            differ = p != q
            a, b, p, q = a[differ], b[differ], p[differ], q[differ]
            parts.append(np.stack([on[a], on[b], self.table[a, q], self.table[b, p]], axis=1))
            parts = parts[-1:] if exchanges and parts[-1].size else parts
        chosen = [part[self.rng.choice(len(part), _MOVES, replace=False)] if len(part) > _MOVES else part
                  for part in parts]  # fmt: skip
        wide = [np.pad(part, ((0, 0), (0, 4 - part.shape[1])), constant_values=-1) for part in chosen]
        return np.concatenate(wide)
