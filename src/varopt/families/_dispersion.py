"""The three shapes of a dispersion S in x = mean + S z: a number, a vector (elementwise), a Cholesky factor.

Each knows the same linear algebra, so that a location-scale family is written once for all of them. Below, z has
shape (..., size) and q is the density of one coordinate of z, with score psi = -q'/q. A family tells the information
of q as a triple (location, scale, variance) = (<psi^2>, <(psi z - 1)^2>, <z^2>).
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from varopt._domains import Domain, as_finite
from varopt.families._family import FloatArray

__all__ = ["Cholesky", "Diagonal", "Dispersion", "Information", "Scalar", "as_dispersion"]

Information: TypeAlias = tuple[float, float, float]


class Dispersion(Protocol):
    """What a location-scale family asks of S."""

    kind: ClassVar[str]
    scale: FloatArray

    def apply(self, z: FloatArray) -> FloatArray:
        """S z."""

    def solve(self, d: FloatArray) -> FloatArray:
        """S^-1 d."""

    def solve_transposed(self, g: FloatArray) -> FloatArray:
        """S^-T g."""

    def log_determinant(self) -> float:
        """Logarithm of det S."""

    def log_determinant_gradient(self) -> FloatArray:
        """Gradient of log det S in the parameter."""

    def squared_rows(self) -> FloatArray:
        """Diagonal of S S^T."""

    def covariance(self) -> FloatArray:
        """S S^T."""

    def pullback(self, z: FloatArray, g: FloatArray) -> FloatArray:
        """Gradient of g . (S z) in the parameter."""

    def precision(self) -> FloatArray:
        """(S S^T)^-1, which is the Fisher matrix of the mean up to the location information."""

    def fisher(self, information: Information) -> FloatArray:
        """Fisher matrix of the parameter."""

    def natural_mean(self, g: FloatArray) -> FloatArray:
        """S S^T g."""

    def natural(self, g: FloatArray, information: Information) -> FloatArray:
        """`fisher` solved for the gradient g of the parameter."""


class Diagonal:
    """S = diag(s), s a vector."""

    kind: ClassVar[str] = "diagonal"

    def __init__(self, scale: FloatArray, size: int) -> None:
        self.scale = scale
        self.size = size

    def apply(self, z: FloatArray) -> FloatArray:
        return self.scale * z

    def solve(self, d: FloatArray) -> FloatArray:
        return d / self.scale

    def solve_transposed(self, g: FloatArray) -> FloatArray:
        return g / self.scale

    def log_determinant(self) -> float:
        return float(np.log(self.scale).sum())

    def log_determinant_gradient(self) -> FloatArray:
        return 1.0 / self.scale

    def squared_rows(self) -> FloatArray:
        return np.broadcast_to(self.scale**2, (self.size,)).copy()

    def covariance(self) -> FloatArray:
        return np.diag(self.squared_rows())

    def pullback(self, z: FloatArray, g: FloatArray) -> FloatArray:
        return g * z

    def precision(self) -> FloatArray:
        # (1/s)^2 and not 1/s^2: overflows to inf where s^2 would underflow and divide by zero.
        return np.diag(np.broadcast_to((1.0 / self.scale) ** 2, (self.size,)))

    def fisher(self, information: Information) -> FloatArray:
        return np.diag(information[1] * (1.0 / self.scale) ** 2)

    def natural_mean(self, g: FloatArray) -> FloatArray:
        return self.scale * (self.scale * g)  # s^2 alone could overflow

    def natural(self, g: FloatArray, information: Information) -> FloatArray:
        return self.scale * (self.scale * g) / information[1]


class Scalar(Diagonal):
    """S = s I, s a number: the diagonal case with all entries tied."""

    kind: ClassVar[str] = "scalar"

    def log_determinant(self) -> float:
        return self.size * float(np.log(self.scale))

    def log_determinant_gradient(self) -> FloatArray:
        return self.size / self.scale

    def pullback(self, z: FloatArray, g: FloatArray) -> FloatArray:
        return np.asarray((g * z).sum(axis=-1))

    def fisher(self, information: Information) -> FloatArray:
        return np.reshape(self.size * information[1] * (1.0 / self.scale) ** 2, (1, 1))

    def natural(self, g: FloatArray, information: Information) -> FloatArray:
        return np.asarray(self.scale * (self.scale * g) / (self.size * information[1]))


class Cholesky:
    """S = C, lower triangular with a positive diagonal; its free entries are the lower triangle, row by row."""

    kind: ClassVar[str] = "cholesky"

    def __init__(self, scale: FloatArray) -> None:
        self.scale = scale

    def apply(self, z: FloatArray) -> FloatArray:
        return z @ self.scale.T

    def solve(self, d: FloatArray) -> FloatArray:
        z = _solve_triangular(self.scale, d, transposed=False)
        # Beyond the float64 range inf - inf may turn up; such a point is infinitely far all the same.
        return np.where(np.isnan(z), np.inf, z)

    def solve_transposed(self, g: FloatArray) -> FloatArray:
        return _solve_triangular(self.scale, g, transposed=True)

    def log_determinant(self) -> float:
        return float(np.log(np.diagonal(self.scale)).sum())

    def log_determinant_gradient(self) -> FloatArray:
        return np.diag(1.0 / np.diagonal(self.scale))

    def squared_rows(self) -> FloatArray:
        return np.asarray((self.scale**2).sum(axis=-1))

    def covariance(self) -> FloatArray:
        return self.scale @ self.scale.T

    def pullback(self, z: FloatArray, g: FloatArray) -> FloatArray:
        return np.tril(g[..., :, None] * z[..., None, :])

    def precision(self) -> FloatArray:
        inverse = self.solve(np.eye(len(self.scale))).T
        return inverse.T @ inverse

    def fisher(self, information: Information) -> FloatArray:
        # With C <- C (I + M), M lower triangular, the derivative of log p in M_ij is psi_i z_j - delta_ij. These are
        # uncorrelated, with the variances D_ij of `_relative_information`. Now M = C^-1 dC, whose column j depends on
        # column j of dC alone: F[(a, j), (c, j)] = sum_i D_ij C^-1_ia C^-1_ic.
        inverse = self.solve(np.eye(len(self.scale))).T
        rows, columns = np.tril_indices(len(self.scale))
        jacobian: FloatArray = inverse[np.ix_(rows, rows)] * (columns[:, None] == columns)
        relative = self._relative_information(information)[rows, columns]
        return jacobian.T @ (relative[:, None] * jacobian)

    def natural_mean(self, g: FloatArray) -> FloatArray:
        return (g @ self.scale) @ self.scale.T

    def natural(self, g: FloatArray, information: Information) -> FloatArray:
        # The gradient in M is tril(C^T G); the Fisher matrix of M is the diagonal D; then dC = C M.
        relative = np.tril(self.scale.T @ np.tril(g)) / self._relative_information(information)
        return self.scale @ relative

    def _relative_information(self, information: Information) -> FloatArray:
        # <(psi_i z_j)^2> = location * variance off the diagonal (1 for a Gaussian), <(psi z - 1)^2> on it (2).
        location, scale, variance = information
        return np.where(np.eye(len(self.scale), dtype=bool), scale, location * variance)


def _solve_triangular(factor: FloatArray, right: FloatArray, *, transposed: bool) -> FloatArray:
    columns = right.reshape(-1, len(factor)).T
    solution = solve_triangular(factor, columns, lower=True, trans=int(transposed), check_finite=False)
    return np.asarray(solution.T.reshape(right.shape), dtype=np.float64)


def as_dispersion(name: str, value: ArrayLike, domain: Domain, size: int, *, cholesky: bool) -> Dispersion:
    """A read-only copy of `value` as the dispersion its shape says, or a `ValueError` that names it."""
    array = np.array(as_finite(name, value), dtype=np.float64)
    if array.shape not in {(), (size,)} and not (cholesky and array.shape == (size, size)):
        shapes = f"a scalar, a vector of {size}"
        shapes = f"{shapes} or a {size} x {size} Cholesky factor" if cholesky else shapes.replace(",", " or")
        raise ValueError(f"{name} must be {shapes} to match mean; got shape {array.shape}.")
    array.flags.writeable = False
    if array.ndim < 2:
        domain.validate(name, array)
        return Scalar(array, size) if array.ndim == 0 else Diagonal(array, size)
    _check_triangular(name, array)
    domain.validate(f"{name} (its diagonal)", np.diagonal(array))
    return Cholesky(array)


def _check_triangular(name: str, array: np.ndarray[Any, Any]) -> None:
    above = np.argwhere(np.triu(array, 1))
    if len(above):
        i, j = (int(k) for k in above[0])
        raise ValueError(
            f"{name} is not lower triangular: its entry at ({i}, {j}) is {array[i, j]:g}. A matrix is read as a "
            f"Cholesky factor C of the covariance C C^T; for a covariance pass numpy.linalg.cholesky(covariance)."
        )
