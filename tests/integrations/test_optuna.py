"""Optuna's own cases for samplers, and what a user of Optuna would try."""

import math
import pickle
import statistics

import pytest

optuna = pytest.importorskip("optuna", reason="the optuna extra is not installed")
cases = pytest.importorskip("optuna.testing.pytest_samplers", reason="this Optuna does not publish its sampler tests")

from varopt.integrations.optuna import VariationalSampler  # noqa: E402

optuna.logging.set_verbosity(optuna.logging.WARNING)


class TestVariationalSampler(
    cases.BasicSamplerTestCase, cases.RelativeSamplerTestCase, cases.MultiObjectiveSamplerTestCase
):
    @pytest.fixture
    def sampler(self):
        return VariationalSampler


def mixed(trial):
    x = trial.suggest_float("x", -5, 5)
    rate = trial.suggest_float("rate", 1e-5, 1.0, log=True)
    layers = trial.suggest_int("layers", 1, 9, step=2)
    kind = trial.suggest_categorical("kind", ["a", "b", None])
    return (x - 1) ** 2 + abs(layers - 5) + (kind != "b") + (rate - 0.1) ** 2


def test_mixed_parameters_are_optimized_and_seeds_reproduce():
    values = []
    for _ in range(2):
        study = optuna.create_study(sampler=VariationalSampler(seed=3, budget=None))
        study.optimize(mixed, n_trials=250)
        values.append([trial.value for trial in study.trials])
    assert values[0] == values[1]
    assert study.best_value < 0.05
    assert study.best_params["kind"] == "b"
    assert study.best_params["layers"] == 5


def test_maximization():
    study = optuna.create_study(direction="maximize", sampler=VariationalSampler(seed=0))  # a model, and so few trials
    study.optimize(lambda trial: -mixed(trial), n_trials=50)
    assert study.best_value > -0.5


def test_parallel_jobs_and_failing_trials():
    def sometimes(trial):
        value = mixed(trial)
        if trial.number % 5 == 0:
            raise ValueError("injected")
        if trial.number % 7 == 0:
            trial.report(value, 0)
            raise optuna.TrialPruned
        return value

    study = optuna.create_study(sampler=VariationalSampler(seed=0, budget=None))
    study.optimize(sometimes, n_trials=200, n_jobs=3, catch=ValueError)
    assert len(study.trials) == 200
    assert study.best_value < 0.7


def test_another_sampler_learns_from_what_is_stored():
    ratios = []
    for pair in range(5):
        storage = optuna.storages.InMemoryStorage()
        for seed in (2 * pair, 2 * pair + 1):  # the second knows nothing but the storage
            study = optuna.create_study(
                study_name="s", storage=storage, sampler=VariationalSampler(seed=seed, budget=None), load_if_exists=True
            )
            study.optimize(mixed, n_trials=100)
        values = [trial.value for trial in study.trials]
        ratios.append(statistics.median(values[120:]) / statistics.median(values[:20]))
    assert statistics.median(ratios) < 1 / 3


def processes(count, **options):
    """Studies as processes have them that each have their own sampler and share the storage alone."""
    storage = optuna.storages.InMemoryStorage()
    samplers = [VariationalSampler(seed=3, **options) for _ in range(count)]
    return [optuna.create_study(study_name="s", storage=storage, sampler=s, load_if_exists=True) for s in samplers]


def asked(studies):
    """A trial of each, which has been given its point and has not suggested it."""
    trials = [study.ask() for study in studies]
    for trial in trials:
        getattr(trial, "relative_params", None)  # Optuna 5 asks the sampler when these are wanted, Optuna 4 at once
    return trials


def points_of(study):
    return [tuple(trial.params.values()) for trial in study.trials]


def bowl(trial):
    """Its optimum is found to the last digit, again and again."""
    return (trial.suggest_float("x", -5, 5) - 1) ** 2 + (trial.suggest_float("y", 1e-3, 10, log=True) - 2) ** 2


def whole(trial):
    kind = trial.suggest_categorical("kind", ["a", "b", None])
    return trial.suggest_int("layers", 1, 9, step=2) + trial.suggest_int("width", 4, 9) + (kind != "b")


