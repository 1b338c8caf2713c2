"""PyTorch: functions with known derivatives at every order, for autograd, `torch.func` and `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import array_api_compat.torch as xp
import torch

from varopt._array import Array
from varopt.nn import _library, _noise
from varopt.nn._torch_topk import pushforward, selected
from varopt.terms import PiecewisePolynomial

__all__ = [
    "as_array", "chunked", "dtypes", "elementwise", "erfcx", "facts", "hold", "log_ndtr", "ndtr", "scan", "selected",
    "xp",
]  # fmt: skip

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
        return pushforward(ctx.function, tuple(arguments), given)


def scan(step: Callable[[Array, Array], Array], start: Array, along: Array) -> Array:
    """All states of a recursion over the first axis of `along`, the first before any step."""
    states = [start]
    for item in along.unbind(0):
        states.append(step(states[-1], item))
    return torch.stack(states)


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
