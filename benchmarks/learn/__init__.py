"""Estimators beside their peers: what a fit, a path, a process, an interval and its coverage cost, validation and all.

Each module holds the benchmarks of one kind; importing them registers these.
"""

from benchmarks.learn import _checks, _coverage, _fits, _inference, _intervals, _paths, _peers  # noqa: F401
