"""Constraints: what they cost beside the problem without them, and beside those who make them their trade.

Each module holds the problems of one kind; importing them registers their benchmarks.
"""

from benchmarks.constraints import _choices, _real, _rehline  # noqa: F401
