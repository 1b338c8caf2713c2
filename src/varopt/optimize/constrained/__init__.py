r"""Constraints as rows of the canonical form: an exact penalty whose weights are found, and checked by the multipliers.

    min f(x),  g(x) <= 0,  h(x) = 0      is      F(x) = f(x) + sum_i w_i max(g_i(x), 0) + sum_j w_j |h_j(x)|

as soon as every weight exceeds its multiplier. For any weights F is f where the constraints hold, so that every lower
bound of F is one of the constrained optimum; and a subgradient of F balances f with multipliers of the constraints,
``w_i u_i`` with u_i in [0, 1]. All methods, reductions and proofs serve F as they serve any other sum of rows: a
constraint that is far from active is frozen to zero like any far row, and an active one rests exactly on its kink. What
is left to do here is to choose the weights, to raise those that were too small, and to tell what cannot be satisfied
from what is not yet [HanMangasarian79].

[HanMangasarian79] S. P. Han, O. L. Mangasarian. Exact penalty functions in nonlinear programming. Mathematical
Programming 17, 1979.
"""

from varopt.optimize.constrained._proofs import Contradiction, Ray
from varopt.optimize.constrained._solve import minimize_constrained

__all__ = ["Contradiction", "Ray", "minimize_constrained"]
