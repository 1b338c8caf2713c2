"""PyTorch: functions with known derivatives at every order, for autograd, `torch.func` and `torch.compile`."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import array_api_compat.torch as xp
import torch

from varopt._array import Array
from varopt.nn import _library, _noise
from varopt.terms import PiecewisePolynomial

__all__ = ["as_array", "chunked", "dtypes", "elementwise", "erfcx", "facts", "hold", "log_ndtr", "ndtr", "scan", "xp"]

name = "PyTorch"
cumulative_sum = torch.cumsum
ndtr, log_ndtr, erfcx = torch.special.ndtr, torch.special.log_ndtr, torch.special.erfcx


def cumulative_max(x: Array, axis: int) -> Array:
    """The largest so far."""
    return torch.cummax(x, axis).values


class _Facts:
    """What an expectation asks of a term, as plain attributes that `torch.compile` can read."""

    def __init__(self, term: Any) -> None:
        for fact in ("knots", "pieces", "centres", "jumps", "balanced", "at_knot", "degree", "shape", "name"):
            setattr(self, fact, getattr(term, fact))


def _build_facts(name: str, *parameters: Any) -> _Facts:
    return _Facts(_library.named(name, *parameters))


_named_facts = torch.compiler.assume_constant_result(_build_facts)


def named(name: str, *parameters: Any) -> Any:
    """The term of a name; to build it is no part of a graph."""
    return (_named_facts if torch.compiler.is_compiling() else _library.named)(name, *parameters)


def _build_known(term: Any) -> _Facts:
    return _Facts(term)


_known_facts = torch.compiler.assume_constant_result(_build_known)


def facts(term: Any) -> Any:
    """What is computed from a term; that is no part of a graph either."""
    if torch.compiler.is_compiling() and isinstance(term, PiecewisePolynomial):
        return _known_facts(term)
    return term


def dtypes(given: Sequence[Any]) -> tuple[Any, Any]:
    """The floating dtype to compute in, and that of the result."""
    floating = [d for d in given if isinstance(d, torch.dtype) and d.is_floating_point]
    result = torch.get_default_dtype() if not floating else floating[0]
    for dtype in floating[1:]:
        result = torch.promote_types(result, dtype)
    return torch.promote_types(torch.float32, result), result


def as_array(value: Any, dtype: Any, like: Sequence[Array]) -> Array:
    """A value as a tensor on the device of the first of `like`."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype)
    return torch.as_tensor(value, dtype=dtype, device=next(a.device for a in like if isinstance(a, torch.Tensor)))


def hold(x: Array) -> Array:
    """The same numbers, without a gradient."""
    return x.detach()


def elementwise(rule: Any, *arguments: Array) -> Array:
    """A rule of arguments that broadcast; each of its derivatives is again a rule, so that all orders exist."""
    arguments = torch.broadcast_tensors(*arguments)
    return (_Compiled if torch.compiler.is_compiling() else _Elementwise).apply(rule, *arguments)


def _plain(rule: Any, *arguments: Array) -> Array:
    return rule.value(*arguments)


class _Compiled(torch.autograd.Function):
    """What `torch.compile` can follow: no forward mode, and a gradient that has none itself."""

    @staticmethod
    def forward(ctx: Any, rule: Any, *arguments: Array) -> Array:
        output = rule.value(*arguments)
        ctx.rule = rule
        ctx.save_for_backward(*arguments, output)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Array) -> Any:
        *arguments, output = ctx.saved_tensors
        partials = ctx.rule.partials(_plain, tuple(arguments), output, ctx.needs_input_grad[1:])
        return (None, *[gradient * p if p is not None else None for p in partials])


class _Elementwise(torch.autograd.Function):
    """A rule of tensors of one shape: backward and forward derivatives are sums of rules of the same tensors."""

    @staticmethod
    def forward(rule: Any, *arguments: Array) -> Array:
        return rule.value(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Array) -> None:
        ctx.rule = inputs[0]
        ctx.save_for_backward(*inputs[1:], output)
        ctx.save_for_forward(*inputs[1:], output)

    @staticmethod
    def backward(ctx: Any, gradient: Array) -> Any:
        *arguments, output = ctx.saved_tensors
        partials = ctx.rule.partials(elementwise, tuple(arguments), output, ctx.needs_input_grad[1:])
        return (None, *(gradient * p if p is not None else None for p in partials))

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Any) -> Array:
        *arguments, output = ctx.saved_tensors
        partials = ctx.rule.partials(elementwise, tuple(arguments), output, tuple(t is not None for t in tangents))
        parts = [t * p for t, p in zip(tangents, partials, strict=True) if t is not None]
        return sum(parts[1:], parts[0])

    @staticmethod
    def vmap(info: Any, in_dims: Any, rule: Any, *arguments: Array) -> tuple[Array, int]:
        moved = [
            a.movedim(d, 0) if d is not None else a.unsqueeze(0) for a, d in zip(arguments, in_dims[1:], strict=True)
        ]
        return elementwise(rule, *moved), 0


