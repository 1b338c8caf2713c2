"""A dimod sampler: quadratic models, with constraints too, and polynomials in, sample sets with a bracket out.

Needs dimod, the extra ``varopt[dimod]``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

import dimod
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._domains import as_generator
from varopt.integrations._dimod_models import BitModel, bits_of_cqm, bits_of_dqm
from varopt.optimize import minimize_energy
from varopt.solvers.discrete import Energy, Products, added_rounding, doubles, model_energy

__all__ = ["VaroptSampler"]

_PARAMETERS: Mapping[str, list[str]] = {
    "num_reads": [],
    "seed": [],
    "time_limit": [],
    "target": [],
    "initial_state": [],
    "method": [],
    "progress": [],
}


class VaroptSampler(dimod.Sampler, dimod.PolySampler):  # type: ignore[misc]
    """The discrete solver as a dimod sampler.

    The reads are the best different samples of one run; where it meets fewer, the best is repeated.
    ``sampleset.info`` holds ``lower`` and ``upper``, between which the lowest energy lies, ``status``, the sentence on
    how the run ended, ``proof``, and ``time`` in seconds.

    Examples
    --------
    >>> import dimod
    >>> from varopt.integrations.dimod import VaroptSampler
    >>> bqm = dimod.BinaryQuadraticModel({"a": -1.0}, {("a", "b"): 2.0, ("b", "c"): 2.0}, 0.0, "SPIN")
    >>> found = VaroptSampler().sample(bqm)
    >>> found.first.energy, found.info["lower"]
    (np.float64(-5.0), -5.0)
    """

    @property
    def parameters(self) -> dict[str, list[str]]:
        """Keyword arguments of the sampling methods."""
        return dict(_PARAMETERS)

    @property
    def properties(self) -> dict[str, Any]:
        """Facts about the sampler: there is none to know."""
        return {}

    def sample(self, bqm: Any, **parameters: Any) -> Any:
        """Sample a binary quadratic model.

        Parameters
        ----------
        bqm : dimod.BinaryQuadraticModel
            What is minimised.
        **parameters
            ``num_reads`` rows, all different if so many are found (one by default), ``seed``, ``time_limit`` in
            seconds, ``target``, an energy to stop at, ``initial_state``, a sample to start from, ``method`` and
            ``progress``; as for `varopt.discrete.qubo`.

        Returns
        -------
        dimod.SampleSet
        """
        if not (hasattr(bqm, "quadratic") and hasattr(bqm, "vartype")):
            raise ValueError(
                f"the model must be a dimod.BinaryQuadraticModel; got {type(bqm).__name__}. Others have sample_poly, "
                "sample_cqm and sample_dqm."
            )
        options = self._options(parameters)
        energy, labels = model_energy(bqm)
        return self._sampled(energy, labels, bqm, options)

    def sample_poly(self, polynomial: Any, **parameters: Any) -> Any:
        """Sample a polynomial of any degree, natively: it is not reduced to pairs.

        Parameters
        ----------
        polynomial : dimod.BinaryPolynomial
            What is minimised.
        **parameters
            As for `sample`.

        Returns
        -------
        dimod.SampleSet
        """
        options = self._options(parameters)
        labels = list(polynomial.variables)
        spins = polynomial.vartype is dimod.SPIN
        place = {label: k for k, label in enumerate(labels)}
        n = len(labels)
        constant, linear, matrix = 0.0, np.zeros(n), sp.lil_array((n, n))
        longer: dict[int, list[tuple[list[int], float]]] = {}
        for term, weight in polynomial.items():
            at, weight = [place[label] for label in term], float(weight)
            if len(at) > 2:
                # A spin of dimod is 2x - 1, minus the literal 1 - 2x.
                sign = -1.0 if spins and len(at) % 2 else 1.0
                longer.setdefault(len(at), []).append(([k + (2 * n if spins else 0) for k in at], sign * weight))
            elif not at:
                constant += weight
            elif not spins:
                linear[at[0]] += weight if len(at) == 1 else 0.0
                if len(at) == 2:
                    matrix[at[0], at[1]] += weight
            elif len(at) == 1:
                linear[at[0]] += 2.0 * weight
                constant -= weight
            else:  # (2x - 1) (2y - 1)
                matrix[at[0], at[1]] += 4.0 * weight
                linear[at] -= 2.0 * weight
                constant += weight
        quadratic = Energy.quadratic_form(matrix.tocsr(), linear, constant)
        products = tuple(
            Products(np.array([codes for codes, _ in terms]), np.array([w for _, w in terms]))
            for terms in longer.values()
        )
        weights, rounded = doubles(polynomial.values())
        most = max(Counter(label for term in polynomial for label in term).values(), default=0)
        # Constants have as many addends as there are terms.
        lost = quadratic.rounding + rounded + added_rounding([weights], max(most, len(polynomial)) + 8, 8.0)
        energy = Energy(quadratic.constant, quadratic.linear, quadratic.quadratic, products, rounding=lost)
        return self._sampled(energy, labels, polynomial, options)

    def sample_cqm(self, cqm: Any, **parameters: Any) -> Any:
        """Sample a constrained quadratic model: bits, spins and integers, with linear constraints.

        Parameters
        ----------
        cqm : dimod.ConstrainedQuadraticModel
            What is minimised. No Lagrange multiplier has to be guessed.
        **parameters
            ``seed``, ``time_limit`` in seconds, ``target``, an energy to stop at, and ``progress``.

        Returns
        -------
        dimod.SampleSet
            With ``is_feasible`` and ``is_satisfied``; without a row where no sample satisfies the constraints.

        Examples
        --------
        >>> import dimod
        >>> from varopt.integrations.dimod import VaroptSampler
        >>> a, b, c = dimod.Binaries("abc")
        >>> cqm = dimod.ConstrainedQuadraticModel()
        >>> cqm.set_objective(-2 * a - 3 * b - c + a * b)
        >>> label = cqm.add_constraint(a + b + c <= 1, label="one")
        >>> found = VaroptSampler().sample_cqm(cqm)
        >>> found.first.sample["b"], bool(found.first.is_feasible), found.info["lower"]
        (np.int64(1), True, -3.0)
        """
        options, model = self._constrained(parameters), bits_of_cqm(cqm)
        rows, info = self._found(model, options)
        samples = (rows, list(cqm.variables))
        return dimod.SampleSet.from_samples_cqm(samples, cqm, info=info) if len(rows) else _empty(samples, info)

    def sample_dqm(self, dqm: Any, **parameters: Any) -> Any:
        """Sample a discrete quadratic model.

        Parameters
        ----------
        dqm : dimod.DiscreteQuadraticModel
            What is minimised.
        **parameters
            As for `sample_cqm`.

        Returns
        -------
        dimod.SampleSet
        """
        options, model = self._constrained(parameters), bits_of_dqm(dqm)
        rows, info = self._found(model, options)
        samples = (rows, list(dqm.variables))
        return dimod.SampleSet.from_samples(samples, energy=dqm.energies(samples), vartype="DISCRETE", info=info)

    def _found(self, model: BitModel, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The sample that was found as a row, or no row, and what is known of it."""
        result = model.solved(**options)
        found = np.isfinite(result.fun)
        return np.array([model.sample(result.x)])[: int(found)], _known(result)

    def _constrained(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of constrained models."""
        accepted = ("seed", "time_limit", "target", "progress")
        unknown = [name for name in parameters if name not in accepted]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is no parameter of this model; accepted: {', '.join(accepted)}.")
        return dict(parameters)

    def _options(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        unknown = [name for name in parameters if name not in _PARAMETERS]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is no parameter of this sampler; accepted: {', '.join(_PARAMETERS)}.")
        reads = parameters.get("num_reads", 1)
        if not isinstance(reads, (int, np.integer)) or isinstance(reads, bool) or reads < 1:
            raise ValueError(f"num_reads must be a positive whole number; got {reads!r}.")
        return dict(parameters)

    def _sampled(self, energy: Energy, labels: list[Hashable], model: Any, options: dict[str, Any]) -> Any:
        reads = int(options.pop("num_reads", 1))
        seed = as_generator(options.pop("seed", 0))
        state = options.pop("initial_state", None)
        if not labels:
            empty = np.empty((reads, 0), dtype=np.int8)
            return dimod.SampleSet.from_samples_bqm((empty, labels), model) if hasattr(model, "quadratic") else (
                dimod.SampleSet.from_samples((empty, labels), energy=[energy.constant] * reads, vartype=model.vartype)
            )  # fmt: skip
        if state is not None:
            options["x0"] = _start(state, labels, model.vartype)
        result = minimize_energy(energy, seed=seed, pool=reads, **options)
        x = result.pool.x[np.minimum(np.arange(reads), len(result.pool.x) - 1)]
        x[len(result.pool.x) :] = result.x
        samples = (2 * x - 1 if model.vartype is dimod.SPIN else x).astype(np.int8)
        energies, info = model.energies((samples, labels)), _known(result)
        return dimod.SampleSet.from_samples((samples, labels), energy=energies, vartype=model.vartype, info=info)


def _start(state: Any, labels: list[Hashable], vartype: Any) -> NDArray[np.float64]:
    """Bits from a sample."""
    if not isinstance(state, Mapping):
        raise ValueError(
            f"initial_state must be a sample, a mapping from labels to values; got {type(state).__name__}."
        )
    missing = [label for label in labels if label not in state]
    if missing:
        raise ValueError(f"initial_state must have a value for every variable; {missing[0]!r} has none.")
    low, high = sorted(vartype.value)
    wrong = [label for label in labels if state[label] not in (low, high)]
    if wrong:
        raise ValueError(f"initial_state must be made of {low} and {high}; {wrong[0]!r} is {state[wrong[0]]!r}.")
    return np.array([1.0 if state[label] == high else 0.0 for label in labels])


def _known(result: Any) -> dict[str, Any]:
    """What ``sampleset.info`` holds."""
    return {
        "lower": float(result.lower),
        "upper": float(result.upper),
        "status": result.message,
        "proof": str(result.certificate),
        "time": result.time,
    }


def _empty(samples: Any, info: dict[str, Any]) -> Any:
    """A sample set without a row."""
    none = (np.empty((0, len(samples[1])), dtype=np.int64), samples[1])
    return dimod.SampleSet.from_samples(
        none,
        energy=[],
        vartype="INTEGER",
        info=info,
        is_feasible=np.empty(0, bool),
        is_satisfied=np.empty((0, 0), bool),
    )
