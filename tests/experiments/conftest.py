"""One small reproduction, run once by the command itself, that the tests of report, results and browser share."""

import pytest

from varopt.experiments._tasks import Plan  # tasks are made by hand
from varopt.experiments.reproduce import EXPERIMENTS, reproduce

SMALL = {
    "table1": Plan({10: 2, 50: 1}),
    "fused": Plan({40: 2}),
    "figure4": Plan({60: 1, 80: 1, 120: 1}, budget=150),
}


@pytest.fixture(scope="session")
def small_plans():
    """Every experiment at the size of a test."""
    with pytest.MonkeyPatch.context() as patch:
        for name, plan in SMALL.items():
            patch.setattr(type(EXPERIMENTS[name]), "quick", plan)
        yield SMALL


@pytest.fixture(scope="session")
def reproduction(small_plans, tmp_path_factory):
    """The folder of a finished reproduction, and its exit status."""
    folder = tmp_path_factory.mktemp("reproduction")
    return folder, reproduce(folder, jobs=1)
