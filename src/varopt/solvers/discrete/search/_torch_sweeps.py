"""Sweeps on PyTorch, for a GPU: the same sets and fields, with tensors for arrays. Imported by name only.

A sweep of a few thousand sites is dozens of small operations, and to launch them takes longer than to run them. On CUDA
the first sweep is therefore recorded as a graph, and all others are that graph launched again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from varopt.solvers.discrete._energy import Energy
from varopt.solvers.discrete.search._sweeps import PASSES, Sweeper

__all__ = ["TorchSweeper"]

_SWEEPS_AHEAD = 16  # sweeps that may be under way


class TorchSweeper(Sweeper):
    """A `Sweeper` whose states are tensors on a device, in single precision.

    Parameters
    ----------
    energy : Energy
        What is minimised.
    replicas : int
        Number of columns; a GPU wants hundreds.
    rng : numpy.random.Generator
        Seeds the device's generator.
    device : str
        ``"cuda"``, ``"cpu"``, or what else PyTorch has.

    Notes
    -----
    Noise is drawn afresh for every sweep: on a GPU that costs less than to read it. Mean field is not offered. States
    of all replicas share one piece of memory, which the recorded graphs write to: a new one ends the one before.
    """

    def __init__(self, energy: Energy, replicas: int, rng: np.random.Generator, device: str = "cuda") -> None:
        super().__init__(energy, replicas, rng, np.float32)
        self.device = torch.device(device)
        self._generator = torch.Generator(self.device).manual_seed(int(rng.integers(2**62)))
        self.sets = [
            replace(
                part,
                linear=None if part.linear is None else self._tensor(part.linear),
                matrix=self._tensor(part.matrix),
                products=tuple((self._tensor(w), torch.as_tensor(c, device=self.device)) for w, c in part.products),
            )
            for part in self.sets
        ]
        self._linear = self._tensor(energy.linear[self.order, None].astype(np.float32))
        self._memory = self._tensor(np.ones((self._length, replicas), dtype=np.float32))
        self._temperature = torch.ones((), device=self.device)
        self._changed = torch.zeros((), dtype=torch.bool, device=self.device)
        self._recorded: dict[str, Any] = {}
        self._launched = 0

    def _tensor(self, matrix: Any) -> Any:
        if not sp.issparse(matrix):
            return torch.as_tensor(np.ascontiguousarray(matrix), device=self.device)
        rows = sp.csr_array(matrix)
        parts = (torch.as_tensor(a.astype(np.int64)) for a in (rows.indptr, rows.indices))
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UserWarning
            )  # that they are young, and that what SciPy built is not checked
            return torch.sparse_csr_tensor(*parts, torch.as_tensor(rows.data), size=rows.shape).to(self.device)

    def state(self, x: Any) -> Any:
        """A state on the device, from points in the energy's order."""
        state = super().state(x)
        if state.shape != tuple(self._memory.shape):
            return torch.as_tensor(state, device=self.device)
        return self._memory.copy_(torch.as_tensor(state))

    def points(self, state: Any) -> Any:
        """The coordinates of a state, in the energy's order, back in main memory."""
        return super().points(state[: self.energy.size].cpu().numpy())

    def values(self, state: Any) -> Any:
        """The energies of all replicas, from their fields: to single precision, and exact for whole numbers."""
        if self.energy.products:
            return super().values(state)
        # E = constant + x'(g + linear) / 2
        total = torch.zeros(state.shape[1], dtype=torch.float64, device=self.device)
        for part in self.sets:
            terms = (self._fields(part, state) + self._linear[part.rows]) * state[part.rows]
            total += terms.sum(dim=0, dtype=torch.float64)
        return self.energy.constant + 0.5 * total.cpu().numpy()

    def choose(self, state: Any, chosen: Any) -> None:
        """Replace the replicas by those chosen, some of them more than once."""
        state.copy_(state[:, torch.as_tensor(chosen, device=self.device)])

    def uniform(self) -> Any:
        """A state drawn uniformly."""
        self._memory.fill_(1.0)
        for part in self.sets:
            shape = (part.rows.stop - part.rows.start) // part.width, self.replicas
            drawn = torch.randint(max(2, part.width), shape, generator=self._generator, device=self.device)
            new = drawn.float() if part.width == 1 else _one_hot(drawn, part.width).reshape(-1, self.replicas)
            self._write(self._memory, part.rows, new)
        return self._memory

    def sample(self, state: Any, temperature: float) -> None:
        """One sweep of sampling, in place."""
        self._temperature.fill_(temperature)
        self._run(self._sample, state)
        self._launched += 1
        if self.device.type == "cuda" and self._launched % _SWEEPS_AHEAD == 0:
            torch.cuda.synchronize(self.device)  # or the clock would tell how fast sweeps are ordered

    def _sample(self, state: Any) -> None:
        for part in self.sets:
            self._write(state, part.rows, self._draw(part, self._fields(part, state), state[part.rows]))

    def _run(self, step: Callable[[Any], None], state: Any) -> None:
        """A step on a state: recorded the first time, on CUDA, and from then on launched as a whole."""
        if self.device.type != "cuda" or state is not self._memory:
            step(state)
            return
        name = step.__name__
        if name in self._recorded:
            self._recorded[name].replay()
            return
        side = torch.cuda.Stream(self.device)  # what libraries set up in their first call cannot be recorded
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            step(state)
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        with torch.cuda.graph(graph):
            step(state)
        self._recorded[name] = graph

    def mean(self, state: Any, temperature: float) -> None:
        """Not offered."""
        raise NotImplementedError("mean field runs on NumPy only.")

    def descend(self, state: Any, passes: int = PASSES, expired: Callable[[], bool] = lambda: False) -> None:
        """Local search in place: every site to its best value given the others, until none changes or time is up."""
        for _ in range(passes):
            self._run(self._pass, state)
            if not bool(self._changed) or expired():
                return

    def _pass(self, state: Any) -> None:
        self._changed.zero_()
        for part in self.sets:
            old = state[part.rows]
            new = self._best(part, self._fields(part, state), old)
            self._changed |= (new != old).any()
            self._write(state, part.rows, new)

    def refresh(self) -> None:
        """Nothing to do: noise is always fresh."""

    def _draw(self, part: Any, fields: Any, old: Any) -> Any:
        u = torch.rand(fields.shape, generator=self._generator, device=self.device)
        scaled = fields / -self._temperature
        if part.width == 1:
            turn = 1.0 - 2.0 * old
            turn *= u < torch.exp(scaled * turn)  # accepted with probability min(1, exp(-change / T))
            return old + turn
        noisy = scaled - torch.log(-torch.log(u.clamp_(1e-7, 1.0 - 1e-7)))
        return _one_hot(noisy.reshape(-1, part.width, self.replicas).argmax(dim=1), part.width).reshape(fields.shape)

    @staticmethod
    def _best(part: Any, fields: Any, old: Any) -> Any:
        if part.width == 1:
            return torch.where(fields == 0, old >= 0.5, fields < 0).float()
        g = fields.reshape(-1, part.width, fields.shape[1])
        current = old.reshape(g.shape).argmax(dim=1, keepdim=True)
        best = g.argmin(dim=1, keepdim=True)
        chosen = torch.where(g.gather(1, current) > g.gather(1, best), best, current)
        return _one_hot(chosen[:, 0], part.width).reshape(old.shape)


def _one_hot(chosen: Any, width: int) -> Any:
    return torch.nn.functional.one_hot(chosen, width).permute(0, 2, 1).float()
