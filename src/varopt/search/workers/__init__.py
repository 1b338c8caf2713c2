"""Who evaluates, and what an evaluation is where it runs."""

from varopt.search.workers._choose import workers_for
from varopt.search.workers._workers import Finished, Workers

__all__ = ["Finished", "Workers", "workers_for"]
