"""Speed and memory as ratios against a baseline that is timed in the same run.

Run ``make bench``, or ``python -m benchmarks --suite terms --quick``. A suite is a module of this package whose
functions carry the `benchmark` decorator; it is found by being there.
"""
