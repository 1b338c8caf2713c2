"""Pseudo-Boolean problems: a polynomial of bits, subject to linear constraints, and the files of the format OPB."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from varopt.discrete._readers import TextLines
from varopt.discrete._writers import as_text, write_lines
from varopt.model import Binary
from varopt.optimize import Result, minimize

__all__ = ["PseudoBoolean", "pseudo_boolean", "read_opb", "write_opb"]

Terms = Sequence[tuple[float, Sequence[int]]]
Comparison = tuple[Terms, str, float]

_MOST_IN_FILE = 100_000  # variables
_WHOLE_NUMBERS = 2**53  # whole numbers up to which double precision has them all
_RELATIONS = (">=", "<=", "=")
_HEADER = re.compile(r"#variable=\s*(\d+)")


class PseudoBoolean(NamedTuple):
    """A problem: ``pseudo_boolean(*problem)`` takes it.

    A term is a weight and literals, as in `max_sat`: variables counted from 1, negative if negated, of which the
    product counts. A constraint is a list of terms of one literal each, one of ``">="``, ``"<="`` and ``"="``, and a
    number.
    """

    objective: list[tuple[float, tuple[int, ...]]]
    constraints: list[tuple[list[tuple[float, tuple[int, ...]]], str, float]]
    variables: int


def pseudo_boolean(
    objective: Terms, constraints: Iterable[Comparison] = (), variables: int | None = None, *,
    time_limit: float | None = None, seed: Any = 0, progress: bool = False,
) -> Result:  # fmt: skip
    """Bits that minimise a sum of products of literals, subject to linear constraints.

    Parameters
    ----------
    objective : list of (weight, literals)
        What is minimised; where it is empty, any bits that satisfy the constraints will do.
    constraints : list of (terms, relation, side)
        Terms of one literal each, compared with a number by ``">="``, ``"<="`` or ``"="``.
    variables : int, optional
        Their number; else the largest that occurs.
    time_limit, seed, progress
        As for `varopt.minimize`.

    Returns
    -------
    Result
        ``x`` the bits; ``lower <= optimum <= upper``. Its status is INFEASIBLE where no bits satisfy all constraints.

    Examples
    --------
    >>> from varopt.discrete import pseudo_boolean
    >>> r = pseudo_boolean([(-3, [1]), (-2, [2]), (4, [1, -3])], [([(2, [1]), (2, [2]), (1, [3])], "<=", 3)])
    >>> r.fun, r.x.tolist(), r.status.name
    (-3.0, [1.0, 0.0, 1.0], 'PROVED')
    """
    terms, listed, size = _checked(objective, constraints, variables)
    x = Binary(size, name="x")
    return minimize(
        _polynomial(x, terms, size), subject_to=_rows(x, listed, size), time_limit=time_limit, seed=seed,
        progress=progress,
    )  # fmt: skip


def _checked(objective: Terms, constraints: Iterable[Comparison], variables: Any) -> PseudoBoolean:
    """The problem, once it is known to be one."""
    terms = _products(objective, "objective")
    listed = [_comparison(number, constraint) for number, constraint in enumerate(constraints, start=1)]
    largest = max((abs(k) for t in (terms, *(c[0] for c in listed)) for _, group in t for k in group), default=0)
    size = largest if variables is None else variables
    if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or size < largest:
        raise ValueError(f"variables must be a whole number >= {largest}, the largest that occurs; got {variables!r}.")
    if size == 0:
        raise ValueError("objective and constraints must have at least one variable.")
    return PseudoBoolean(terms, listed, int(size))


def _comparison(number: int, constraint: Any) -> tuple[list[tuple[float, tuple[int, ...]]], str, float]:
    try:
        terms, relation, side = constraint
    except (TypeError, ValueError):
        raise ValueError(f"constraint {number} must be terms, a relation and a number; got {constraint!r}.") from None
    if relation not in _RELATIONS:
        raise ValueError(f"constraint {number} must compare by '>=', '<=' or '='; got {relation!r}.")
    listed = _products(terms, f"constraint {number}")
    if any(len(literals) != 1 for _, literals in listed):
        raise ValueError(f"constraint {number} must be linear, with one literal in each term; it has a product.")
    return listed, relation, _number(side, f"the side of constraint {number}")


def _products(terms: Any, what: str) -> list[tuple[float, tuple[int, ...]]]:
    """Weights and the literals of which the product counts."""
    try:
        listed = [(weight, tuple(literals)) for weight, literals in terms]
    except (TypeError, ValueError):
        raise ValueError(f"{what} must have terms (weight, literals), such as (3, [1, -2]); got {terms!r}.") from None
    return [(_number(weight, f"a weight of {what}"), _literals(weight, literals)) for weight, literals in listed]


def _number(value: Any, what: str) -> float:
    try:
        number = float(+value)  # a text is no number, though `float` reads it
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{what} must be a finite number; got {value!r}.")
    return value if isinstance(value, int) else number  # whole numbers are written as they are


def _literals(weight: Any, literals: Sequence[Any]) -> tuple[int, ...]:
    if not all(isinstance(k, (int, np.integer)) and k for k in literals):
        raise ValueError(f"literals must be whole numbers, not 0; got {literals!r} of weight {weight!r}.")
    return tuple(dict.fromkeys(map(int, literals)))


def _vector(terms: Terms, size: int) -> tuple[np.ndarray[Any, Any], float]:
    """The coefficients of single literals, and a constant: ``~x = 1 - x``."""
    coefficients, constant = np.zeros(size), 0.0
    for weight, (literal,) in terms:
        coefficients[abs(literal) - 1] += weight if literal > 0 else -weight
        constant += weight if literal < 0 else 0.0
    return coefficients, constant


def _polynomial(x: Any, terms: Terms, size: int) -> Any:
    single = [(weight, literals) for weight, literals in terms if len(literals) == 1]
    coefficients, constant = _vector(single, size)
    total = coefficients @ x + (constant + sum(weight for weight, literals in terms if not literals))
    for weight, literals in terms:
        if len(literals) < 2 or any(-k in literals for k in literals):
            continue
        product: Any = weight
        for literal in literals:
            bit = x[abs(literal) - 1]
            product = product * (bit if literal > 0 else 1 - bit)
        total = total + product
    return total


def _rows(x: Any, constraints: Sequence[Comparison], size: int) -> list[Any]:
    rows: dict[str, list[Any]] = {relation: [] for relation in _RELATIONS}
    for terms, relation, side in constraints:
        coefficients, constant = _vector(terms, size)
        rows[relation].append((sp.csr_array(coefficients[None]), side - constant))
    stated = []
    for relation, listed in rows.items():
        if not listed:
            continue
        left = sp.csr_array(sp.vstack([row for row, _ in listed])) @ x
        sides = np.array([side for _, side in listed])
        stated.append(left >= sides if relation == ">=" else left <= sides if relation == "<=" else left == sides)
    return stated


# -- Files ------------------------------------------------------------------------------------------------------------


def read_opb(path: str | PathLike[str]) -> PseudoBoolean:
    """A problem in the format of the pseudo-Boolean competitions, for `pseudo_boolean`.

    Parameters
    ----------
    path : path
        A text file: comments ``* ...``, ``min: +3 x1 -2 x2 ~x3 ;`` (or ``max:``: minus the value is minimised),
        then constraints such as ``+2 x1 +1 ~x2 >= 2 ;``. Variables are x1, x2, ...; ``~`` negates.

    Returns
    -------
    PseudoBoolean
        Objective, constraints and the number of variables, that which the file announces or the largest that occurs.
    """
    lines = TextLines(path)
    objective: list[tuple[float, tuple[int, ...]]] = []
    constraints: list[tuple[list[tuple[float, tuple[int, ...]]], str, float]] = []
    announced, stated, aims = 0, 0, 0
    for words in _statements(lines):
        if words[0].startswith("*"):
            announced = max([announced, *(lines.count(n, "variables") for n in _HEADER.findall(" ".join(words)))])
            continue
        stated += 1
        if words[0] in ("min:", "max:"):
            lines.first_of_its_kind("objective", not aims)
            aims = 1
            sign = 1.0 if words[0] == "min:" else -1.0
            objective = [(sign * weight, literals) for weight, literals in _terms(lines, words[1:])]
            continue
        at = next((k for k, word in enumerate(words) if word in _RELATIONS), -1)
        if at < 0 or len(words) != at + 2:
            raise lines.wrong("a constraint must end in '>= number ;', '<= number ;' or '= number ;'")
        terms = _terms(lines, words[:at])
        if any(len(literals) != 1 for _, literals in terms):
            raise lines.wrong("a constraint must be linear; this one has a product of literals")
        constraints.append((terms, words[at], float(_whole(lines, words[at + 1], "a side"))))
    if not stated:
        raise lines.wrong("the file has no objective and no constraints")
    everything = (objective, *(terms for terms, _, _ in constraints))
    largest = max((abs(k) for terms in everything for _, literals in terms for k in literals), default=0)
    return PseudoBoolean(objective, constraints, max(announced, largest))


def _statements(lines: TextLines) -> Iterator[list[str]]:
    """Comments, and what ends in a semicolon, which may span lines."""
    waiting: list[str] = []
    for words in lines:
        if words[0].startswith("*"):
            yield words
            continue
        text = " ".join(words)
        for symbol in (">=", "<=", ";"):
            text = text.replace(symbol, f" {symbol} ")
        text = re.sub(r"(?<![<>])=", " = ", text)
        text = re.sub(r"\b(min|max)\s*:", r"\1: ", text)
        for word in text.split():
            if word != ";":
                waiting.append(word)
            elif waiting:
                yield waiting
                waiting = []
    if waiting:
        raise lines.wrong("the last statement does not end with ';'")


def _terms(lines: TextLines, words: Sequence[str]) -> list[tuple[float, tuple[int, ...]]]:
    """A weight and the literals that follow it, again and again."""
    found: list[tuple[float, list[int]]] = []
    for word in words:
        if word.removeprefix("~").startswith("x"):
            if not found:
                raise lines.wrong(f"a term must begin with its weight; got {word!r}")
            number = _whole(lines, word.removeprefix("~")[1:], "the number of a variable")
            if not 1 <= number <= _MOST_IN_FILE:
                raise lines.wrong(f"a variable must be from x1 to x{_MOST_IN_FILE}; got {word!r}")
            found[-1][1].append(-number if word.startswith("~") else number)
        else:
            if found and not found[-1][1]:
                raise lines.wrong(f"a weight must be followed by a variable; got {word!r}")
            found.append((float(_whole(lines, word, "a weight")), []))
    if found and not found[-1][1]:
        raise lines.wrong("a weight must be followed by a variable; the statement ends")
    return [(weight, tuple(dict.fromkeys(literals))) for weight, literals in found]


def _whole(lines: TextLines, word: str, what: str) -> int:
    number = lines.integer(word, what)
    if abs(number) > _WHOLE_NUMBERS:
        raise lines.wrong(f"{what} must be at most 2^53 in size; got {word}")
    return number


def write_opb(
    path: str | PathLike[str], objective: Terms, constraints: Iterable[Comparison] = (), variables: int | None = None
) -> None:
    """Write a problem as `pseudo_boolean` takes it, in the format of the competitions: weights are whole numbers."""
    terms, listed, size = _checked(objective, constraints, variables)
    numbers = [w for part in (terms, *(c[0] for c in listed)) for w, _ in part] + [side for _, _, side in listed]
    wrong = next((w for w in numbers if w != int(w)), None)
    if wrong is not None:
        raise ValueError(f"weights and sides must be whole numbers in a file of the format OPB; got {wrong!r}.")
    # The format has no '<=': both sides change their sign.
    texts = [
        f"{_written([(-w, k) for w, k in part] if relation == '<=' else part)} "
        f"{'>=' if relation == '<=' else relation} {as_text(-side if relation == '<=' else side)} ;"
        for part, relation, side in listed
    ]
    # Nor has it constants: a bit and its opposite are one together.
    single = [t for w, literals in terms for t in ([(w, literals)] if literals else [(w, (1,)), (w, (-1,))])]
    first = [f"min: {_written(single)} ;"] if single else []
    write_lines(path, [f"* #variable= {size} #constraint= {len(listed)}", *first, *texts])


def _written(terms: Terms) -> str:
    names = [" ".join(f"x{k}" if k > 0 else f"~x{-k}" for k in literals) for _, literals in terms]
    return " ".join(f"{int(weight):+d} {name}" for (weight, _), name in zip(terms, names, strict=True))
