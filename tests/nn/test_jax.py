"""The exact layers on JAX: derivatives of every order, transformations, precisions, several devices."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

jax = pytest.importorskip("jax", reason="needs JAX: make test-nn installs it")

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

from tests.nn.layers import LAYERS, ORDERED, ROWS  # noqa: E402
from varopt import nn  # noqa: E402


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


WEIGHTS = np.array([0.3, -1.0, 0.7, 0.2, 1.1])


def compiled(name, function):
    """Compiled where that pays: elementwise layers share the operations that JAX runs one at a time."""
    return jax.jit(function) if name in ORDERED else function


@pytest.mark.parametrize("name", LAYERS)
def test_values_are_those_of_numpy(name, x64):
    layer = compiled(name, LAYERS[name])
    for row in ROWS.values():
        for sigma in (1e-6, 0.4, 1e6):
            expected = LAYERS[name](np.array(row), sigma)
            allowed = {"rtol": 1e-12, "atol": 1e-13 * (1.0 + np.abs(expected).max())}
            assert_allclose(layer(jnp.array(row), sigma), expected, **allowed)
    if name in ("step", "argmax", "rank"):  # the other way
        other = LAYERS[name] if name in ORDERED else jax.jit(LAYERS[name])
        assert_allclose(other(jnp.array(row), sigma), expected, **allowed)


@pytest.mark.parametrize("name", LAYERS)
def test_check_grads_to_order_three(name, x64):
    x, direction = jnp.array(ROWS["spread"]), jnp.array([1.0, -0.5, 0.25, 0.7, -0.3])

    def along(t):  # one number in and out, x and sigma together: three orders of all of it at the cost of one
        return jnp.dot(LAYERS[name](x + t * direction, 0.6 * jnp.exp(0.8 * t)), WEIGHTS)

    for mode in ("fwd", "rev"):  # one in the other: `test_transformations`
        check_grads(compiled(name, along), (0.1,), order=3, modes=(mode,), atol=1e-5, rtol=1e-5)


# All elementwise layers but `round` are one rule; PyTorch's tests go through all of them.
@pytest.mark.parametrize("name", ["own", "round", *ORDERED])
def test_no_gradient_is_nan(name):
    weights = WEIGHTS.astype(np.float32)
    total = compiled(name, jax.value_and_grad(lambda x, s: jnp.dot(LAYERS[name](x, s), weights), (0, 1)))
    for row in ROWS.values():
        for sigma in (1e-6, 1.0, 1e6):
            value, gradients = total(jnp.array(row, dtype=jnp.float32), jnp.float32(sigma))
            assert np.isfinite(value)
            assert not any(np.isnan(g).any() for g in gradients), sigma


@pytest.mark.parametrize("name", ["step", "huber", "argmax", "top2", "rank", "sort"])
def test_transformations(name, x64):
    layer = LAYERS[name]
    rows = jnp.array(np.random.default_rng(0).standard_normal((3, 5)))

    def total(x, sigma):
        return jnp.dot(layer(x, sigma), WEIGHTS)

    each = np.stack([layer(np.array(row), 0.5) for row in rows])
    assert_allclose(compiled(name, jax.vmap(layer, in_axes=(0, None)))(rows, 0.5), each, rtol=1e-11, atol=1e-13)
    gradients = compiled(name, jax.vmap(jax.grad(total), in_axes=(0, None)))(rows, 0.5)
    forward = compiled(name, jax.vmap(jax.jacfwd(total), in_axes=(0, None)))(rows, 0.5)
    assert_allclose(forward, gradients, rtol=1e-10, atol=1e-12)
    hessian = compiled(name, jax.hessian(total))(rows[0], 0.5)
    _, by_sigma = compiled(name, lambda s: jax.jvp(lambda s: total(rows[0], s), (s,), (1.0,)))(0.5)
    assert_allclose(by_sigma, 0.5 * np.trace(hessian), rtol=1e-9, atol=1e-11)  # the heat equation


@pytest.mark.parametrize("name", ["clip", "argmax", "top2", "rank"])
def test_several_devices(name, x64):
    devices = jax.devices()
    assert len(devices) >= 2
    mesh = jax.sharding.Mesh(np.array(devices[:2]), ("rows",))
    spec = jax.sharding.PartitionSpec("rows")
    rows = jnp.array(np.random.default_rng(0).standard_normal((4, 5)))

    def gradient(x):
        return jax.grad(lambda x: jnp.sum(LAYERS[name](x, 0.5) * WEIGHTS))(x)

    spread = jax.jit(jax.shard_map(gradient, mesh=mesh, in_specs=spec, out_specs=spec))(rows)
    assert_allclose(spread, jax.jit(gradient)(rows), rtol=1e-10, atol=1e-12)


def test_single_precision_is_the_default():
    x = jnp.array(ROWS["spread"])
    assert x.dtype == jnp.float32
    for name in ("own", "round", "argmax", "top2", "rank"):
        layer = LAYERS[name]
        result = compiled(name, layer)(x, 0.5)
        assert result.dtype == jnp.float32, name
        assert_allclose(result, layer(np.array(ROWS["spread"]), 0.5), rtol=1e-5, atol=1e-5, err_msg=name)
    assert nn.step(jnp.array([1, -1]), 1).dtype == jnp.float32
    assert nn.argmax(x.astype(jnp.bfloat16), 0.5).dtype == jnp.bfloat16
    assert nn.quantile_loss(x, np.array(ROWS["tied"]), 0.9, 0.5).dtype == jnp.float32  # NumPy's float64 beside it


@pytest.mark.parametrize("name", ["argmax", "top2", "rank"])
def test_chunks_do_not_show(name, monkeypatch, x64):
    rows = jnp.array(np.random.default_rng(0).standard_normal((7, 5)))

    def gradient(x):
        return jax.grad(lambda x: jnp.sum(ORDERED[name](x, 0.5) * WEIGHTS))(x)

    whole = jax.jit(gradient)(rows)
    monkeypatch.setattr("varopt.nn._order._LIMIT", 600)
    again = jax.jit(lambda x: gradient(x))  # noqa: PLW0108 - a new function is traced anew
    assert_allclose(again(rows), whole, rtol=1e-10, atol=1e-12)


def test_losses_agree_with_numpy(x64):
    rng = np.random.default_rng(0)
    scores, labels, relevance = rng.standard_normal((6, 4)), rng.integers(0, 4, 6), rng.integers(0, 3, (6, 4)) * 1.0
    for loss, target in (
        (nn.zero_one_loss, labels),
        (lambda s, t, sigma: nn.topk_error(s, t, 2, sigma), labels),
        (nn.spearman, relevance),
        (nn.ndcg, relevance),
        (lambda s, t, sigma: nn.quantile_loss(s, t, 0.9, sigma), relevance),
    ):
        value, gradient = jax.jit(jax.value_and_grad(loss))(jnp.array(scores), jnp.array(target), 0.5)
        assert_allclose(value, loss(scores, target, 0.5), rtol=1e-11)
        assert np.all(np.isfinite(gradient))
