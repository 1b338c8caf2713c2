"""Black boxes: spaces, ask and tell, journals and workers around the sampled natural gradients."""

from varopt.search._dimensions import Boolean, Box, Choice, Dimension, Integer, Permutation
from varopt.search._incumbent import Best
from varopt.search._methods import METHODS
from varopt.search._minimize import SearchResult, minimize_black_box
from varopt.search._search import Search
from varopt.search._space import Space

__all__ = [
    "METHODS",
    "Best",
    "Boolean",
    "Box",
    "Choice",
    "Dimension",
    "Integer",
    "Permutation",
    "Search",
    "SearchResult",
    "Space",
    "minimize_black_box",
]
