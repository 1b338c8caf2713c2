"""Black boxes: spaces, ask and tell, journals and workers around the sampled natural gradients."""

from varopt.search._dimensions import Boolean, Box, Choice, Dimension, Integer, Permutation
from varopt.search._incumbent import Best
from varopt.search._methods import METHODS
from varopt.search._minimize import SearchResult, minimize_black_box
from varopt.search._search import Search
from varopt.search._space import Space, as_space
from varopt.search.goals import Front, Halving, hypervolume

__all__ = [
    "METHODS",
    "Best",
    "Boolean",
    "Box",
    "Choice",
    "Dimension",
    "Front",
    "Halving",
    "Integer",
    "Permutation",
    "Search",
    "SearchResult",
    "Space",
    "as_space",
    "hypervolume",
    "minimize_black_box",
]