@pytest.mark.parametrize(("objective", "budget"), [(mixed, 30), (bowl, None), (bowl, 200)])
def test_processes_with_one_seed_propose_different_points(objective, budget):
    """Nobody has seen the others' trials, or heard of where they go, when they ask."""
    studies = processes(3, budget=budget)
    for _ in range(40):  # the first trial of each is independent, and makes the space known
        for study, trial in zip(studies, asked(studies), strict=True):
            study.tell(trial, objective(trial))
    points = points_of(studies[0])
    assert len(points) == 120
    assert len(set(points)) == 120


def test_processes_that_ask_at_the_same_time_propose_different_points(monkeypatch):
    """Each has looked where the other goes before either has said so, and is led to the same optimum."""
    studies = processes(2, budget=None)
    studies[0].optimize(bowl, n_trials=5)
    taken = VariationalSampler._taken
    blind = {5, 6}

    def looks(self, study, trial):
        if trial.number in blind:
            blind.remove(trial.number)
            return set()
        return taken(self, study, trial)

    monkeypatch.setattr(VariationalSampler, "_taken", looks)
    monkeypatch.setattr(VariationalSampler, "_next", lambda self, search: {"x": 1.0, "y": 2.0})
    points = [
        (trial.suggest_float("x", -5, 5), trial.suggest_float("y", 1e-3, 10, log=True)) for trial in asked(studies)
    ]
    assert not blind
    assert points[0] == (1.0, 2.0) != points[1]


def test_all_points_are_proposed_once_before_any_is_again():
    """Of 90 whole points each, also the last few; then trials go on."""
    studies = processes(3, budget=None)
    studies[0].optimize(whole, n_trials=1)
    for _ in range(30):
        for study, trial in zip(studies, asked(studies), strict=True):
            study.tell(trial, whole(trial))
    points = points_of(studies[0])
    assert len(set(points[:90])) == 90
    assert len(points) == 91


def test_integers_without_number_are_told_apart():
    study = optuna.create_study(sampler=VariationalSampler(seed=0, budget=None))
    study.optimize(lambda trial: trial.suggest_int("k", 0, 2**50) > 0, n_trials=20)
    assert len(set(points_of(study))) == 20


@pytest.mark.parametrize("budget", [None, 200])
@pytest.mark.parametrize(
    "options",
    [{}, {"low": 0, "high": 2**53, "step": 2}, {"log": True}, {"low": -(2**62), "high": 2**62}],
    ids=["plain", "step", "log", "int64"],
)
def test_integers_beyond_our_own_range_are_searched(options, budget):
    """Whole numbers of 2^52 and more are reals that are rounded, on the grid and within the bounds."""
    bounds = {"low": 1, "high": 3 * 2**53 + 1, **options}
    third = (bounds["high"] - bounds["low"]) // 3

    def objective(trial):
        k = trial.suggest_int("k", **bounds)
        return abs(math.log(k / third) / math.log(third) if bounds.get("log") else k / third - 1.0)

    study = optuna.create_study(sampler=VariationalSampler(seed=0, budget=budget))
    study.optimize(objective, n_trials=40)
    values = [trial.params["k"] for trial in study.trials]
    assert all(isinstance(k, int) and bounds["low"] <= k <= bounds["high"] for k in values)
    assert all((k - bounds["low"]) % bounds.get("step", 1) == 0 for k in values)
    assert len(set(values)) == 40
    assert study.best_value < 0.1


def test_processes_are_not_led_to_the_same_corner():
    """A plane is lowest there, and everybody knows."""
    studies = processes(3)
    for _ in range(10):
        under_way = []
        for study in studies:
            trial = study.ask()
            under_way.append((study, trial, trial.suggest_float("x", -5, 5) + trial.suggest_float("y", -5, 5)))
        for study, trial, value in under_way:
            study.tell(trial, value)
    points = points_of(studies[0])
    assert (-5.0, -5.0) in points
    assert len(set(points)) == 30


