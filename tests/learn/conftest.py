"""What scikit-learn's own test files expect to find."""

import pytest


def pytest_configure(config):
    config.addinivalue_line("markers", "thread_unsafe: a test that redirects standard output (scikit-learn's)")


@pytest.fixture
def global_random_seed():
    return 42
