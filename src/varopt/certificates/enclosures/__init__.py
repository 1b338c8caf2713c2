"""What maps, terms and conjugates are in exact arithmetic: numbers, each with a bound of its rounding."""

from varopt.certificates.enclosures._dual_point import DualQuadratic, DualRows, conjugate_above, dual_interval
from varopt.certificates.enclosures._enclosure import (
    AT_ONCE,
    Norms,
    NotEnclosed,
    annihilates,
    column_lengths,
    coordinates,
    entries,
    entries_times,
    transposed,
    transposed_at_hand,
)
from varopt.certificates.enclosures._entries import ENTRY_ROUNDINGS, Undecided, entries_of
from varopt.certificates.enclosures._value import applied, enclosed_terms, enclosed_value

__all__ = [
    "AT_ONCE",
    "ENTRY_ROUNDINGS",
    "DualQuadratic",
    "DualRows",
    "Norms",
    "NotEnclosed",
    "Undecided",
    "annihilates",
    "applied",
    "column_lengths",
    "conjugate_above",
    "coordinates",
    "dual_interval",
    "enclosed_terms",
    "enclosed_value",
    "entries",
    "entries_of",
    "entries_times",
    "transposed",
    "transposed_at_hand",
]
