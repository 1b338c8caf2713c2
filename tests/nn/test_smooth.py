"""`smooth` on both libraries: unbiased, with the right derivatives in everything, of every function."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import varopt as vo

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-nn installs it")
jax = pytest.importorskip("jax", reason="needs JAX: make test-nn installs it")

import jax.numpy as jnp  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")

LAWS = {
    "gaussian": stats.norm(),
    "logistic": stats.logistic(),
    "gumbel": stats.gumbel_r(),
    "laplace": stats.laplace(),
    "uniform": stats.uniform(-1.0, 2.0),
}
CONTROLS = ("antithetic", "quasi", "leave-one-out", "value", "none")


def step_derivatives(law, x, s):
    """Of ``<1[x + s z > 0]> = P(z > -x / s)``: value, in x, in s."""
    return law.sf(-x / s), law.pdf(-x / s) / s, -x / s**2 * law.pdf(-x / s)


def replicated(twin, x, sigma, times):
    """Values and gradients in x and sigma of independent calls."""
    generator, rows = torch.Generator().manual_seed(7), []
    for _ in range(times):
        a = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        s = torch.tensor(sigma, dtype=torch.float64, requires_grad=True)
        value = twin(a, sigma=s, generator=generator)
        rows.append([value.item(), *(g.item() for g in torch.autograd.grad(value, (a, s)))])
    return np.array(rows)


@pytest.mark.parametrize("noise", LAWS)
@pytest.mark.parametrize("control", CONTROLS)
def test_unbiased_in_a_million_samples(noise, control):
    x, sigma, samples, times = 0.3, 0.5, 31250, 32
    twin = vo.smooth(lambda v: (v > 0).double(), samples=samples, noise=noise, control=control, batched=True)
    rows = replicated(twin, x, sigma, times)
    error = rows.std(axis=0, ddof=1) / math.sqrt(times)
    assert np.all(np.abs(rows.mean(axis=0) - step_derivatives(LAWS[noise], x, sigma)) < 4.0 * error + 1e-9)


@pytest.mark.parametrize("control", CONTROLS)
def test_second_derivatives_are_unbiased(control):
    """Known mistakes: a missing 1/sigma or 1/2, no score in sigma, second derivatives that are silently wrong."""
    x, s, samples, times = 0.3, 0.5, 31250, 32
    twin = vo.smooth(lambda v: (v > 0).double(), samples=samples, control=control, batched=True)
    generator, rows = torch.Generator().manual_seed(3), []
    for _ in range(times):
        theta = torch.tensor([x, s], dtype=torch.float64, requires_grad=True)
        value = twin(theta[0], sigma=theta[1], generator=generator)
        (first,) = torch.autograd.grad(value, theta, create_graph=True)
        rows.append(torch.stack([torch.autograd.grad(g, theta, retain_graph=True)[0] for g in first]).numpy())
    u, phi = x / s, stats.norm.pdf(x / s)
    exact = np.array([[-u * phi, (u**2 - 1) * phi], [(u**2 - 1) * phi, (2 * u - u**3) * phi]]) / s**2
    error = np.std(rows, axis=0, ddof=1) / math.sqrt(times)
    assert np.all(np.abs(np.mean(rows, axis=0) - exact) < 4.0 * error + 1e-9)


def test_second_derivatives_of_jax_are_those():
    x, s = 0.3, 0.5
    twin = vo.smooth(lambda v: (v > 0) * 1.0, samples=2**15, batched=True, control="quasi")
    hessian = jax.hessian(lambda theta: twin(theta[0], sigma=theta[1], key=jax.random.key(0)))(jnp.array([x, s]))
    u, phi = x / s, stats.norm.pdf(x / s)
    exact = np.array([[-u, u**2 - 1], [u**2 - 1, 2 * u - u**3]]) * phi / s**2
    assert_allclose(hessian, exact, atol=0.02)


def test_autocast_leaves_the_noise_alone():
    model = torch.nn.Linear(5, 3)
    twin = vo.smooth(lambda v: torch.round(v).sum(-1), 0.5, 256, batched=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = model(torch.ones(5))
        value = twin(scores, generator=torch.Generator().manual_seed(0))
    assert scores.dtype == torch.bfloat16
    expected = twin(scores.detach().float(), generator=torch.Generator().manual_seed(0))
    assert_allclose(value.item(), expected.item(), rtol=0.02, atol=0.1)
    value.backward()
    assert torch.isfinite(model.weight.grad).all()


def test_sigma_has_its_score():
    """Where optax 0.2.8 gives 1.49: <(x + sigma z)^2> = x^2 + sigma^2 has the derivative 2 sigma."""
    twin = vo.smooth(lambda v: v**2, samples=2**16, batched=True, control="quasi")
    gradient = jax.grad(lambda s: twin(jnp.zeros(()), sigma=s, key=jax.random.key(0)))(0.5)
    assert_allclose(gradient, 1.0, rtol=5e-3)


@pytest.mark.parametrize("noise", ["laplace", "uniform"])
def test_second_derivatives_that_do_not_exist_are_refused(noise):
    twin = vo.smooth(lambda v: (v > 0) * 1.0, noise=noise, batched=True)
    x = torch.tensor(0.3, requires_grad=True)
    (first,) = torch.autograd.grad(twin(x), x, create_graph=True)
    with pytest.raises(NotImplementedError, match=f"noise '{noise}' gives first derivatives only"):
        torch.autograd.grad(first, x)
    with pytest.raises(NotImplementedError, match=f"noise '{noise}' gives first derivatives only"):
        jax.hessian(lambda x: twin(x, key=jax.random.key(0)))(0.3)


def test_uniform_faces_in_several_dimensions():
    twin = vo.smooth(lambda v: (v.sum(-1) > 0.5).double(), samples=2**14, noise="uniform", batched=True, control="none")
    x, s = (
        torch.tensor([0.2, -0.1, 0.3], dtype=torch.float64, requires_grad=True),
        torch.tensor(0.5, requires_grad=True),
    )
    by_x, by_s = torch.autograd.grad(twin(x, sigma=s), (x, s))
    grid = np.array(list(itertools.product((np.arange(80) + 0.5) / 40.0 - 1.0, repeat=2))) * 0.5
    others = grid.sum(axis=1) + 0.4  # the average over two coordinates of the jump in the third
    up, down = np.mean(others + 0.5 > 0.5), np.mean(others - 0.5 > 0.5)
    assert_allclose(by_x, (up - down) / 1.0, atol=0.03)
    # P(z1 + z2 + z3 > 0.1 / s), and the density of the sum of three is (3 - t^2) / 8 around zero
    assert_allclose(by_s, (3.0 - 0.2**2) / 8.0 * 0.1 / 0.5**2, atol=0.04)


# -- Bits and classes -------------------------------------------------------------------------------------------------


def multilinear(f, p):
    """``<f(b)>`` and its gradient, over all b."""
    outcomes = np.array(list(itertools.product((0.0, 1.0), repeat=len(p))))
    values = np.array([f(b) for b in outcomes])
    each = np.where(outcomes == 1.0, p, 1.0 - p)
    gradient = [
        np.sum(values * np.delete(each, i, axis=1).prod(axis=1) * np.where(outcomes[:, i] == 1.0, 1.0, -1.0))
        for i in range(len(p))
    ]
    return np.sum(values * each.prod(axis=1)), np.array(gradient)


def test_few_bits_are_summed_exactly():
    p = np.array([0.2, 0.7, 1.0, 0.0])
    twin = vo.smooth(lambda b: (b.sum() - 1.5) ** 2 + b[0] * b[3], samples=16, noise="bernoulli")
    value, gradient = multilinear(lambda b: (b.sum() - 1.5) ** 2 + b[0] * b[3], p)
    x = torch.tensor(p, requires_grad=True)
    result = twin(x)
    assert_allclose(result.item(), value, rtol=1e-12)
    assert_allclose(torch.autograd.grad(result, x)[0], gradient, rtol=1e-12, atol=1e-14)
    with jax.enable_x64(True):
        hessian = jax.hessian(lambda x: twin(x, key=jax.random.key(0)))(jnp.array(p))
    assert_allclose(hessian, 2.0 - 2.0 * np.eye(4) + np.eye(4)[::-1] * np.array([1, 0, 0, 1]), atol=1e-12)


@pytest.mark.parametrize("control", CONTROLS)
def test_bits_are_unbiased(control):
    p = np.array([0.2, 0.7, 0.5, 0.9, 0.4, 0.1])
    weights = np.array([1.0, -2.0, 0.5, 1.5, -1.0, 3.0])
    twin = vo.smooth(lambda b: (b @ weights > 0.6) * 1.0, samples=60, noise="bernoulli", control=control, batched=True)
    value, gradient = multilinear(lambda b: float(b @ weights > 0.6), p)
    both = jax.jit(jax.vmap(jax.value_and_grad(lambda p, key: twin(p, key=key)), in_axes=(None, 0)))
    values, gradients = map(np.asarray, both(jnp.array(p), jax.random.split(jax.random.key(0), 16_000)))
    for rows, exact in ((values[:, None], value), (gradients, gradient)):
        error = np.std(rows, axis=0, ddof=1) / math.sqrt(len(rows))
        assert np.all(np.abs(np.mean(rows, axis=0, dtype=np.float64) - exact) < 4.0 * error)


@pytest.mark.parametrize("samples", [27, 24])  # all 27 outcomes, or samples
def test_classes(samples):
    p = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.25, 0.25, 0.5]])
    cost = np.array([[1.0, 2.0, 4.0], [0.0, 3.0, 1.0], [2.0, 2.0, 5.0]])
    twin = vo.smooth(lambda c: (c * cost).sum((-1, -2)) ** 2, samples=samples, noise="categorical", batched=True,
                     control="leave-one-out")  # fmt: skip
    q = p.copy()
    outcomes = list(itertools.product(range(3), repeat=3))

    def average(q):
        q = q / q.sum(axis=1, keepdims=True)
        return sum(
            math.prod(q[i, c] for i, c in enumerate(cs)) * sum(cost[i, c] for i, c in enumerate(cs)) ** 2
            for cs in outcomes
        )

    exact = np.array([[(average(q + e) - average(q - e)) / 2e-4 for e in row] for row in _units(p.shape, 1e-4)])
    both = jax.jit(jax.vmap(jax.value_and_grad(lambda p, key: twin(p, key=key)), in_axes=(None, 0)))
    values, gradients = map(np.asarray, both(jnp.array(p), jax.random.split(jax.random.key(0), 8000)))
    error = np.std(gradients, axis=0, ddof=1) / math.sqrt(8000)
    assert np.all(
        np.abs(np.mean(gradients, axis=0, dtype=np.float64) - exact) < 4.5 * error + 1e-4 * np.abs(exact).max()
    )
    assert_allclose(np.mean(values), average(p), rtol=0.01)


def _units(shape, size):
    units = np.zeros((*shape, *shape))
    for i in np.ndindex(*shape):
        units[i + i] = size
    return units


# -- Every way to call it ---------------------------------------------------------------------------------------------


def test_same_seed_same_numbers():
    twin = vo.smooth(lambda v: torch.round(v).sum(), samples=8)
    x = torch.randn(3)
    a, b = (twin(x, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert a == b
    own = [vo.smooth(lambda v: torch.round(v).sum(), samples=8, sigma=1.0, seed=5) for _ in range(2)]
    assert [own[0](x) for _ in range(3)] == [own[1](x) for _ in range(3)]
    assert len({float(own[0](x)) for _ in range(5)}) > 1  # fresh noise at every call
    jaxed = vo.smooth(lambda v: jnp.round(v).sum(), samples=8)
    y = jnp.array([0.4, 1.6])
    assert jaxed(y, key=jax.random.key(0)) == jaxed(y, key=jax.random.key(0))
    with pytest.raises(ValueError, match="key must be given with JAX arrays"):
        jaxed(y)
    with pytest.raises(ValueError, match=r"generator must be a torch.Generator; got int"):
        twin(x, generator=3)


@pytest.mark.parametrize("control", CONTROLS)
def test_standard_errors_are_true(control):
    twin = vo.smooth(lambda v: (v.sum(-1) > 0.2).double(), 0.7, 64, control=control, batched=True, with_error=True)
    x, generator = torch.zeros(2), torch.Generator().manual_seed(0)
    values, errors = zip(*(twin(x, generator=generator) for _ in range(400)), strict=True)
    claimed = float(torch.stack(errors).square().mean().sqrt())
    assert_allclose(claimed, float(torch.stack(values).std()), rtol=0.2)


def test_pytrees_in_and_out_and_other_arguments():
    def fn(tree, offset):
        return {"count": (tree["a"] > offset).sum(), "rounded": (tree["b"][0] * 4.0).round()}

    x = {"a": torch.zeros(3, requires_grad=True), "b": (torch.ones(2, 2),)}
    result = vo.smooth(fn, sigma={"a": 0.5, "b": (torch.full((2, 2), 0.1),)}, samples=64)(x, 0.1)
    assert result["rounded"].shape == (2, 2)
    result["count"].backward()
    assert torch.all(x["a"].grad != 0)
    y = {"a": jnp.zeros(3), "b": (jnp.ones((2, 2)),)}
    twin = vo.smooth(fn, sigma=0.5, samples=64)
    gradient = jax.grad(lambda y: twin(y, 0.1, key=jax.random.key(0))["count"])(y)
    assert np.all(np.asarray(gradient["a"]) != 0)
    with pytest.raises(ValueError, match="sigma must be one number or array, or a pytree like x with 2 leaves"):
        vo.smooth(fn, sigma=(1.0, 1.0, 1.0))(x, 0.1)


def test_named_arguments_reach_the_function():
    twin = vo.smooth(lambda v, weight=1.0: weight * (v > 0).sum(), samples=8)
    assert_allclose(twin(torch.ones(3), weight=2.0), 6.0)
    assert_allclose(twin(jnp.ones(3), weight=2.0, key=jax.random.key(0)), 6.0)


def test_more_numbers_than_sobol_points_have():
    x = torch.zeros(21_300, requires_grad=True)
    value = vo.smooth(lambda v: (v > 0).float().mean(-1), 1.0, 16, batched=True)(x)
    assert_allclose(value.item(), 0.5, atol=0.02)
    assert torch.isfinite(torch.autograd.grad(value, x)[0]).all()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: vo.smooth(lambda v: None)(torch.ones(2)), "fn must return an array, .*; got None"),
        (lambda: vo.smooth(lambda v: v.sum(), batched=True)(torch.ones(2)), r"one result per sample .* got shape \(\)"),
        (lambda: vo.smooth(torch.sum, noise="bernoulli")(torch.tensor([0.5, 1.2])), "x must be probabilities; got 1.2"),
        (lambda: vo.smooth(torch.sum, noise="categorical")(torch.tensor([0.5, -1.0])), "probabilities; got -1"),
        (lambda: vo.smooth(jnp.sum)(jnp.ones(2), key=0), "key must be a key of JAX, .*; got int"),
    ],
)
def test_refused_in_a_sentence(call, says):
    with pytest.raises(ValueError, match=says):
        call()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("noise", ["gaussian", "uniform", "bernoulli"])
def test_cuda(noise, control):
    twin = vo.smooth(lambda v: (v > 0.4).double().sum(-1), 0.5, 4096, noise=noise, control=control, batched=True)
    x = torch.tensor([0.3, 0.6, 0.5] * 5, device="cuda", requires_grad=True)
    value = twin(x, generator=torch.Generator().manual_seed(0))
    (gradient,) = torch.autograd.grad(value, x)
    cpu = x.detach().cpu().requires_grad_()
    expected = twin(cpu, generator=torch.Generator().manual_seed(0))
    assert value.device.type == gradient.device.type == "cuda"
    assert_allclose(value.item(), expected.item(), rtol=1e-3)
    assert_allclose(gradient.cpu(), torch.autograd.grad(expected, cpu)[0], rtol=0.05, atol=0.05)


def test_gradients_of_what_else_fn_uses():
    weight = torch.tensor(2.0, requires_grad=True)
    twin = vo.smooth(lambda v: weight * (v > 0).sum(), samples=16)
    x = torch.ones(3)
    (gradient,) = torch.autograd.grad(twin(x), weight)
    assert_allclose(gradient.item(), 3.0)


def test_transformations_of_torch():
    twin = vo.smooth(lambda v: torch.round(v).sum(), sigma=0.4, samples=64)
    rows = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    value = torch.func.vmap(lambda x: twin(x, generator=torch.Generator().manual_seed(0)))(rows)
    each = [twin(row, generator=torch.Generator().manual_seed(0)) for row in rows]
    assert_allclose(value, torch.stack(each), rtol=1e-6)
    shared = torch.Generator().manual_seed(0)
    assert torch.func.vmap(torch.func.grad(lambda x: twin(x, generator=shared)))(rows).shape == (4, 3)
    equal = torch.func.vmap(lambda x: twin(x, generator=shared), randomness="different")(torch.full((4, 3), 0.4))
    assert len(set(equal.tolist())) > 1

    def fixed(x):
        return twin(x, generator=torch.Generator().manual_seed(0))

    hessian = torch.func.hessian(fixed)(rows[0])
    assert_allclose(hessian, torch.autograd.functional.hessian(fixed, rows[0]), rtol=1e-4, atol=1e-4)
    assert_allclose(torch.func.jacrev(fixed)(rows[0]), torch.func.grad(fixed)(rows[0]), rtol=1e-5)


@pytest.mark.filterwarnings("ignore")  # the compiler's own, of its own code
@pytest.mark.parametrize("control", ["antithetic", "quasi"])
def test_compiles_to_one_graph(control):
    twin = vo.smooth(lambda v: (v > 0).float().sum(-1), 0.5, 4096, batched=True, control=control)
    torch.compiler.reset()
    compiled = torch.compile(twin.__call__, fullgraph=True, backend="aot_eager")
    x = torch.tensor([0.3, -0.2], requires_grad=True)
    torch.manual_seed(0)
    value = compiled(x)
    exact = step_derivatives(LAWS["gaussian"], x.detach().numpy(), 0.5)
    assert_allclose(value.item(), exact[0].sum(), atol=0.05)
    assert_allclose(torch.autograd.grad(value, x)[0], exact[1], atol=0.1)


def test_transformations_of_jax():
    twin = vo.smooth(lambda v: jnp.round(v).sum(), sigma=0.4, samples=64)
    rows = jnp.array(np.random.default_rng(0).standard_normal((4, 3)), dtype=jnp.float32)

    def fixed(x):
        return twin(x, key=jax.random.key(0))

    assert_allclose(jax.jit(jax.vmap(fixed))(rows), [fixed(row) for row in rows], rtol=1e-5)
    assert_allclose(jax.jacfwd(fixed)(rows[0]), jax.jit(jax.grad(fixed))(rows[0]), rtol=1e-3, atol=1e-4)
    assert np.all(np.isfinite(jax.jit(jax.hessian(fixed))(rows[0])))
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("rows",))
    spec = jax.sharding.PartitionSpec("rows")
    gradient = jax.vmap(jax.grad(fixed))
    spread = jax.jit(jax.shard_map(gradient, mesh=mesh, in_specs=spec, out_specs=spec))(rows)
    assert_allclose(spread, gradient(rows), rtol=1e-3, atol=1e-4)


# -- What people would use it for -------------------------------------------------------------------------------------


def shortest_path(costs):
    """The cells of the cheapest path through a grid, right and down, as a mask."""
    n, m = costs.shape
    best = np.full((n, m), np.inf)
    best[0, 0] = costs[0, 0]
    for i, j in itertools.product(range(n), range(m)):
        if (i, j) != (0, 0):
            best[i, j] = costs[i, j] + min(best[i - 1, j] if i else np.inf, best[i, j - 1] if j else np.inf)
    mask, (i, j) = np.zeros((n, m)), (n - 1, m - 1)
    while (i, j) != (0, 0):
        mask[i, j] = 1.0
        i, j = (i - 1, j) if j == 0 or (i and best[i - 1, j] <= best[i, j - 1]) else (i, j - 1)
    mask[0, 0] = 1.0
    return mask


def test_costs_are_learned_through_a_shortest_path():
    """Outside code: costs from which the shortest path is the one that was seen."""
    wanted = torch.tensor(shortest_path(np.random.default_rng(0).uniform(0.1, 1.0, (5, 5))))
    costs = torch.full((5, 5), 0.5, dtype=torch.float64, requires_grad=True)
    twin = vo.smooth(shortest_path, sigma=0.2, samples=32, host=True)
    optimizer = torch.optim.Adam([costs], lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        loss = (twin(costs) - wanted).abs().sum()
        loss.backward()
        optimizer.step()
    assert np.array_equal(shortest_path(costs.detach().numpy()), wanted.numpy())


def test_prices_are_learned_through_an_integer_programme():
    """Choose at most two of five items of the largest value: the values that explain a choice."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    def chosen(values):
        room = LinearConstraint(np.ones((1, 5)), ub=2)
        return milp(-values.astype(float), constraints=room, bounds=Bounds(0, 1), integrality=np.ones(5)).x

    wanted = np.array([0.0, 1.0, 0.0, 1.0, 0.0])
    twin = vo.smooth(chosen, sigma=0.3, samples=16, host=True)

    @jax.jit
    def gradient(values, key):
        return jax.grad(lambda v: jnp.sum((twin(v, key=key) - wanted) ** 2))(values)

    values = jnp.array([1.0, 0.6, 0.9, 0.5, 0.8])
    for i in range(25):
        values = values - 0.1 * gradient(values, jax.random.key(i))
    assert np.array_equal(np.round(chosen(np.asarray(values))), wanted)


