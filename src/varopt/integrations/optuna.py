"""Optuna: variational search as a sampler, so that its storages, dashboard and distributed runs work with ours."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from varopt.integrations._optuna_points import count, dimension, elsewhere, external, internal
from varopt.search import METHODS, Box, Search, Space

__all__ = ["VariationalSampler"]

CONSTRAINTS = "constraints"  # Optuna's name for them
ASKED = "varopt:asked"  # where a trial says which point it is given, before it suggests it parameter by parameter
AGAIN = 5  # proposals for a trial, until one is not another's that is under way
REPEATS = 30  # and until one is none whose value is known: the search is told that, and asked again
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
    Studies may have several directions: `study.best_trials` is then the front that is sought. A process learns from all
    finished trials of the study, whoever ran them: those that were there before are told as points from elsewhere.
    Failed trials rank last; a pruned one counts with its last intermediate value. Parameters under a condition go to
    `independent_sampler`, and with them all others where none of these is a real number.

    No point is proposed twice, by whichever process, as long as there is another: objectives are taken to give the same
    value again. Only first trials, whose parameters are drawn one by one, may agree where there are no reals. Of the
    storage the sampler uses Optuna's attribute for constraints, and one that says where a trial goes.

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
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}; got {method!r}.")
        Search(Box(0, 1), **{**self._options, "method": "auto"})  # an argument that no search takes is told here
        self._independent = independent_sampler
        self._entropy: Any = np.random.SeedSequence(seed).entropy
        self._by_trial: dict[int, BaseSampler] = {}  # each with random numbers of its own
        self._intersection = IntersectionSearchSpace(include_pruned=True)
        self._lock = threading.RLock()
        self._space: dict[str, BaseDistribution] = {}
        self._about: Any = None  # space, directions and number of constraints of the search
        self._search: Search | None = None
        self._told: set[int] = set()
        self._known: dict[Any, Any] = {}  # what was told, by its point
        self._asked: dict[Any, dict[str, Any]] = {}  # what the search asked for, by the point that Optuna has for it
        self._beside = False  # whether trials have parameters that the search does not

    def __getstate__(self) -> dict[str, Any]:
        """What a copy in another process needs: it learns the rest from the study."""
        fresh = {"_told": set(), "_known": {}, "_asked": {}, "_beside": False, "_by_trial": {}}
        return {**self.__dict__, "_lock": None, "_search": None, **fresh}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    def reseed_rng(self) -> None:
        """Make the random numbers of this copy its own."""
        if self._independent is not None:
            self._independent.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The parameters that all trials so far have, with more than one value.

        None, where there are no reals among them and some trials have others: a search goes on to another point, and
        the best of a few choices has to be tried again with other values of what depends on it.
        """
        known = self._intersection.calculate(study)
        space = {name: distribution for name, distribution in known.items() if not distribution.single()}
        return {} if math.isfinite(count(space)) and self._has_more(study, space) else space

    def _has_more(self, study: Study, space: Mapping[str, BaseDistribution]) -> bool:
        """Whether trials have parameters beside these."""
        trials = study.get_trials(deepcopy=False, states=_FINISHED)
        return any(_beside(trial, space) for trial in trials)

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
                parts = {name: dimension(distribution) for name, distribution in space.items()}
                self._search = Search(
                    Space(parts), asynchronous=True, maximize=maximize, objectives=len(maximize),
                    constraints=about[2], **self._options,
                )  # fmt: skip
                self._space, self._about = dict(space), about
                self._told, self._known, self._asked, self._beside = set(), {}, {}, False
            self._learn(study)
            self._search.reseed(self._search.seed, trial.number)
            return self._proposal(study, trial, self._search)

    def _proposal(self, study: Study, trial: FrozenTrial, search: Search) -> dict[str, Any]:
        """What the search asks for next, unless a trial has been there, or is there now.

        Other processes know what this one knows, and may be led to the same optimum or corner at the same time. So a
        trial says where it goes, and then looks who else does: of two at least one sees the other, and goes elsewhere.
        """
        rng = np.random.default_rng((search.seed, trial.number, 1))  # not the numbers that the search draws
        values, taken = self._next(search), self._taken(study, trial)
        for number in range(2 * AGAIN):
            key = self._key(values)
            if key in taken and number < AGAIN:
                values = self._next(search)
            elif key in taken or key in self._known:
                before, values = values, elsewhere(self._space, values, taken | self._known.keys(), rng)
                if values == before:  # there is no other
                    return values
            study._storage.set_trial_system_attr(trial._trial_id, ASKED, values)
            taken = self._taken(study, trial)
            if (key := self._key(values)) not in taken and key not in self._known:
                break
        return values

    def _taken(self, study: Study, trial: FrozenTrial) -> set[Any]:
        """Where the trials are, or say that they will be, of which the search knows nothing yet."""
        now = study.get_trials(deepcopy=False)
        others = [other for other in now if other.number != trial.number and other.number not in self._told]
        points = (self._key(other.params) or self._key(other.system_attrs.get(ASKED, {})) for other in others)
        return {point for point in points if point is not None}

    def _next(self, search: Search) -> dict[str, Any]:
        """The next proposal that no trial has a value of, if there is one soon.

        Of a point that has one the search is told this again, as an evaluation would tell it.
        """
        for _ in range(REPEATS):
            (point,) = search.ask(1)
            values = {name: external(distribution, point[name]) for name, distribution in self._space.items()}
            key = self._key(values)
            if key not in self._known or len(self._known) >= count(self._space):
                self._asked[key] = point
                break
            search.tell([point], [self._known[key]])
        return values

    def _key(self, params: Mapping[str, Any]) -> tuple[Any, ...] | None:
        point = internal(self._space, params)
        return None if point is None else tuple(point.values())

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
            point = internal(self._space, trial.params)
            if point is None:
                continue
            numbers = _numbers(trial, self._about[2])
            # As it was asked for, where reals stand for whole numbers: the search waits for that.
            self._search.tell([self._asked.pop(tuple(point.values()), point)], [numbers])
            if _beside(trial, self._space):
                self._known, self._beside = {}, True  # that two trials agree in the rest does not make them the same
            elif not self._beside:
                self._known[tuple(point.values())] = numbers


def _beside(trial: FrozenTrial, space: Mapping[str, BaseDistribution]) -> bool:
    """Whether a trial has parameters that are not of this space, with more than one value."""
    return any(name not in space and not one.single() for name, one in trial.distributions.items())


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
