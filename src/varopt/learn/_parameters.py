"""Parameters of estimators, each declared once: its type and default, what is accepted, and what it is for.

From the declarations of a class and of its bases come `__init__`, as for a dataclass, so that editors, type checkers
and `inspect.signature` know it; scikit-learn's `_parameter_constraints`; and the docstring's list of parameters.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import Field, dataclass, field, fields
from numbers import Integral, Real
from typing import Any, ClassVar, dataclass_transform

from varopt.learn._compat import Interval, StrOptions

__all__ = [
    "BOOLEAN",
    "CLASS_WEIGHT",
    "COUNT",
    "LEVEL",
    "NON_NEGATIVE",
    "POSITIVE",
    "RANDOM_STATE",
    "RIDGE_OR_L1",
    "SHARE",
    "STRENGTH",
    "UNUSED",
    "Declared",
    "Rule",
    "as_in",
    "filled",
    "one_of",
    "parameter",
]

NON_NEGATIVE = Interval(Real, 0.0, None, closed="left")
POSITIVE = Interval(Real, 0.0, None, closed="neither")
COUNT = Interval(Integral, 1, None, closed="left")
LEVEL = Interval(Real, 0.0, 1.0, closed="neither")
_UNIT_INTERVAL = Interval(Real, 0.0, 1.0, closed="both")
BOOLEAN = "boolean"


class Rule:
    """What a parameter is for, and what scikit-learn accepts for it."""

    def __init__(self, text: str, *accepts: Any, type: str = "") -> None:
        self.text, self.accepts = text, list(accepts)
        self.type = type or _spelled(accepts)


def one_of(*names: str) -> StrOptions:
    """One of some names."""
    return StrOptions(set(names))


def _spelled(accepts: tuple[Any, ...]) -> str:
    """Types as numpydoc writes them; a default of None is not among them."""
    *most, last = [_spell(one) for one in accepts if one is not None]
    return f"{', '.join(most)} or {last}" if most else last


def _spell(accepted: Any) -> str:
    if isinstance(accepted, Interval):
        return "float" if accepted.type is Real else "int"
    if isinstance(accepted, StrOptions):
        names = sorted(accepted.options)
        return "{" + ", ".join(f'"{name}"' for name in names) + "}" if len(names) > 1 else f'"{names[0]}"'
    words = {BOOLEAN: "bool", "verbose": "int", "random_state": "int", "cv_object": "int, splitter or iterable"}
    return words[accepted] if accepted in words else accepted if isinstance(accepted, str) else accepted.__name__


STRENGTH = Rule("Strength of the penalty, at least 0.", NON_NEGATIVE)
SHARE = Rule("The share of the L1 penalty, between 0 and 1, where it is mixed with another.", _UNIT_INTERVAL)
CLASS_WEIGHT = Rule(
    'Factors of the weights by class; "balanced" gives classes the same weight in total.',
    dict,
    one_of("balanced"),
    None,
)
RIDGE_OR_L1 = Rule(
    "R: ``||w||_1``, ``0.5 ||w||^2_2``, or ``l1_ratio ||w||_1 + 0.5 (1 - l1_ratio) ||w||^2_2``.",
    one_of("l1", "l2", "elasticnet"),
    None,
)
RANDOM_STATE = Rule("Accepted for compatibility: fits are deterministic.", "random_state")
UNUSED = "Accepted for compatibility, without effect."


def as_in(estimator: type[Any], name: str) -> Rule:
    """The rule that another estimator has for a parameter of that name."""
    rule: Rule = estimator.__dataclass_fields__[name].metadata["rule"]
    return rule


def parameter(*, default: Any, rule: Rule, kw_only: bool = True) -> Any:
    """One parameter of a subclass of `Declared`."""
    return field(default=default, kw_only=kw_only, metadata={"rule": rule})


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(parameter, field))
class Declared:
    """A class whose annotated attributes are its parameters: those of subclasses come first."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclass(cls, eq=False, repr=False, match_args=False)
        declared = _in_order(cls)
        signature = inspect.signature(cls.__init__)
        ordered = [signature.parameters[name] for name in ("self", *declared)]
        cls.__init__.__signature__ = signature.replace(parameters=ordered)  # type: ignore[attr-defined]
        cls._parameter_constraints = {name: one.metadata["rule"].accepts for name, one in declared.items()}
        cls.__doc__ = filled(cls.__doc__, {"parameters": _section("Parameters", map(_entry, declared.values()))})


