"""The exact layers on PyTorch: derivatives of every order, transformations, precisions."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-nn installs it")

from tests.nn.layers import ELEMENTWISE, LAYERS, ORDERED, ROWS  # noqa: E402
from varopt import nn  # noqa: E402

# PyTorch's forward mode and compiler warn of PyTorch.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def tensor(values, **options):
    return torch.tensor(values, dtype=torch.float64, **options)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("name", LAYERS)
def test_values_are_those_of_numpy(name, row, device):
    for sigma in (1e-6, 0.4, 1e6):
        ours = LAYERS[name](tensor(ROWS[row], device=device), sigma)
        assert ours.device.type == device
        expected = LAYERS[name](np.array(ROWS[row]), sigma)
        assert_allclose(ours.cpu().numpy(), expected, rtol=1e-12, atol=1e-13 * (1.0 + np.abs(expected).max()))


@pytest.mark.parametrize("row", ["spread", "tied"])
@pytest.mark.parametrize("name", LAYERS)
def test_gradcheck_and_gradgradcheck(name, row):
    x, sigma = tensor(ROWS[row], requires_grad=True), tensor(0.6, requires_grad=True)
    assert torch.autograd.gradcheck(LAYERS[name], (x, sigma), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(LAYERS[name], (x, sigma), atol=1e-4)


@pytest.mark.parametrize("sigma", [1e-6, 1e6])
@pytest.mark.parametrize("name", [name for name in LAYERS if not name.startswith("round")])  # its steps are the scale
def test_gradcheck_in_units_of_sigma(name, sigma):
    """A layer of ``sigma t`` in t and log sigma: the same problem at every scale, but for knots that are not zero."""
    layer = LAYERS[name]
    scale = float(np.abs(layer(np.array(ROWS["spread"]) * sigma, sigma)).max())

    def scaled(t, log_sigma):
        s = sigma * torch.exp(log_sigma)
        return layer(sigma * t, s) / scale

    t, log_sigma = tensor(ROWS["spread"], requires_grad=True), tensor(0.0, requires_grad=True)
    torch.manual_seed(0)  # of the directions that the second check takes
    assert torch.autograd.gradcheck(scaled, (t, log_sigma))
    # Where knots are 1e-6 sigma apart their jumps cancel: a first derivative has an error of 1e-16 sigma = 1e-10, which
    # differences over a step of 1e-6 would show as 1e-4.
    assert torch.autograd.gradgradcheck(scaled, (t, log_sigma), eps=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("name", LAYERS)
def test_no_gradient_of_any_order_is_nan(name, row, dtype):
    for sigma in (1e-6, 1e-3, 1.0, 1e6):
        x = torch.tensor(ROWS[row], dtype=dtype, requires_grad=True)
        s = torch.tensor(sigma, dtype=dtype, requires_grad=True)
        value = LAYERS[name](x, s) @ torch.tensor([0.3, -1.0, 0.7, 0.2, 1.1], dtype=dtype)
        for _ in range(3):
            by_x, by_s = torch.autograd.grad(value, (x, s), create_graph=True)
            assert not torch.isnan(by_x).any(), sigma
            assert not torch.isnan(by_s).any(), sigma
            value = (by_x * torch.tensor([1.0, 0.5, -0.5, 0.25, -1.0], dtype=dtype)).sum() * sigma + by_s * sigma
            if not torch.isfinite(value):
                break  # a third derivative of 1e36 is too large for float32, and no NaN


@pytest.mark.parametrize("name", ORDERED)
def test_no_gradient_is_nan_behind_a_mask(name):
    inf = float("inf")
    for row in ([-inf, 1.0, 2.0, -inf, 0.0], [-inf] * 4 + [1.0], [-inf] * 5, [1.0, inf, 0.0, -inf, 2.0]):
        x, s = torch.tensor(row, requires_grad=True), torch.tensor(0.5, requires_grad=True)
        value = (ORDERED[name](x, s).clamp(-10.0, 10.0) * torch.tensor([0.3, -1.0, 0.7, 0.2, 1.1])).sum()
        first = torch.autograd.grad(value, (x, s), create_graph=True)
        second = torch.autograd.grad((first[0] * torch.arange(5.0)).sum() + first[1], (x, s))
        for g in (value, *first, *second):
            assert torch.isfinite(g).all(), row


@pytest.mark.parametrize("name", LAYERS)
def test_single_precision_gradients_follow_double(name):
    for row in ("spread", "tied", "pairs"):
        grads = []
        for dtype in (torch.float64, torch.float32):
            x = torch.tensor(ROWS[row], dtype=torch.float32).to(dtype).requires_grad_()
            s = torch.tensor(0.7, dtype=torch.float32).to(dtype).requires_grad_()
            value = (LAYERS[name](x, s) * torch.tensor([0.3, -1.0, 0.7, 0.2, 1.1], dtype=dtype)).sum()
            grads.append(torch.cat([g.reshape(-1).double() for g in torch.autograd.grad(value, (x, s))]))
        assert (grads[0] - grads[1]).abs().max() < 1e-5 * max(1.0, float(grads[0].abs().max()))


@pytest.mark.parametrize("name", LAYERS)
def test_transformations(name):
    layer = LAYERS[name]
    rows = tensor(np.random.default_rng(0).standard_normal((3, 5)))
    s = tensor(0.5)

    def total(x, sigma):
        return (layer(x, sigma) * tensor([0.3, -1.0, 0.7, 0.2, 1.1])).sum()

    each = torch.stack([layer(row, s) for row in rows])
    assert_allclose(torch.func.vmap(layer, in_dims=(0, None))(rows, s), each, rtol=1e-12, atol=1e-14)
    jacobians = torch.func.vmap(torch.func.jacrev(layer), in_dims=(0, None))(rows, s)
    plain = torch.stack([torch.autograd.functional.jacobian(lambda x: layer(x, s), row) for row in rows])
    assert_allclose(jacobians, plain, rtol=1e-10, atol=1e-12)
    gradients = torch.func.vmap(torch.func.grad(total), in_dims=(0, None))(rows, s)
    assert_allclose(gradients, torch.stack([torch.func.grad(total)(row, s) for row in rows]), rtol=1e-10, atol=1e-12)
    hessian = torch.func.hessian(total)(rows[0], s)
    assert_allclose(hessian, torch.autograd.functional.hessian(lambda x: total(x, s), rows[0]), rtol=1e-9, atol=1e-11)
    # the heat equation: d/dsigma = sigma times the trace of the Hessian
    by_sigma = torch.func.grad(total, argnums=1)(rows[0], s)
    assert_allclose(by_sigma, s * torch.trace(hessian), rtol=1e-9, atol=1e-11)


@pytest.mark.filterwarnings("ignore")  # the compiler's own, of its own code
@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *(
            (name, "aot_eager")
            for name in ("sign", "zero_one", "clip", "own", "round", "argmax", "top2", "sort", "discounted")
        ),
        ("rank", "inductor"),
    ],
)
def test_compiles_to_one_graph(name, backend):
    if backend == "inductor" and not (shutil.which("gcc") or shutil.which("cc")):
        pytest.skip("needs a C compiler")
    layer = LAYERS[name]
    torch.compiler.reset()
    compiled = torch.compile(lambda x: layer(x, 0.5), fullgraph=True, backend=backend)
    x = tensor(ROWS["spread"], requires_grad=True)
    weights = tensor([0.3, -1.0, 0.7, 0.2, 1.1])
    assert_allclose(compiled(x).detach(), layer(x, 0.5).detach(), rtol=1e-11, atol=1e-13)
    ours, plain = (torch.autograd.grad((f(x) * weights).sum(), x)[0] for f in (compiled, lambda x: layer(x, 0.5)))
    assert_allclose(ours, plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_half_precision_and_autocast(name):
    x = torch.tensor(ROWS["spread"], dtype=torch.bfloat16)
    result = LAYERS[name](x, 0.5)
    assert result.dtype == torch.bfloat16
    assert_allclose(result.float(), LAYERS[name](x.float(), 0.5), rtol=1e-2, atol=1e-2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model = torch.nn.Linear(5, 5)
        assert torch.isfinite(LAYERS[name](model(torch.ones(2, 5)), 0.5)).all()


@pytest.mark.parametrize("name", ORDERED)
def test_chunks_do_not_show_in_gradients(name, monkeypatch):
    rows = tensor(np.random.default_rng(0).standard_normal((7, 5)), requires_grad=True)
    s, weights = tensor(0.5, requires_grad=True), tensor(np.random.default_rng(1).standard_normal((7, 5)))

    def derivatives():
        first = torch.autograd.grad((ORDERED[name](rows, s) * weights).sum(), (rows, s), create_graph=True)
        return (*first, *torch.autograd.grad((first[0] * weights).sum() + first[1], (rows, s)))

    whole = derivatives()
    monkeypatch.setattr("varopt.nn._order._LIMIT", 600)
    for a, b in zip(derivatives(), whole, strict=True):
        assert_allclose(a.detach(), b.detach(), rtol=1e-10, atol=1e-12)
    hessian = torch.func.hessian(lambda x: (ORDERED[name](x, 0.5) * weights[:3]).sum())(rows[:3].detach())
    assert torch.isfinite(hessian).all()


def test_sigma_is_learned():
    """Sigma of a smoothed step falls to what makes the probabilities those of the data."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4000, generator=generator)
    y = (x + 0.3 * torch.randn(4000, generator=generator) > 0).float()
    log_sigma = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.LBFGS([log_sigma], max_iter=50, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(nn.step(x, torch.exp(log_sigma)), y)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert_allclose(torch.exp(log_sigma).item(), 0.3, rtol=0.1)


def test_modules_are_the_functions():
    scores, labels = torch.randn(6, 4), torch.tensor([0, 3, 1, 2, 2, 1])
    relevance = torch.tensor([[0.0, 1.0, 2.0, 0.0]] * 6)
    assert torch.equal(nn.ZeroOneLoss(0.5)(scores, labels), nn.zero_one_loss(scores, labels, 0.5))
    assert torch.equal(nn.TopKError(2, 0.5)(scores, labels), nn.topk_error(scores, labels, 2, 0.5))
    assert torch.equal(nn.SpearmanLoss(0.5)(scores, relevance), 1 - nn.spearman(scores, relevance, 0.5))
    assert torch.equal(nn.NDCGLoss(0.5, k=2)(scores, relevance), 1 - nn.ndcg(scores, relevance, 0.5, 2))
    assert torch.equal(nn.QuantileLoss(0.9, 0.5)(scores, relevance), nn.quantile_loss(scores, relevance, 0.9, 0.5))
    assert torch.equal(nn.Expect("hinge", 0.5)(scores), nn.hinge(scores, 0.5))
    learned = nn.ZeroOneLoss(torch.nn.Parameter(torch.tensor(0.5)))
    assert [name for name, _ in learned.named_parameters()] == ["sigma"]
    learned(scores, labels).backward()
    assert torch.isfinite(learned.sigma.grad)
    assert repr(nn.TopKError(2, 0.5)) == "TopKError(sigma=0.5, k=2, reduction=mean)"


def test_libraries_are_not_mixed():
    jnp = pytest.importorskip("jax.numpy", reason="needs JAX: make test-nn installs it")
    with pytest.raises(TypeError, match="arrays must be of one library"):
        nn.step(torch.ones(2), jnp.ones(2))


def test_elementwise_broadcasts():
    result = nn.step(torch.zeros(3, 1), torch.ones(2))
    assert result.shape == (3, 2)
    assert set(ELEMENTWISE) < set(LAYERS)


def top_two(rng, rows=6, dtype=torch.float64):
    x = torch.tensor(rng.normal(size=(rows, 7)), dtype=dtype, requires_grad=True)
    return x, nn.topk(x, 2, 0.5), torch.tensor(rng.normal(size=(rows, 7)), dtype=dtype)


def test_what_a_top_k_keeps_is_used_once_and_by_nobody_else(rng):
    several = [top_two(rng) for _ in range(4)]  # of one shape, alive at the same time
    expected = []
    for x, _, weights in several:
        again = x.detach().clone().requires_grad_()
        expected.append(torch.autograd.grad(nn.topk(again, 2, 0.5), again, weights, create_graph=True)[0].detach())
    for (x, y, weights), gradient in zip(several, expected, strict=True):
        for _ in range(2):  # the second time it is counted again
            assert_allclose(torch.autograd.grad(y, x, weights, retain_graph=True)[0], gradient, rtol=1e-12, atol=1e-14)
        y.backward(weights)
        assert_allclose(x.grad, gradient, rtol=1e-12, atol=1e-14)


def test_a_top_k_whose_input_changed_refuses_its_gradient(rng):
    w = torch.ones(3, 5, dtype=torch.float64, requires_grad=True)
    x = torch.tensor(rng.normal(size=(3, 5))) * w
    y = nn.topk(x, 2, 1.0)
    x.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y[0, 0].backward()


def test_memory_of_a_top_k_goes_between_modes_and_threads(rng):
    x, y, weights = top_two(rng)
    with torch.inference_mode():
        inside = nn.topk(x, 2, 0.5).clone()
    gradient = torch.autograd.grad(y, x, weights)[0]
    with ThreadPoolExecutor(4) as pool:
        every = list(pool.map(lambda _: torch.autograd.grad(nn.topk(x, 2, 0.5), x, weights)[0], range(24)))
    for other in every:
        assert_allclose(other, gradient, rtol=1e-13)
    assert_allclose(inside.numpy(), y.detach().numpy(), rtol=1e-13)


@pytest.mark.parametrize("rows", [300, 900])
def test_many_rows_of_a_top_k_are_taken_in_blocks(rows, rng, monkeypatch):
    x = torch.tensor(rng.normal(size=(rows, 7)), requires_grad=True)
    weights = torch.tensor(rng.normal(size=(rows, 7)))
    whole = nn.topk(x, 2, 0.5)
    gradient = torch.autograd.grad(whole, x, weights)[0]
    monkeypatch.setattr("varopt.nn._torch_topk._TOPK_BYTES", 7 * 20 * 8 * 40 * 200)  # so that there are two, or more
    parts = nn.topk(x, 2, 0.5)
    assert_allclose(parts.detach(), whole.detach(), rtol=1e-13)
    assert_allclose(torch.autograd.grad(parts, x, weights)[0], gradient, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("n", [2, 5, 20, 60])
def test_top_k_in_single_precision_keeps_five_digits_where_that_is_hardest(n, rng):
    apart = rng.uniform(0.0, 12.0, size=(40, 1))
    clusters = np.where(np.arange(n) < rng.integers(1, n, size=(40, 1)), apart, 0.0)
    x = np.concatenate([np.zeros((1, n)), rng.normal(size=(20, n)), clusters])
    weights = rng.normal(size=x.shape)
    for k in {1, max(1, n // 4), n // 2}:
        found = []
        for dtype in (torch.float32, torch.float64):
            at = torch.tensor(x, dtype=dtype, requires_grad=True)
            y = nn.topk(at, k, 1.0)
            y.backward(torch.tensor(weights, dtype=dtype))
            found.append((y.detach().double().numpy(), at.grad.double().numpy()))
        for single, double in zip(*found, strict=True):
            assert_allclose(single, double, atol=1e-5, rtol=0.0)