def test_what_only_some_trials_have_is_searched_too():
    """Parameters under a condition, beside chance for these."""

    def tuned(trial):
        if trial.suggest_categorical("model", ["svm", "forest"]) == "forest":
            return 0.3 + abs(trial.suggest_int("trees", 1, 100) - 50) / 50
        cost = abs(math.log10(trial.suggest_float("C", 1e-3, 1e3, log=True) / 20))
        return 0.1 * cost + 0.1 * abs(math.log10(trial.suggest_float("gamma", 1e-4, 10, log=True) / 0.01))

    def found(**options):
        best = []
        for seed in range(6):
            study = optuna.create_study(sampler=VariationalSampler(seed=seed, **options))
            study.optimize(tuned, n_trials=40)
            best.append(study.best_value)
        return statistics.median(best)

    assert found() < 0.7 * found(independent_sampler=optuna.samplers.RandomSampler(seed=0))


@pytest.mark.parametrize("budget", [None, 200])
def test_the_best_of_two_choices_is_tried_again_with_what_depends_on_it(budget):
    def tree(trial):
        kind = trial.suggest_categorical("kind", ["a", "b"])
        return trial.suggest_float(f"{kind} x", 0, 1) + (kind == "a")

    for seed in range(3):
        study = optuna.create_study(sampler=VariationalSampler(seed=seed, budget=budget))
        study.optimize(tree, n_trials=40)
        assert [trial.params["kind"] for trial in study.trials[10:]].count("b") > 20


def test_study_in_a_database_goes_on(tmp_path):
    for trials in (5, 10):
        study = optuna.create_study(
            study_name="s",
            storage=f"sqlite:///{tmp_path / 'study.db'}",
            sampler=VariationalSampler(),
            load_if_exists=True,
        )
        study.optimize(mixed, n_trials=5, n_jobs=2)
        assert len(study.trials) == trials


def test_sampler_can_be_sent_to_another_process():
    study = optuna.create_study(sampler=VariationalSampler(seed=0))
    study.optimize(mixed, n_trials=20)
    study.sampler = pickle.loads(pickle.dumps(study.sampler))
    study.optimize(mixed, n_trials=20)
    assert len(study.trials) == 40


def test_constraints_are_met_and_kept_where_optuna_looks():
    def objective(trial):
        x, y = (trial.suggest_float(name, -5, 5) for name in "xy")
        trial.set_user_attr("constraint", [1.0 - x - y])
        return x * x + y * y

    sampler = VariationalSampler(seed=0, budget=None, constraints_func=lambda trial: trial.user_attrs["constraint"])
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=250)
    assert study.best_trial.system_attrs["constraints"][0] <= 0.0  # the best that Optuna names satisfies them
    assert 0.5 <= study.best_value < 0.52


def test_constraints_that_cannot_be_told_fail_the_trial_as_with_other_samplers():
    study = optuna.create_study(sampler=VariationalSampler(seed=0, constraints_func=lambda trial: [float("nan")]))
    with pytest.raises(ValueError, match="constraints_func must not give NaN"):
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)


@pytest.mark.parametrize("budget", [None, 40])
def test_fronts_in_both_directions(budget):
    def objective(trial):
        x, y = trial.suggest_float("x", -5, 5), trial.suggest_float("y", -5, 5)
        return (x - 1) ** 2 + y**2, -((x + 1) ** 2) - y**2

    sampler = VariationalSampler(seed=0, budget=budget)
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=sampler)
    study.optimize(objective, n_trials=300 if budget is None else 40)
    front = [trial for trial in study.best_trials if trial.values[0] <= 4 and trial.values[1] >= -4]
    assert len(front) >= 8
    assert max(abs(trial.params["y"]) for trial in front) < 1.0
    assert min(trial.params["x"] for trial in front) < -0.3 < 0.3 < max(trial.params["x"] for trial in front)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"method": "nope"}, "method must be one of 'auto'"), ({"seed": "a"}, "seed must be a whole number"),
     ({"budget": 0.5}, "budget must be"), ({"population": 1}, "population must be")],
)  # fmt: skip
def test_wrong_arguments_are_told_before_any_trial(options, message):
    """Later, every trial would fail by them, one after the other."""
    with pytest.raises(ValueError, match=message):
        VariationalSampler(**options)
