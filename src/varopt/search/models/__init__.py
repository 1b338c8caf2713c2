"""Models of an expensive function: a Gaussian process, and what hands over to sampled bounds when it is used up."""

from varopt.search.models._expected_improvement import ExpectedImprovement
from varopt.search.models._given import Given
from varopt.search.models._handover import Handover

__all__ = ["ExpectedImprovement", "Given", "Handover"]
