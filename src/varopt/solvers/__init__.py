"""Solvers: the composite form, Newton's method on the bound, and the crossover to the exact optimum."""

from varopt.solvers._composite import Composite, NotComposite, composite
from varopt.solvers._convex import State, solve
from varopt.solvers._recession import falls_for_ever

__all__ = ["Composite", "NotComposite", "State", "composite", "falls_for_ever", "solve"]
