"""The text examples: a step, bits, a relaxation, the free energy, and sampled bounds as an EDA."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray
from scipy.special import expit

import varopt as vo
from varopt.experiments import problems
from varopt.experiments._tasks import Experiment, Plan, Row
from varopt.experiments.report import Column, Section

__all__ = ["Examples", "all_states", "box_relaxation"]

Vector = NDArray[np.float64]

BITS = 12


class Examples(Experiment):
    """What the paper says in passing, checked."""

    name = "examples"

    def section(self, rows: Sequence[Row], plan: Plan, seed: int) -> Section:
        """Five examples."""
        section = Section(self.name, "The examples of the text")
        rng = np.random.default_rng(seed)
        problem = problems.binary_quadratic(rng, BITS)
        _step(section)
        _bits(section, problem, rng)
        _free_energy(section, problem)
        _estimation_of_distribution(section, problem, seed)
        return section


def _step(section: Section) -> None:
    section.say(
        """*A step.* f(x) = 1 for x ≥ 0, else 0, has no useful gradient. Under x ~ N(θ, 1) the bound has one everywhere:
        the paper gives `dE/dθ = exp(−θ²/2)/√(2π)`."""
    )
    x = vo.Variable(name="x")
    thetas = (-2.0, -0.5, 0.0, 1.0, 3.0)
    bounds = [vo.bound(vo.step(x), vo.Gaussian([theta], 1.0)) for theta in thetas]
    values = [E.value for E in bounds]
    derivatives = [float(E.gradient["mean"][0]) for E in bounds]
    printed = [math.exp(-(theta**2) / 2.0) / math.sqrt(2.0 * math.pi) for theta in thetas]
    columns = [Column("θ", "g")] + [Column(name, ".9f") for name in ("E(θ)", "dE/dθ", "paper")]
    lines = list(zip(thetas, values, derivatives, printed, strict=True))
    section.table("step", "The bound of a step", columns, lines)
    section.verdict(
        "The bound of a step is differentiable, with derivative exp(−θ²/2)/√(2π).",
        f"The largest relative difference is {np.max(np.abs(np.divide(derivatives, printed) - 1.0)):.0e}.",
        bool(np.allclose(derivatives, printed, rtol=1e-12, atol=0.0)),
        rule="the derivatives at five θ are the printed ones to 10⁻¹²",
    )
    section.equal(
        "E is the normal distribution function", values, [0.5 * math.erfc(-t / math.sqrt(2.0)) for t in thetas]
    )


def _bits(section: Section, problem: problems.BinaryQuadratic, rng: np.random.Generator) -> None:
    section.say(
        f"""*Bits, and a bracket by a relaxation.* f(x) = x'Ax + b'x over {BITS} bits, to be maximised. Under
        independent bits with probabilities θ the bound is `E(θ) = Σ_(i≠j) A_ij θ_i θ_j + Σ_i (b_i + A_ii) θ_i`, below
        max f for every θ. It is linear in each θ_i, so rounding one after the other to its better end never lowers it.
        A relaxation to the box, made concave by x_i² = x_i, bounds the maximum from above."""
    )
    f, A, b = problem.objective(), problem.A, problem.b
    states = all_states(BITS)
    values = np.einsum("si,ij,sj->s", states, A, states) + states @ b
    starts = [np.full(BITS, 0.5), *rng.uniform(0.0, 1.0, (20, BITS))]
    bounds = [vo.bound(f, vo.Bernoulli(theta)).value for theta in starts]
    off = A - np.diag(np.diag(A))
    section.equal(
        "E is the printed bound", bounds, [t @ off @ t + (b + np.diag(A)) @ t for t in starts], rtol=1e-11, atol=1e-12
    )
    weights = [np.prod(np.where(states == 1.0, theta, 1.0 - theta), axis=1) for theta in starts]
    section.equal("E is the average over all states", bounds, [w @ values for w in weights], rtol=1e-10, atol=1e-12)
    rounded = [rounding(f, theta) for theta in starts]
    relaxation = box_relaxation(A, b)
    lines = [
        ("E at θ = 1/2", bounds[0]),
        ("f, rounded from there", rounded[0][-1]),
        ("f, best rounding of 20 random θ", max(path[-1] for path in rounded[1:])),
        (f"maximum over all {2**BITS} states", float(values.max())),
        ("concave relaxation", relaxation),
    ]
    section.table("bits", "A bracket of a binary quadratic programme", [Column(""), Column("value", ".6f")], lines)
    section.check("rounding never lowers E", [np.all(np.diff(path) >= -1e-12) for path in rounded])
    section.verdict(
        "E ≤ max f ≤ relaxation: the optimum is bracketed by both together.",
        f"{max(path[-1] for path in rounded):.4f} ≤ {values.max():.4f} ≤ {relaxation:.4f}.",
        bool(max(bounds) <= values.max() + 1e-9 and values.max() <= relaxation),
        rule="the maximum over all states lies between the largest E and the relaxation",
    )


def rounding(f: Any, theta: Vector) -> list[float]:
    """E while the probabilities are rounded, one after the other, to the end where it is larger."""
    path = [vo.bound(f, vo.Bernoulli(theta)).value]
    for i in range(theta.size):
        ascent = vo.bound(f, vo.Bernoulli(theta)).gradient["probability"][i]
        theta = np.where(np.arange(theta.size) == i, float(ascent > 0.0), theta)
        path.append(vo.bound(f, vo.Bernoulli(theta)).value)
    return path


def _free_energy(section: Section, problem: problems.BinaryQuadratic) -> None:
    section.say(
        """*Free energy.* Minimising `⟨log p⟩ − β⟨f⟩` fits p to exp(β f)/Z. For a Gaussian of fixed covariance the
        entropy is constant and its minimum that of the bound; for bits it is not, and the free energy divided by −β is
        no bound on max f. It tends to one as β grows."""
    )
    f, A, b = problem.objective(), problem.A, problem.b
    states = all_states(BITS)
    maximum = float(np.max(np.einsum("si,ij,sj->s", states, A, states) + states @ b))
    lines = []
    logits = np.zeros(BITS)
    for beta in (0.05, 0.2, 1.0, 5.0, 25.0):

        def energy(logits: Vector, beta: float = beta) -> tuple[float, Vector]:
            theta = expit(logits)
            E = vo.bound(f, vo.Bernoulli(theta))
            entropy = theta @ np.logaddexp(0.0, -logits) + (1.0 - theta) @ np.logaddexp(0.0, logits)
            ascent = (logits - beta * E.gradient["probability"]) * theta * (1.0 - theta)
            return float(-entropy - beta * E.value), ascent

        found = scipy.optimize.minimize(energy, logits, jac=True, method="L-BFGS-B")
        logits = found.x
        E = vo.bound(f, vo.Bernoulli(expit(logits))).value
        lines.append((beta, E, -found.fun / beta, maximum))
    columns = [Column("β", "g"), Column("E = ⟨f⟩", ".4f"), Column("−(free energy)/β", ".4f"), Column("max f", ".4f")]
    section.table("free-energy", "Free energy against the bound, twelve bits", columns, lines)
    section.check("E is a bound at every β", np.array([line[1] for line in lines]) <= maximum + 1e-9)
    exceeded = [beta for beta, _, energy, _ in lines if energy > maximum]
    section.verdict(
        "The free energy does not provide a bound on f* in general.",
        "−(free energy)/β exceeds max f at β = " + ", ".join(f"{beta:g}" for beta in exceeded) + "."
        if exceeded else "It stayed below max f on this instance.",
        bool(exceeded),
        rule="−(free energy)/β exceeds the maximum over all states at some β",
    )  # fmt: skip
    entropies = [vo.Gaussian(mean, 0.3).entropy() for mean in np.random.default_rng(0).normal(size=(5, 2))]
    bits = [vo.Bernoulli(theta).entropy() for theta in ([0.5, 0.5], [0.9, 0.5])]
    section.verdict(
        "For a Gaussian of fixed covariance the entropy is constant, so optimising the free energy and the bound are "
        "the same; in general the two differ.",
        f"The entropy of N(μ, 0.09 I) varies by {np.ptp(entropies):.0e} over five means; that of two bits by "
        f"{abs(bits[0] - bits[1]):.2f} between θ = (0.5, 0.5) and (0.9, 0.5).",
        bool(np.ptp(entropies) < 1e-12 and abs(bits[0] - bits[1]) > 0.1),
        rule="the entropy is the same at five means to 10⁻¹², and differs by more than 0.1 between two pairs of bits",
    )


def _estimation_of_distribution(section: Section, problem: problems.BinaryQuadratic, seed: int) -> None:
    section.say(
        """*An estimation-of-distribution algorithm as sampled VO.* With E and its gradient averaged over samples,
        ascent along the natural gradient moves θ by `η ⟨(f − baseline)(x − θ)⟩`: samples in, a new distribution out,
        which is an EDA (Berny's update, PBIL with f for its weights)."""
    )
    f, A, b = problem.objective(), problem.A, problem.b
    states = all_states(BITS)
    values = np.einsum("si,ij,sj->s", states, A, states) + states @ b
    rng = np.random.default_rng(seed)
    theta, lines = np.full(BITS, 0.5), []
    for generation in range(61):
        family = vo.Bernoulli(theta)
        if generation % 15 == 0:
            sampled = vo.bound(f, family, method="sampled", samples=512, seed=rng)
            lines.append((generation, sampled.value, sampled.standard_error, vo.bound(f, family).value, values.max()))
        draws = family.sample(200, seed=rng)
        scores = np.einsum("si,ij,sj->s", draws, A, draws) + draws @ b
        update = np.mean((scores - scores.mean())[:, None] * (draws - theta), axis=0)
        theta = np.clip(theta + 0.1 / (1e-9 + scores.std()) * update, 0.01, 0.99)
    columns = [
        Column("generation", "d"), Column("sampled E", ".4f"), Column("± (standard error)", ".4f"),
        Column("exact E", ".4f"), Column("max f", ".4f"),
    ]  # fmt: skip
    section.table("eda", "Sampled variational optimization on twelve bits, 200 samples a generation", columns, lines)
    off = [abs(sampled - exact) / max(error, 1e-12) for _, sampled, error, exact, _ in lines]
    section.check("the sampled bound is within five standard errors of the exact one", np.array(off) < 5.0)
    exact = [line[3] for line in lines]
    section.verdict(
        "With sampled expectations VO is an EDA.",
        f"E rises from {exact[0]:.3f} to {exact[-1]:.3f} in 60 generations; the maximum is {values.max():.3f}.",
        bool(exact[-1] > exact[0] and exact[-1] <= values.max() + 1e-9),
        rule="the exact E rises and stays below the maximum over all states",
    )


def all_states(n: int) -> Vector:
    """All vectors of n bits."""
    return np.array(list(itertools.product((0.0, 1.0), repeat=n)))


def box_relaxation(A: Vector, b: Vector) -> float:
    """An upper bound on ``max x'Ax + b'x`` over bits.

    As ``x_i^2 = x_i``, moving enough of the diagonal into b makes the objective concave on the box and leaves it alone
    on the bits. A concave function lies below its tangents, so the value need not even be maximised exactly.
    """
    n = b.size
    shift = float(np.linalg.eigvalsh(A)[-1])
    Q, c = A - shift * np.eye(n), b + shift
    found = scipy.optimize.minimize(
        lambda z: -(z @ Q @ z + c @ z), np.full(n, 0.5), jac=lambda z: -(2.0 * Q @ z + c), bounds=[(0.0, 1.0)] * n
    )
    z = found.x
    ascent = 2.0 * Q @ z + c
    return float(z @ Q @ z + c @ z + np.sum(np.maximum(ascent * (1.0 - z), -ascent * z)))
