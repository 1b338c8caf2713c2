"""Optuna: variational search as a sampler, so that its storages, dashboard and distributed runs work with ours."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from varopt.search import Box, Choice, Dimension, Integer, Search, Space

__all__ = ["VariationalSampler"]

CONSTRAINTS = "constraints"  # Optuna's name for them
AGAIN = 5  # proposals for a trial, until one is not another's that is under way
NEXT_TO = 1e-3  # of a range: how far from a bound a trial is moved that may not be the only one there
_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


class VariationalSampler(BaseSampler):
    """An Optuna sampler that searches by sampled variational optimisation: floats, ints, categories, and mixtures.

    Parameters
    ----------
    method : str
        ``"auto"`` or a name of `varopt.search.METHODS`.
    seed : int, optional
        For the same trials with ``n_jobs=1``. Processes that share a study may have the same: what is drawn depends on
        the number of the trial too, which no two have in common.
    population : int, optional
        Trials of a generation; chosen by the method by default.
    independent_sampler : BaseSampler, optional
        For parameters that not all trials have, and for the first trial; Optuna's `TPESampler` by default.
    budget : int, optional
        About how many trials there will be: up to 500, the first of them are proposed by a model of the objective.
    constraints_func : callable, optional
        From a finished trial to a sequence of numbers, each at most zero where a constraint holds, as for Optuna's own
        samplers. Constraints that trials set themselves are used as well.

    Notes
    -----
    Studies may have several directions: `study.best_trials` is then the front that is sought. Of the storage the
    sampler uses nothing but Optuna's attribute for constraints. A process learns from all finished trials of the study,
    whoever ran them: those that were there before are told as points from elsewhere. Failed trials rank last; a pruned
    one counts with its last intermediate value. Parameters under a condition go to `independent_sampler`.

    Examples
    --------
    >>> import optuna
    >>> from varopt.integrations.optuna import VariationalSampler
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> study = optuna.create_study(sampler=VariationalSampler(seed=0))
    >>> study.optimize(lambda trial: (trial.suggest_float("x", -5, 5) - 2) ** 2, n_trials=25)
    >>> round(study.best_params["x"], 1)
    2.0
    """

    def __init__(
        self, *, method: str = "auto", seed: int | None = None, population: int | None = None,
        independent_sampler: BaseSampler | None = None, budget: int | None = 200,
        constraints_func: Callable[[FrozenTrial], Sequence[float]] | None = None,
    ) -> None:  # fmt: skip
        self._constraints_func = constraints_func
        self._options: dict[str, Any] = {"method": method, "seed": seed, "population": population, "budget": budget}
        self._independent = independent_sampler
        self._entropy: Any = np.random.SeedSequence(seed).entropy
        self._by_trial: dict[int, BaseSampler] = {}  # each with random numbers of its own
        self._intersection = IntersectionSearchSpace(include_pruned=True)
        self._lock = threading.RLock()
        self._space: dict[str, BaseDistribution] = {}
        self._about: Any = None  # space, directions and number of constraints of the search
        self._search: Search | None = None
        self._told: set[int] = set()

    def __getstate__(self) -> dict[str, Any]:
        """What a copy in another process needs: it learns the rest from the study."""
        return {**self.__dict__, "_lock": None, "_search": None, "_told": set(), "_by_trial": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    def reseed_rng(self) -> None:
        """Make the random numbers of this copy its own."""
        if self._independent is not None:
            self._independent.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The parameters that all trials so far have, with more than one value."""
        known = self._intersection.calculate(study)
        return {name: distribution for name, distribution in known.items() if not distribution.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Values for the parameters of `search_space`, after learning from what was finished meanwhile."""
        space = {name: distribution for name, distribution in search_space.items() if not distribution.single()}
        if not space:
            return {}
        with self._lock:
            maximize = [direction == StudyDirection.MAXIMIZE for direction in study.directions]
            about = (dict(space), maximize, self._count(study))
            if self._search is None or about != self._about:
                parts = {name: _dimension(distribution) for name, distribution in space.items()}
                self._search = Search(
                    Space(parts), asynchronous=True, maximize=maximize, objectives=len(maximize),
                    constraints=about[2], **self._options,
                )  # fmt: skip
                self._space, self._about, self._told = dict(space), about, set()
            self._learn(study)
            self._search.reseed(self._search.seed, trial.number)
            return self._proposal(study, trial, self._search)

    def _proposal(self, study: Study, trial: FrozenTrial, search: Search) -> dict[str, Any]:
        """What the search asks for next, unless another trial is there now.

        Other processes know what this one knows, and may have been led to the same corner. Of those that have begun
        a trial and not said where, the first goes there, and the others next to it.
        """
        for _ in range(AGAIN):
            (point,) = search.ask(1)
            values = {name: _external(distribution, point[name]) for name, distribution in self._space.items()}
            now = study.get_trials(deepcopy=False)  # proposals take a while, and other trials begin and end meanwhile
            others = [other for other in now if other.number != trial.number and other.number not in self._told]
            if not any(values.items() <= other.params.items() for other in others):
                break
        silent = [other.number for other in others if not self._space.keys() <= other.params.keys()]
        if min(silent, default=trial.number) < trial.number:
            rng = np.random.default_rng((search.seed, trial.number))
            values = {name: _off_bounds(self._space[name], value, rng) for name, value in values.items()}
        return values

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A value for a parameter that not all trials have."""
        sampler = self._independent
        if sampler is None:
            with self._lock:
                seed = int(np.random.SeedSequence((self._entropy, trial.number)).generate_state(1)[0])
                sampler = self._by_trial.setdefault(trial.number, TPESampler(seed=seed))
        return sampler.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Ask for the constraints of a trial, and keep them where Optuna looks for them."""
        if self._constraints_func is not None and state in (TrialState.COMPLETE, TrialState.PRUNED):
            found: tuple[float, ...] | None = None
            try:
                found = tuple(map(float, self._constraints_func(trial)))
                if any(math.isnan(number) for number in found):
                    found = None
                    raise ValueError("constraints_func must not give NaN.")
            finally:
                study._storage.set_trial_system_attr(trial._trial_id, CONSTRAINTS, found)
        self._by_trial.pop(trial.number, None)
        if self._independent is not None:
            self._independent.after_trial(study, trial, state, values)

    def _count(self, study: Study) -> int:
        """How many constraints trials have."""
        trials = study.get_trials(deepcopy=False, states=_FINISHED)
        return max((len(_constraints(trial)) for trial in trials), default=0)

    def _learn(self, study: Study) -> None:
        """Tell the search about finished trials that have all of its parameters, within their ranges."""
        if self._search is None:
            return
        for trial in study.get_trials(deepcopy=False, states=_FINISHED):
            if trial.number in self._told:
                continue
            self._told.add(trial.number)
            point = _internal(self._space, trial.params)
            if point is not None:
                self._search.tell([point], [_numbers(trial, self._about[2])])


def _constraints(trial: FrozenTrial) -> tuple[float, ...]:
    """What a trial's constraints came to: of a function of the sampler's, or as the trial set them one by one."""
    found = trial.system_attrs.get(CONSTRAINTS)
    if found is not None:
        return tuple(found)
    own = sorted((key, value) for key, value in trial.system_attrs.items() if key.startswith(f"{CONSTRAINTS}:"))
    return tuple(float(value) for _, value in own)


def _numbers(trial: FrozenTrial, constraints: int) -> Any:
    """Objectives and constraints, or ``None`` where some are missing."""
    values = [_value(trial)] if trial.values is None or len(trial.values) == 1 else trial.values
    found = _constraints(trial) if constraints else ()
    if any(value is None for value in values) or len(found) != constraints:
        return None
    return values[0] if len(values) == 1 and not constraints else [*values, *found]


def _value(trial: FrozenTrial) -> float | None:
    if trial.state == TrialState.COMPLETE:
        return trial.value
    if trial.state == TrialState.PRUNED and trial.last_step is not None:
        return trial.intermediate_values[trial.last_step]
    return None


def _grid(distribution: BaseDistribution) -> float | None:
    """The step of a grid that begins at ``low``; ``None`` for all numbers, and for all whole numbers."""
    if isinstance(distribution, FloatDistribution):
        return distribution.step
    return distribution.step if isinstance(distribution, IntDistribution) and distribution.step != 1 else None


def _dimension(distribution: BaseDistribution) -> Dimension:
    if isinstance(distribution, CategoricalDistribution):
        return Choice(range(len(distribution.choices)))
    if not isinstance(distribution, (FloatDistribution, IntDistribution)):
        raise ValueError(f"VariationalSampler knows floats, ints and categories; got {distribution!r}.")
    step = _grid(distribution)
    if step is not None:
        return Integer(0, round((distribution.high - distribution.low) / step))
    if isinstance(distribution, IntDistribution):
        return Integer(distribution.low, distribution.high, log=distribution.log)
    return Box(distribution.low, distribution.high, log=distribution.log)


def _external(distribution: Any, value: Any) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[value]
    step = _grid(distribution)
    return value if step is None else min(distribution.low + step * value, distribution.high)


def _off_bounds(distribution: Any, value: Any, rng: np.random.Generator) -> Any:
    """A real on a bound, moved inside by up to a thousandth of the range."""
    if not isinstance(distribution, FloatDistribution) or distribution.step is not None:
        return value
    low, high, near = distribution.low, distribution.high, 1e-12 * (distribution.high - distribution.low)
    if low + near < value < high - near:
        return value
    share = NEXT_TO * rng.random()
    other = high if value <= low + near else low
    return value * (other / value) ** share if distribution.log else value + share * (other - value)


def _internal(space: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any] | None:
    """The point of a trial, or ``None`` if it lacks a parameter or lies outside."""
    point: dict[str, Any] = {}
    for name, distribution in space.items():
        if name not in params:
            return None
        value = params[name]
        try:
            number = distribution.to_internal_repr(value)
        except ValueError:  # a category that is none of these
            return None
        if not distribution._contains(number):
            return None
        step = _grid(distribution)
        if isinstance(distribution, CategoricalDistribution):
            value = int(number)
        elif step is not None:
            value = round((value - distribution.low) / step)
        point[name] = value
    return point
