"""Sweeps on PyTorch, for a GPU: the same sets, fields and noise, with tensors for arrays. Imported by name only."""

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
    Noise is drawn afresh for every sweep: on a GPU that costs less than to read it. Mean field is not offered.
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
        return torch.as_tensor(super().state(x), device=self.device)

    def points(self, state: Any) -> Any:
        """The coordinates of a state, in the energy's order, back in main memory."""
        return super().points(state[: self.energy.size].cpu().numpy())

    def uniform(self) -> Any:
        """A state drawn uniformly."""
        state = self.state(np.zeros((self.energy.size, self.replicas)))
        zero = torch.zeros((), device=self.device)
        for part in self.sets:
            self._write(state, part.rows, self._draw(part, zero, 1.0))
        return state

    def sample(self, state: Any, temperature: float) -> None:
        """One sweep of heat bath sampling, in place."""
        for part in self.sets:
            self._write(state, part.rows, self._draw(part, self._fields(part, state), temperature))

    def mean(self, state: Any, temperature: float) -> None:
        """Not offered."""
        raise NotImplementedError("mean field runs on NumPy only.")

    def descend(self, state: Any, passes: int = PASSES, expired: Callable[[], bool] = lambda: False) -> None:
        """Local search in place: every site to its best value given the others, until none changes or time is up."""
        for _ in range(passes):
            changed = torch.zeros((), dtype=torch.bool, device=self.device)
            for part in self.sets:
                old = state[part.rows]
                new = self._best(part, self._fields(part, state), old)
                changed |= (new != old).any()
                self._write(state, part.rows, new)
            if not bool(changed) or expired():
                return

    def refresh(self) -> None:
        """Nothing to do: noise is always fresh."""

    def _draw(self, part: Any, fields: Any, temperature: float) -> Any:
        shape = (part.rows.stop - part.rows.start, self.replicas)
        u = torch.rand(shape, generator=self._generator, device=self.device).clamp_(1e-7, 1.0 - 1e-7)
        if part.width == 1:
            return (fields < temperature * torch.logit(u)).float()
        noisy = -temperature * torch.log(-torch.log(u)) - fields
        return _one_hot(noisy.reshape(-1, part.width, self.replicas).argmax(dim=1), part.width).reshape(shape)

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