def _in_order(cls: type[Any]) -> dict[str, Field[Any]]:
    """The parameters, those by position first, then those of the class before those of its bases."""
    known = {one.name: one for one in fields(cls) if one.init}
    names = [name for base in cls.__mro__ for name in inspect.get_annotations(base)]
    order = sorted({name: 0 for name in names if name in known}, key=lambda name: bool(known[name].kw_only))
    return {name: known[name] for name in order}


def _entry(declared: Field[Any]) -> str:
    rule, default = declared.metadata["rule"], declared.default
    shown = f'"{default}"' if isinstance(default, str) else repr(default).replace("e-0", "e-")
    text = textwrap.fill(rule.text, 116 - 4, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    return f"{declared.name} : {rule.type}, default={shown}\n{text}"


def _section(title: str, entries: Any) -> str:
    return "\n".join([title, "-" * len(title), *entries])


_FITTED = (
    "objective_ : float\n    The objective at the coefficients.\n"
    "lower_bound_ : float\n    No coefficients have a lower objective than this.\n"
    "gap_ : float\n    ``objective_ - lower_bound_``.\n"
    "certificate_ : Certificate\n    How the bound was proved and what it assumes.\n"
    "n_iter_ : int\n    Newton steps.\n"
    "passes_ : int\n    How often data that are not in memory were read.\n"
    "sigma_path_ : ndarray\n    The dispersion of the smoothing at every level, relative to the data.\n"
    "n_features_in_ : int\n    Number of features.\n"
    "feature_names_in_ : ndarray of str\n    Names of the features, where X has them."
)
_LINE = "coef_ : ndarray of shape (n_features,)\nintercept_ : float"
_TARGETS = (
    "coef_ : ndarray of shape (n_features,) or (n_targets, n_features)\n"
    "intercept_ : float or ndarray of shape (n_targets,)"
)
_LINES = (
    "coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)\n"
    "intercept_ : ndarray of shape (1,) or (n_classes,), or 0.0 without an intercept\n"
    "classes_ : ndarray of shape (n_classes,)"
)
_CHOSEN = "alpha_ : float\n    What was chosen.\nalphas_ : ndarray of shape (n_alphas,)\n    The grid."
_SQUARES_OF_FOLDS = "mse_path_ : ndarray of shape (n_alphas, n_folds)\n    Mean squared errors of the test rows."
_COMMON = {
    "chosen": _CHOSEN,
    "chosen_by_squares": f"{_CHOSEN}\n{_SQUARES_OF_FOLDS}",
    "fitted": _FITTED,
    "line": f"{_LINE}\n{_FITTED}",
    "lines": f"{_LINES}\n{_FITTED}",
    "regressor": _section("Attributes", [_TARGETS, _FITTED]),
    "classifier": _section("Attributes", [_LINES, _FITTED]),
    "certified": (
        "objective_, lower_bound_, gap_ : float, or ndarray with an entry per machine\n    The objective, a number"
        " below which no machine's objective lies, and their difference.\n"
        "certificate_ : Certificate, or a list of them\n    How the bound was proved and what it assumes.\n"
        "sigma_path_ : ndarray\n    Empty: the finish is exact."
    ),
}


def filled(docstring: str | None, parts: dict[str, str] | None = None) -> str | None:
    """A docstring whose lines ``{name}`` are replaced by the part of that name, or by the text that all share."""
    texts = _COMMON | (parts or {})

    def text(match: re.Match[str]) -> str:
        return textwrap.indent(texts[match[2]], match[1])

    return docstring and re.sub(r"^( *)\{(\w+)\}$", text, docstring, flags=re.MULTILINE)
