"""Top k with PyTorch: the recursion of `_order._selected` in place, with its gradient written out.

Through autograd it takes twice as long: it is some hundred small operations, and much of what they take is calls and
fresh pages of memory. So the arrays and all views of them are made once for a shape and used again, and what was
counted forwards is kept for the gradient.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from varopt._array import Array

__all__ = ["pushforward", "selected"]

_TOPK_BYTES = 2**25  # bytes: larger blocks are fewer calls, smaller ones stay in the cache
_SPARES = 2  # blocks
_HALF_ROOT = math.sqrt(0.5)
_LOG_DENSITY = -0.5 * math.log(2.0 * math.pi)


def pushforward(function: Callable[..., Array], arguments: tuple[Array, ...], tangents: tuple[Array, ...]) -> Array:
    """The derivative along tangents, as the transpose of the transpose: forward mode cannot be nested in itself."""
    value, pullback = torch.func.vjp(function, *arguments)
    return torch.func.vjp(pullback, torch.zeros_like(value))[1](tangents)[0]


def selected(function: Callable[..., Array], size: int, v: Array, ends: Array, grid: Array, k: int) -> Array:
    """``function(v, ends, grid, k)``, in place and with a gradient written out where it is the last one.

    Rows are taken in blocks. What was counted for one or two is kept for their gradient; that of more counts again.
    """
    if torch.compiler.is_compiling():
        return function(v, ends, grid, k)
    if v.device.type == "cpu":
        size = min(size, _TOPK_BYTES // _bytes_of_row(k, grid, v))
    size = -(-len(v) // max(1, -(-len(v) // max(1, size))))  # blocks of one size
    if size == len(v):
        return _Selected.apply(function, k, True, ends, grid, v)
    keep = len(v) <= _SPARES * size
    pairs = zip(v.split(size), ends.split(size), strict=True)
    return torch.cat([_Selected.apply(function, k, keep, e, grid, rows) for rows, e in pairs])


def _bytes_of_row(k: int, grid: Array, v: Array) -> int:
    return int(v.shape[1]) * (4 * (k + 1) + 8) * len(grid) * int(v.element_size())


_latest = threading.local()


class _Selected(torch.autograd.Function):
    """See `_order._selected`."""

    @staticmethod
    def forward(function: Any, k: int, keep: bool, ends: Array, grid: Array, v: Array) -> Array:
        counts = _Counts(k, ends, grid, v)
        _latest.counts = counts if keep and counts.is_ordinary else None
        return counts.chances()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.function, ctx.k = inputs[:2]
        counts, _latest.counts = getattr(_latest, "counts", None), None  # of the call of `forward` just before
        ctx.counts = counts if counts is not None and counts.v is inputs[-1] and ctx.needs_input_grad[-1] else None
        ctx.save_for_backward(*inputs[3:])
        ctx.save_for_forward(*inputs[3:])

    @staticmethod
    def differentiable(ctx: Any) -> tuple[Callable[[Array], Array], Array]:
        """The same through operations that can be differentiated."""
        ends, grid, v = ctx.saved_tensors
        return lambda v: ctx.function(v, ends, grid, ctx.k), v

    @staticmethod
    def backward(ctx: Any, gradient: Array) -> Any:
        nothing = (None,) * 5
        if torch.is_grad_enabled():  # it will be differentiated again
            function, v = _Selected.differentiable(ctx)
            return (*nothing, torch.func.vjp(function, v)[1](gradient)[0])
        saved, counts, ctx.counts = ctx.saved_tensors, ctx.counts, None  # which can be used once
        counts = _Counts(ctx.k, *saved) if counts is None else counts
        return (*nothing, counts.pullback(gradient))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        function, v = _Selected.differentiable(ctx)
        return pushforward(function, (v,), (tangents[-1],))

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, function: Any, k: int, keep: bool, ends: Array, grid: Array, v: Array
    ) -> tuple[Array, int]:
        rows = [
            a.movedim(d, 0) if d is not None else a.expand(info.batch_size, *a.shape)
            for a, d in ((ends, in_dims[3]), (v, in_dims[5]))
        ]
        ends, v = (a.reshape(-1, a.shape[-1]) for a in rows)
        return _Selected.apply(function, k, False, ends, grid, v).reshape(info.batch_size, -1, v.shape[-1]), 0


class _Tables:
    """Arrays of a shape (entries, rows, nodes), without values, and the views of them that the recursion takes.

    Of 2 n blocks the first n are for the entries before each, the others for those after it: one recursion runs from
    both ends. A block has the chances that 0 to k - 1 of them lie above, behind a zero.
    """

    def __init__(self, k: int, shape: tuple[int, int, int], like: Array) -> None:
        n, m = shape[0], shape[1] * shape[2]
        sizes = [(n, m)] * 4 + [(2 * n, 1, m)] * 2 + [(2 * n, k + 1, m)] * 2
        flat = like.new_empty(sum(map(math.prod, sizes))).split([math.prod(size) for size in sizes])
        parts = [part.view(size) for part, size in zip(flat, sizes, strict=True)]
        self.u, self.density, self.at, self.spare, above, weight, table, marked = parts
        self.a, self.again = above[:n, 0], above[n:, 0]
        self.above, self.carried, self.weights = _ends(above), _ends(weight), weight.view(2, *shape)
        self.counts, self.lower = _ends(table[:, 1:]), _ends(table[:, :-1])
        self.left_out, self.left_out_lower = _ends(marked[:, 1:]), _ends(marked[:, :-1])
        # Pairs whose counts add up to k - 1: of none left out, of one left out after, of one left out before
        after = [(j, k + 1 - j) for j in range(1, k + 1)]
        self.pairs = [(table[:n, i], table[n:, j]) for i, j in after]
        self.marked_pairs = [(table[:n, i], marked[n:, j]) for i, j in after]
        self.marked_pairs += [(marked[:n, i], table[n:, j]) for i, j in after]
        for part in (table, marked):
            part[:, 0] = 0.0
        self.counts[0][:, 0], self.counts[0][:, 1:] = 1.0, 0.0
        self.left_out[0].zero_()


def _ends(table: Array) -> list[Array]:
    """The first and the last block, the second and the last but one, and so on to the middle."""
    count = len(table)
    return [table[j : count - j : count - 1 - 2 * j] for j in range(count // 2)]


_spare: deque[tuple[Any, _Tables]] = deque(maxlen=_SPARES)  # of which nobody has use now; both ends move in one step


class _Counts:
    """A block of rows, with the names of `_order._selected`: arrays are (entries, ..., rows times nodes)."""

    def __init__(self, k: int, ends: Array, grid: Array, v: Array) -> None:
        self.v, self.shape = v, (v.shape[1], len(v), len(grid))
        self.h = (ends[:, 1] - ends[:, 0]) / (len(grid) - 1.0)
        self.key = (k, self.shape, v.dtype)
        small = _bytes_of_row(k, grid, v) * len(v) <= _TOPK_BYTES
        self.is_ordinary = small and type(v) is torch.Tensor and v.device.type == "cpu"
        self.tables = own = self._taken()
        # Of u / sqrt(2) the density and the distribution function take two passes each.
        first, last = (_HALF_ROOT * ends).split(1, dim=1)
        torch.sub((_HALF_ROOT * v).T[:, :, None], torch.addcmul(first, last - first, grid), out=own.u.view(self.shape))
        torch.addcmul(v.new_tensor(_LOG_DENSITY), own.u, own.u, value=-1.0, out=own.density).exp_()
        torch.add(v.new_tensor(0.5), torch.erf(own.u, out=own.a), alpha=0.5, out=own.a)
        own.again.copy_(own.a)
        for j in range(len(own.u) - 1):
            torch.lerp(own.counts[j], own.lower[j], own.above[j], out=own.counts[j + 1])
        _paired(own.pairs, own.at).mul_(own.density)
        self.total = own.at.sum(0)

    def _taken(self) -> _Tables:
        """Tables of this shape that were used before, if there are."""
        for _ in range(len(_spare) if self.is_ordinary else 0):
            try:
                key, tables = _spare.popleft()
            except IndexError:  # another thread was faster
                break
            if key == self.key:
                return tables
            _spare.append((key, tables))
        with torch.inference_mode(False):  # what is made in that mode can be changed in it only
            return _Tables(self.key[0], self.shape, self.v.detach())

    def __del__(self) -> None:
        if self.is_ordinary and hasattr(self, "tables"):
            _spare.append((self.key, self.tables))

    def _integral(self, values: Array) -> Array:
        return (values.view(self.shape).sum(-1) * self.h).T

    def chances(self) -> Array:
        """``int a_i (R + r_i) dt``."""
        own = self.tables
        return self._integral(torch.add(own.at, self.total, out=own.spare).mul_(own.a))

    def pullback(self, gradient: Array) -> Array:
        """dP_i / dv_j = -int phi_i phi_j P(k - 1 of all but these two lie above) dt, and the sum over j is zero."""
        own = self.tables
        torch.mul(own.density, self.total, out=own.spare)
        alone = self._integral(own.spare.addcmul_(own.u.mul_(own.a), own.at, value=-1.0 / _HALF_ROOT))
        # The recursion once more with one entry left out, which carries its weight: none or one was left out so far.
        torch.mul(own.density.view(self.shape), gradient.T[:, :, None], out=own.weights[0])
        own.weights[1].copy_(own.weights[0])
        for j in range(len(own.u) - 1):
            following = torch.lerp(own.left_out[j], own.left_out_lower[j], own.above[j], out=own.left_out[j + 1])
            following.addcmul_(own.counts[j], own.carried[j])
        changed = _paired(own.marked_pairs, own.spare).mul_(own.density)
        return gradient * alone - self._integral(changed)


def _paired(pairs: list[tuple[Array, Array]], out: Array) -> Array:
    """The sum of products, over all pairs."""
    torch.mul(*pairs[0], out=out)
    for before, after in pairs[1:]:
        out.addcmul_(before, after)
    return out
