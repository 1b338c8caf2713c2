"""How sure the coefficients of a robust regression are: standard errors, intervals, tests."""

from varopt.learn._inference._infer import inference
from varopt.learn._inference._result import Inference, JointTest

__all__ = ["Inference", "JointTest", "inference"]
