"""Fixtures and Hypothesis profiles for every test."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

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
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs the data sets in ../shared/data, which cannot be redistributed with the project")
    return folder
