"""Linear maps between coordinate spaces: the matrices of an objective, held by reference."""

from varopt.model.maps._base import Map
from varopt.model.maps._columnwise import Columnwise
from varopt.model.maps._combinations import Composition, HStack, Scaled, Sum
from varopt.model.maps._dense import (
    Matrix,
    additions,
    kept_products,
    latest_products,
    no_latest_products,
    products_are_kept,
    products_at_hand,
)
from varopt.model.maps._operator import Operator
from varopt.model.maps._reading import as_map, as_real, as_vector
from varopt.model.maps._sparse import Difference, Selection, Sparse
from varopt.model.maps._stored import StoredMatrix, map_at
from varopt.model.maps._text import signed_sum, times

__all__ = [
    "Columnwise",
    "Composition",
    "Difference",
    "HStack",
    "Map",
    "Matrix",
    "Operator",
    "Scaled",
    "Selection",
    "Sparse",
    "StoredMatrix",
    "Sum",
    "additions",
    "as_map",
    "as_real",
    "as_vector",
    "kept_products",
    "latest_products",
    "map_at",
    "no_latest_products",
    "products_are_kept",
    "products_at_hand",
    "signed_sum",
    "times",
]
