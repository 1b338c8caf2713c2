r"""Gradients through what has none: exact averages of hard steps as layers and losses, for PyTorch and JAX.

The average of a function under Gaussian noise is differentiable at every order, bounds the optimum from its side, and
becomes the function as sigma falls [SB12]. For piecewise polynomials, argmax, top k, ranks and sorting it is known
exactly; `smooth` samples it for anything else. Arrays decide the library; NumPy arrays give values only.

>>> import numpy as np
>>> from varopt import nn
>>> nn.sign(np.array([-2.0, 0.0, 0.1]), 0.5).round(3)
array([-1.   ,  0.   ,  0.159])
"""

from typing import Any

from varopt.nn._elementwise import clip, expect, gap, hinge, pinball, relu, round, sign, step, zero_one
from varopt.nn._losses import ndcg, quantile_loss, spearman, topk_error, zero_one_loss
from varopt.nn._order import argmax, average_of_rank, rank, sort, topk
from varopt.nn._smooth import Smoothed, smooth

MODULES = ("Expect", "NDCGLoss", "QuantileLoss", "SpearmanLoss", "TopKError", "ZeroOneLoss")


def __getattr__(name: str) -> Any:
    if name in MODULES:  # subclasses of torch.nn.Module: PyTorch is imported when one is asked for
        from varopt.nn import _modules

        return getattr(_modules, name)
    raise AttributeError(f"module 'varopt.nn' has no attribute {name!r}")


__all__ = [
    "MODULES",
    "Smoothed",
    "argmax",
    "average_of_rank",
    "clip",
    "expect",
    "gap",
    "hinge",
    "ndcg",
    "pinball",
    "quantile_loss",
    "rank",
    "relu",
    "round",
    "sign",
    "smooth",
    "sort",
    "spearman",
    "step",
    "topk",
    "topk_error",
    "zero_one",
    "zero_one_loss",
]
