"""Least squares, of margins too, along many strengths: what is made of the data once, brackets of all fits at once."""

from varopt.learn._least_squares._homotopy import homotopy
from varopt.learn._least_squares._margins import squared_hinges_along
from varopt.learn._least_squares._one import OneFit, fit_one
from varopt.learn._least_squares._squares import Squares, ordinary
from varopt.learn._least_squares._strengths import checked, gradient_at_zero, grid, strengths
from varopt.learn._least_squares._tasks import TaskFit, fit_tasks, task_path

__all__ = [
    "OneFit",
    "Squares",
    "TaskFit",
    "checked",
    "fit_one",
    "fit_tasks",
    "gradient_at_zero",
    "grid",
    "homotopy",
    "ordinary",
    "squared_hinges_along",
    "strengths",
    "task_path",
]
