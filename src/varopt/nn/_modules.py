"""The losses as modules of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from varopt._array import Array
from varopt.nn import _elementwise, _losses
from varopt.nn._library import needed, positive

torch: Any = needed("torch")

__all__ = ["Expect", "NDCGLoss", "QuantileLoss", "SpearmanLoss", "TopKError", "ZeroOneLoss"]


class _Loss(torch.nn.Module):
    """A loss with its settings. Sigma is a number, or a `torch.nn.Parameter` to be learned; set it to let it fall."""

    function: ClassVar[Callable[..., Array]]

    def __init__(self, sigma: Any, **settings: Any) -> None:
        super().__init__()
        positive("sigma", sigma)
        self.sigma = sigma
        self.settings = settings

    def extra_repr(self) -> str:
        return ", ".join(f"{k}={v}" for k, v in {"sigma": self.sigma, **self.settings}.items())

    def forward(self, prediction: Array, target: Array) -> Array:
        """The loss of predictions for targets."""
        return type(self).function(prediction, target, sigma=self.sigma, **self.settings)


class ZeroOneLoss(_Loss):
    """`zero_one_loss` as a module: the probability of an error."""

    function = staticmethod(_losses.zero_one_loss)

    def __init__(self, sigma: Any, reduction: str = "mean") -> None:
        super().__init__(sigma, reduction=reduction)


class TopKError(_Loss):
    """`topk_error` as a module: the probability that the right class is not among the first k."""

    function = staticmethod(_losses.topk_error)

    def __init__(self, k: int, sigma: Any, reduction: str = "mean") -> None:
        super().__init__(sigma, k=k, reduction=reduction)


class QuantileLoss(_Loss):
    """`quantile_loss` as a module: the check loss of a level."""

    function = staticmethod(_losses.quantile_loss)

    def __init__(self, level: float, sigma: Any, reduction: str = "mean") -> None:
        super().__init__(sigma, level=level, reduction=reduction)


class SpearmanLoss(_Loss):
    """One minus `spearman`, as a module."""

    function = staticmethod(_losses.spearman)

    def __init__(self, sigma: Any, reduction: str = "mean") -> None:
        super().__init__(sigma, reduction=reduction)

    def forward(self, prediction: Array, target: Array) -> Array:
        """One minus the correlation of predictions with targets."""
        return 1.0 - super().forward(prediction, target)


class NDCGLoss(_Loss):
    """One minus `ndcg`, as a module."""

    function = staticmethod(_losses.ndcg)

    def __init__(self, sigma: Any, k: int | None = None, reduction: str = "mean") -> None:
        super().__init__(sigma, k=k, reduction=reduction)

    def forward(self, prediction: Array, target: Array) -> Array:
        """One minus the gain of predictions for relevances."""
        return 1.0 - super().forward(prediction, target)


class Expect(torch.nn.Module):
    """`expect` as a layer: a term of its input, averaged under noise."""

    def __init__(self, term: Any, sigma: Any) -> None:
        super().__init__()
        positive("sigma", sigma)
        self.term, self.sigma = term, sigma

    def extra_repr(self) -> str:
        return f"{self.term}, sigma={self.sigma}"

    def forward(self, x: Array) -> Array:
        """The average of the term around x."""
        return _elementwise.expect(self.term, x, self.sigma)
