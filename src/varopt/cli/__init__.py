"""The command ``varopt``: reproduce the paper, fit and apply models, run the benchmarks."""

from varopt.cli._main import main

__all__ = ["main"]
