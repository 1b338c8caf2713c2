r"""Clusters of rows: their numbers from labels, and what few of them do to the spread of refits.

Refits that draw clusters spread as the sandwich without corrections does, which is too narrow: the fit is drawn towards
each cluster by its leverage. With scores t_g = R^{-T} X_g' psi_g, R'R = X'X and P_g = R^{-T} X_g'X_g R^{-1},

    V_0 = sum_g c_g c_g',  c_g = R^{-1} t_g,                                                                        (1)
    V_J = (G - 1)/G sum_g d_g d_g',  d_g = R^{-1} (I - P_g)^{-1} t_g,                                               (2)

(2) is the jackknife that leaves out a cluster at a time, of the linear approximation of the fit; for least squares it
is exact [BellMcCaffrey02], [MacKinnonNielsenWebb23]. Densities are taken to be the same in all rows: they cancel in the
ratio. For the mean of equal clusters it is G / (G - 1), the usual correction [CameronGelbachMiller08].
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.learn._inference._design import Design, gram
from varopt.solvers.quantile import Centre

__all__ = ["clusters_of", "inflation", "scores"]

Matrix = NDArray[np.float64]

_ALONE = 1e-8  # of one, what a cluster's leverage leaves where no other knows of that direction


def clusters_of(made: Design, clusters: Any) -> NDArray[np.intp]:
    """The number of each row's cluster, from their labels."""
    labels = np.asarray(clusters)
    if labels.shape != (made.given,):
        raise ValueError(
            f"clusters must have a label for each row of X, which are {made.given}; got an array of shape"
            f" {labels.shape}."
        )
    labels = labels[made.rows]
    missing = sum(map(_missing, labels.tolist()))
    if missing:
        raise ValueError(f"clusters has no label for {missing} of the rows: leave these out, or give them one.")
    places: dict[Any, int] = {}  # in the order of the rows: labels need none, and may be words beside numbers
    numbers = np.array([places.setdefault(label, len(places)) for label in labels.tolist()], dtype=np.intp)
    if len(places) < 2:
        raise ValueError("All rows are of one cluster: there is nothing to draw.")
    return numbers


def _missing(label: Any) -> bool:
    same = label == label  # which NaN is not, and pandas does not know of its own
    return label is None or not (isinstance(same, (bool, np.bool_)) and same)


def scores(made: Design, model: Any) -> tuple[Any, Matrix]:
    """Rows, of features in units of their own, and the derivatives of their losses, a column for each level."""
    root = np.sqrt(made.weight) if made.huber else made.weight
    unit = abs(made.X).max(axis=0)  # ratios of errors are the same in any units
    unit = unit.toarray().ravel() if sp.issparse(unit) else unit
    X = made.X.multiply(root[:, None]).multiply(1.0 / unit) if sp.issparse(made.X) else made.X * root[:, None] / unit
    X = sp.csr_array(X) if sp.issparse(X) else X
    residuals = [made.y - made.X @ b for b in made.coef]
    if made.huber:
        psi = np.clip(residuals[0] / model.scale_, -model.epsilon, model.epsilon)
        return X, (root * psi)[:, None]
    none = np.eye(X.shape[1])  # a score needs no Hessian
    fits = zip(residuals, made.levels, strict=True)
    return X, np.column_stack([Centre(X, root * r, float(q), none).score for r, q in fits])


def inflation(X: Any, psi: Matrix, groups: NDArray[np.intp]) -> Matrix:
    """By how much standard errors by (2) are larger than by (1), a row for each level."""
    inverse = scipy.linalg.solve_triangular(scipy.linalg.cholesky(gram(X, np.ones(X.shape[0]))), np.eye(X.shape[1]))
    order = np.argsort(groups, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
    plain = np.zeros((X.shape[1], psi.shape[1]))
    jackknife = np.zeros_like(plain)
    for rows in parts:
        part = X[rows]
        score = inverse.T @ (part.T @ psi[rows])
        leverage, directions = _leverages(part, inverse)
        room = 1.0 - leverage
        room[room < _ALONE] = 1.0  # where a coefficient is this cluster's alone, no jackknife tells its error
        along = directions.T @ score
        plain += (inverse @ score) ** 2
        jackknife += (inverse @ (score + directions @ (along / room[:, None] - along))) ** 2
    with np.errstate(invalid="ignore"):
        ratio = (1.0 - 1.0 / len(parts)) * jackknife / plain
    return np.sqrt(np.where(plain > 0.0, ratio, 1.0)).T


def _leverages(part: Any, inverse: Matrix) -> tuple[Matrix, Matrix]:
    """The eigenvalues of P_g, and their directions as columns; those of zero may be missing."""
    if part.shape[0] > part.shape[1]:
        return np.linalg.eigh(inverse.T @ gram(part, np.ones(part.shape[0])) @ inverse)
    part = part.toarray() if sp.issparse(part) else part
    _, values, directions = np.linalg.svd(part @ inverse, full_matrices=False)
    return values**2, directions.T
