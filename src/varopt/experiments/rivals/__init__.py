"""The methods that the paper compares with, each from its original description: one small file each."""

from varopt.experiments.rivals.chapelle import chapelle, chapelle_newton, huber_objective
from varopt.experiments.rivals.dual_qp import dual_qp, dual_value
from varopt.experiments.rivals.iterated_ridge import iterated_ridge
from varopt.experiments.rivals.projection import projection
from varopt.experiments.rivals.shooting import shooting
from varopt.experiments.rivals.slep import slep
from varopt.experiments.rivals.smo import smo
from varopt.experiments.rivals.smoothing import integral_of_sigmoids, square_root
from varopt.experiments.rivals.subgradient import subgradient

__all__ = [
    "chapelle",
    "chapelle_newton",
    "dual_qp",
    "dual_value",
    "huber_objective",
    "integral_of_sigmoids",
    "iterated_ridge",
    "projection",
    "shooting",
    "slep",
    "smo",
    "square_root",
    "subgradient",
]
