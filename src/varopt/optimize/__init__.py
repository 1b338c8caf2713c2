"""`minimize` and `maximize`: an objective in, a point and a bracket of the optimum out."""

from varopt.optimize._minimize import maximize, minimize
from varopt.optimize._path import ResultPath, path
from varopt.optimize._result import Result, Status

__all__ = ["Result", "ResultPath", "Status", "maximize", "minimize", "path"]