def chunked(function: Callable[..., Array], size: int, split: Array, *shared: Array) -> Array:
    """A function of the rows of `split`; where they are many, `size` at a time, and gradients compute it again."""
    if len(split) <= size:
        return function(split, *shared)
    parts = [_Recomputed.apply(function, part, *shared) for part in split.split(size)]
    return torch.cat(parts)


def _pushforward(function: Callable[..., Array], arguments: tuple[Array, ...], tangents: tuple[Array, ...]) -> Array:
    """The derivative along tangents, as the transpose of the transpose: forward mode cannot be nested in itself."""
    value, pullback = torch.func.vjp(function, *arguments)
    return torch.func.vjp(pullback, torch.zeros_like(value))[1](tangents)[0]


class _Recomputed(torch.autograd.Function):
    """A differentiable function of tensors that keeps nothing but them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(function: Any, *arguments: Array) -> Array:
        return function(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Array) -> None:
        ctx.function = inputs[0]
        ctx.save_for_backward(*inputs[1:])
        ctx.save_for_forward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Array) -> Any:
        _, pullback = torch.func.vjp(ctx.function, *ctx.saved_tensors)
        return (None, *pullback(gradient))

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Any) -> Array:
        arguments = ctx.saved_tensors
        given = tuple(torch.zeros_like(a) if t is None else t for a, t in zip(arguments, tangents, strict=True))
        return _pushforward(ctx.function, tuple(arguments), given)


def scan(step: Callable[[Array, Array], Array], start: Array, along: Array) -> Array:
    """All states of a recursion over the first axis of `along`, the first before any step."""
    states = [start]
    for item in along.unbind(0):
        states.append(step(states[-1], item))
    return torch.stack(states)


def selected(function: Callable[..., Array], size: int, v: Array, ends: Array, grid: Array, k: int) -> Array:
    """``function(v, ends, grid, k)``, in place and with a gradient written out where it is the last one.

    A recursion of many small steps: through autograd it takes twice as long. Rows are taken in blocks, and the gradient
    counts again: to keep what was counted takes fresh pages of memory, and longer.
    """
    if torch.compiler.is_compiling():
        return function(v, ends, grid, k)
    if v.device.type == "cpu":
        size = min(size, _BLOCK // _Counts.bytes_of_row(k, grid, v))
    size = -(-len(v) // max(1, -(-len(v) // max(1, size))))  # blocks of one size
    pairs = zip(v.split(size), ends.split(size), strict=True)
    parts = [_Selected.apply(function, k, e, grid, rows) for rows, e in pairs]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


class _Selected(torch.autograd.Function):
    """See `_order._selected`."""

    @staticmethod
    def forward(function: Any, k: int, ends: Array, grid: Array, v: Array) -> Array:
        return _Counts(k, ends, grid, v).chances()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.function, ctx.k = inputs[:2]
        ctx.save_for_backward(*inputs[2:])
        ctx.save_for_forward(*inputs[2:])

    @staticmethod
    def differentiable(ctx: Any) -> tuple[Callable[[Array], Array], Array]:
        """The same through operations that can be differentiated."""
        ends, grid, v = ctx.saved_tensors
        return lambda v: ctx.function(v, ends, grid, ctx.k), v

    @staticmethod
    def backward(ctx: Any, gradient: Array) -> Any:
        nothing = (None,) * 4
        if torch.is_grad_enabled():  # it will be differentiated again
            function, v = _Selected.differentiable(ctx)
            return (*nothing, torch.func.vjp(function, v)[1](gradient)[0])
        return (*nothing, _Counts(ctx.k, *ctx.saved_tensors).pullback(gradient))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        function, v = _Selected.differentiable(ctx)
        return _pushforward(function, (v,), (tangents[-1],))

    @staticmethod
    def vmap(info: Any, in_dims: Any, function: Any, k: int, ends: Array, grid: Array, v: Array) -> tuple[Array, int]:
        rows = [
            a.movedim(d, 0) if d is not None else a.expand(info.batch_size, *a.shape)
            for a, d in ((ends, in_dims[2]), (v, in_dims[4]))
        ]
        ends, v = (a.reshape(-1, a.shape[-1]) for a in rows)
        return _Selected.apply(function, k, ends, grid, v).reshape(info.batch_size, -1, v.shape[-1]), 0


class _Counts:
    """A block of rows, with the names of `_order._selected`: arrays (entries, ..., rows times nodes) in a `_room`."""

    def __init__(self, k: int, ends: Array, grid: Array, v: Array) -> None:
        self.k, self.shape = k, (v.shape[1], len(v), len(grid))
        self.h = (ends[:, 1] - ends[:, 0]) / (len(grid) - 1.0)
        n, m = v.shape[1], len(v) * len(grid)
        # Of 2 n blocks the first n are for the entries before each, the others for those after it: one recursion runs
        # from both ends. A block has the chances that 0 to k - 1 of them lie above, behind a zero.
        parts = _room(v, *[(n, m)] * 4, *[(2 * n, 1, m)] * 2, *[(2 * n, k + 1, m)] * 2)
        self.u, self.density, self.at, self.spare, above, self.weight, self.table, self.marked = parts
        t = torch.addcmul(ends[:, :1], ends[:, 1:] - ends[:, :1], grid)
        torch.sub(v.T[:, :, None], t, out=self.u.view(self.shape))
        torch.mul(self.u, self.u, out=self.density).mul_(-0.5).exp_().mul_(1.0 / math.sqrt(2.0 * math.pi))
        self.a = torch.special.ndtr(self.u, out=above[:n, 0])
        above[n:, 0] = self.a
        self.above = _ends(above)
        self.table[:, 0] = 0.0
        here, below = _ends(self.table[:, 1:]), _ends(self.table[:, :-1])
        here[0][:, 0] = 1.0
        here[0][:, 1:] = 0.0
        for j in range(n - 1):
            torch.lerp(here[j], below[j], self.above[j], out=here[j + 1])
        self.counts = here
        self._paired(self.table[:n], self.table[n:], self.at.zero_()).mul_(self.density)
        self.total = self.at.sum(0)

    @staticmethod
    def bytes_of_row(k: int, grid: Array, v: Array) -> int:
        """The room that a row takes."""
        return int(v.shape[1]) * (4 * (k + 1) + 8) * len(grid) * int(v.element_size())

    def _paired(self, before: Array, after: Array, result: Array) -> Array:
        """Add to each entry the chance that k - 1 of those before and after it lie above."""
        for m in range(1, self.k + 1):
            result.addcmul_(before[:, m], after[:, self.k + 1 - m])
        return result

    def _integral(self, values: Array) -> Array:
        return (values.view(self.shape).sum(-1) * self.h).T

    def chances(self) -> Array:
        """``int a_i (R + r_i) dt``."""
        torch.add(self.at, self.total, out=self.spare)
        return self._integral(self.spare.mul_(self.a))

    def pullback(self, gradient: Array) -> Array:
        """dP_i / dv_j = -int phi_i phi_j P(k - 1 of all but these two lie above) dt, and the sum over j is zero."""
        n = len(self.u)
        torch.mul(self.density, self.total, out=self.spare)
        own = self._integral(self.spare.addcmul_(self.u.mul_(self.a), self.at, value=-1.0))
        # The recursion once more with one entry left out, which carries its weight: none or one was left out so far.
        for half in self.weight.split(n):
            torch.mul(self.density.view(self.shape), gradient.T[:, :, None], out=half.view(self.shape))
        self.marked[:, 0] = 0.0
        here, below, carried = _ends(self.marked[:, 1:]), _ends(self.marked[:, :-1]), _ends(self.weight)
        here[0].zero_()
        for j in range(n - 1):
            torch.lerp(here[j], below[j], self.above[j], out=here[j + 1])
            here[j + 1].addcmul_(self.counts[j], carried[j])
        changed = self._paired(self.table[:n], self.marked[n:], self.spare.zero_())
        changed = self._paired(self.marked[:n], self.table[n:], changed)
        return gradient * own - self._integral(changed.mul_(self.density))


def _ends(table: Array) -> list[Array]:
    """The first and the last block, the second and the last but one, and so on to the middle."""
    count = len(table)
    return [table[j : count - j : count - 1 - 2 * j] for j in range(count // 2)]


_BLOCK = 2**25  # bytes: larger blocks are fewer calls, smaller ones stay in the cache
_rooms = threading.local()


def _room(like: Array, *shapes: tuple[int, ...]) -> list[Array]:
    """Arrays without values, on a processor always the same ones: fresh pages of memory take longer than sums."""
    sizes = [math.prod(shape) for shape in shapes]
    own = vars(_rooms)  # of this thread
    flat = own.get(like.dtype)
    if type(like) is not torch.Tensor or like.device.type != "cpu" or sum(sizes) * like.element_size() > _BLOCK:
        flat = like.new_empty(sum(sizes))
    elif flat is None or len(flat) < sum(sizes):
        with torch.inference_mode(False):  # what is made in that mode can be changed in it only
            flat = own[like.dtype] = torch.empty(sum(sizes), dtype=like.dtype)
    return [part.view(shape) for part, shape in zip(flat[: sum(sizes)].split(sizes), shapes, strict=True)]


# -- For `smooth` -----------------------------------------------------------------------------------------------------


def flatten(tree: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """The leaves of nested tuples, lists and dictionaries, and what puts others in their places."""
    leaves, spec = torch.utils._pytree.tree_flatten(tree)
    return leaves, lambda new: torch.utils._pytree.tree_unflatten(list(new), spec)


def ndtri(u: Array) -> Array:
    """The normal quantile."""
    return torch.special.ndtri(u)


def _build_sobol(count: int, d: int) -> Array:
    return torch.tensor(_noise.sobol(count, d))


_constant_sobol = torch.compiler.assume_constant_result(_build_sobol)


def sobol(count: int, d: int, like: Array) -> Array:
    """Sobol points as integers of 30 bits, where `like` is; to make them is no part of a graph."""
    return (_constant_sobol if torch.compiler.is_compiling() else _build_sobol)(count, d).to(like.device)


def uniform(rng: Any, shape: tuple[int, ...], like: Array) -> Array:
    """Uniform numbers of the device and dtype of `like`, from a generator; compiled code knows the global one only."""
    if torch.compiler.is_compiling():
        return torch.rand(shape, dtype=like.dtype, device=like.device)
    return _Uniform.apply(like, rng, shape)


def as_rng(rng: Any, seed: int) -> Any:
    """The caller's generator, or one of our own."""
    if torch.compiler.is_compiling():
        return None
    if rng is None:
        return torch.Generator().manual_seed(seed)
    if not isinstance(rng, torch.Generator):
        raise ValueError(f"generator must be a torch.Generator; got {type(rng).__name__}.")
    return rng


