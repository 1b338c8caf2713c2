"""What a search is after besides one number: constraints, several objectives, and evaluations not worth finishing."""

from varopt.search.goals._constrained import ConstrainedUpdate, violations
from varopt.search.goals._front import Archive, Front, FrontUpdate
from varopt.search.goals._halving import Halving, Rungs, as_halving
from varopt.search.goals._hypervolume import hypervolume
from varopt.search.goals._rules import Ruled, Rules

__all__ = [
    "Archive",
    "ConstrainedUpdate",
    "Front",
    "FrontUpdate",
    "Halving",
    "Ruled",
    "Rules",
    "Rungs",
    "as_halving",
    "hypervolume",
    "violations",
]