def test_a_decision_rule_finds_its_threshold():
    """Profit of a rule that acts where a signal passes a threshold: piecewise constant in it."""
    rng = np.random.default_rng(0)
    signal = torch.tensor(rng.standard_normal(500))
    profit = torch.where(signal > 0.5, 1.0, -1.0)
    twin = vo.smooth(lambda t: (profit * (signal > t[..., None])).mean(-1), sigma=0.3, samples=64, batched=True)
    threshold = torch.tensor(-1.0, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([threshold], lr=0.1)
    for _ in range(80):
        optimizer.zero_grad()
        (-twin(threshold)).backward()
        optimizer.step()
    assert_allclose(threshold.item(), 0.5, atol=0.15)


def test_a_simulator_that_rounds():
    """Stock that is ordered in whole boxes: the average cost has a slope where the cost has none."""

    def cost(level):
        demand = np.array([3.0, 5.0, 4.0, 6.0, 2.0])
        boxes = np.round(level)
        return float(np.sum(2.0 * np.maximum(demand - boxes, 0.0) + np.maximum(boxes - demand, 0.0)))

    twin = vo.smooth(cost, sigma=0.7, samples=64, host=True)
    level = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([level], lr=0.1)
    for _ in range(80):
        optimizer.zero_grad()
        twin(level).backward()
        optimizer.step()
    assert abs(level.item() - 5.0) < 0.7  # the quantile 2 / 3 of the demand
