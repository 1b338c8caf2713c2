"""Fixtures and Hypothesis profiles for every test."""

import importlib
import importlib.metadata
import inspect
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

# Before 1.8 scikit-learn hands arrays of other libraries on to SciPy, which has to be told before it is loaded.
if tuple(map(int, importlib.metadata.version("scikit-learn").split(".")[:2])) < (1, 8):
    os.environ.setdefault("SCIPY_ARRAY_API", "1")

# SciPy 1.15 renamed an argument of a generator that many tests use.
_sparse = importlib.import_module("scipy.sparse")
if "rng" not in inspect.signature(_sparse.random_array).parameters:
    _random_array = _sparse.random_array

    def random_array(*args, rng=None, **options):
        """With the argument's new name, and seeds of generators: those of old make a list of all entries."""
        return _random_array(*args, random_state=np.random.default_rng(rng), **options)

    _sparse.random_array = random_array

# `ci` gives the same verdict on every machine; `explore` looks for what `ci` misses.
settings.register_profile("ci", derandomize=True, deadline=None, database=None, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20121219)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = Path(os.environ.get("VAROPT_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("needs public data sets that cannot be handed on; VAROPT_DATA names the folder they are in")
    return folder
