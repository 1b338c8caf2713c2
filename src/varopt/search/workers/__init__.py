"""Who evaluates, and what an evaluation is where it runs."""

from varopt.search.workers._choose import workers_for
from varopt.search.workers._evaluation import Job, Outcome
from varopt.search.workers._workers import Workers

__all__ = ["Job", "Outcome", "Workers", "workers_for"]