class _Uniform(torch.autograd.Function):
    """Draws below all transformations of `torch.func`: one set for a whole `vmap`, unless that asks for different."""

    @staticmethod
    def forward(like: Array, rng: Any, shape: tuple[int, ...]) -> Array:
        drawn = torch.rand(shape, generator=rng, dtype=like.dtype, device=rng.device)
        return drawn.to(like.device)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Array) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return None

    @staticmethod
    def vmap(info: Any, in_dims: Any, like: Array, rng: Any, shape: tuple[int, ...]) -> tuple[Array, int | None]:
        if info.randomness == "different":
            return _Uniform.apply(like, rng, (info.batch_size, *shape)), 0
        return _Uniform.apply(like, rng, shape), None


def over_samples(fn: Callable[..., Any], leaves: list[Array]) -> list[Array]:
    """`fn` of the leaves of each sample, one sample after the other, its results stacked."""
    results = [fn([leaf[i] for leaf in leaves]) for i in range(leaves[0].shape[0])]
    return [torch.stack(parts) for parts in zip(*results, strict=True)]


def on_host(fn: Callable[..., Any], leaves: list[Array], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """A function of NumPy arrays, all samples at once: ``(S, ...)`` in and out."""
    sizes = [int(torch.Size(s).numel()) for s in shapes]
    flat = _OnHost.apply(fn, sum(sizes), *leaves)
    parts = flat.split(sizes, dim=-1)
    return [p.reshape(flat.shape[0], *s) for p, s in zip(parts, shapes, strict=True)]


class _OnHost(torch.autograd.Function):
    """Runs below all transformations; under `vmap` the rows of the batch are more samples."""

    @staticmethod
    def forward(fn: Any, width: int, *leaves: Array) -> Array:
        results = fn([leaf.detach().cpu().numpy() for leaf in leaves])
        flat = [torch.as_tensor(r, dtype=leaves[0].dtype).reshape(leaves[0].shape[0], -1) for r in results]
        return torch.cat(flat, dim=-1).to(leaves[0].device)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Array) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return (None,) * len(ctx.needs_input_grad)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return None

    @staticmethod
    def vmap(info: Any, in_dims: Any, fn: Any, width: int, *leaves: Array) -> tuple[Array, int]:
        moved = [
            leaf.movedim(d, 0) if d is not None else leaf.expand(info.batch_size, *leaf.shape)
            for leaf, d in zip(leaves, in_dims[2:], strict=True)
        ]
        samples = moved[0].shape[1]
        flat = _OnHost.apply(fn, width, *(m.reshape(-1, *m.shape[2:]) for m in moved))
        return flat.reshape(info.batch_size, samples, width), 0
