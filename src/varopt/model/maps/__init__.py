"""Linear maps between coordinate spaces: the matrices of an objective, held by reference."""

from varopt.model.maps._base import Map
from varopt.model.maps._columnwise import Columnwise
from varopt.model.maps._combinations import Composition, HStack, Scaled, Sum
from varopt.model.maps._dense import Matrix
from varopt.model.maps._kept_products import kept_products, products_are_kept
from varopt.model.maps._operator import Operator
from varopt.model.maps._reading import as_map, as_real, as_vector
from varopt.model.maps._sparse import Difference, Selection, Sparse
from varopt.model.maps._stored import StoredMatrix, map_at, place_in, stored_in
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
    "as_map",
    "as_real",
    "as_vector",
    "kept_products",
    "map_at",
    "place_in",
    "products_are_kept",
    "signed_sum",
    "stored_in",
    "times",
]
