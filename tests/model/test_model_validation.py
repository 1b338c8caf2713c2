"""Bad input: each its own sentence, before anything is built."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import varopt.model as vo
from varopt.model.maps._reading import _CHECKED_AT_ONCE  # the size at which data are checked later

NAN, INF = math.nan, math.inf
X, Y = np.arange(6.0).reshape(3, 2), np.array([1.0, 2.0, 3.0])
BAD = np.array([[1.0, 2.0], [3.0, NAN], [5.0, 6.0]])
COMPLEX = np.array([[1j, 2], [3, 4], [5, 6]])


@pytest.fixture
def w():
    return vo.Variable(2, name="w")


@pytest.fixture
def b():
    return vo.Variable(name="b")


@pytest.fixture
def x():
    return vo.Binary(2, name="x")


VARIABLES = {
    "size zero": (lambda: vo.Variable(0), r"size must be a positive integer; got 0\."),
    "negative size": (lambda: vo.Binary(-2), r"size must be a positive integer; got -2\."),
    "boolean size": (lambda: vo.Variable(True), r"size must be a positive integer; got True\."),
    "real size": (lambda: vo.Variable(2.0), r"size must be a positive integer; got 2\.0\."),
    "text size": (lambda: vo.Variable("w"), r"size must be a positive integer; got 'w'\."),
    "no columns": (lambda: vo.Variable((2, 0)), r"size must be a positive integer; got 0\."),
    "no categories": (lambda: vo.Categorical(2, 0), r"categories must be a positive integer; got 0\."),
    "no choices": (lambda: vo.Categorical(0, 2), r"size must be a positive integer; got 0\."),
    "name": (lambda: vo.Variable(2, name=3), r"name must be a string; got 3\."),
}

MATRICES = {
    "nan": (lambda w: BAD @ w, r"the matrix before @ must be finite; got nan in row 1, column 1\."),
    "inf": (lambda w: (INF * np.ones((1, 2))) @ w, r"the matrix before @ must be finite; got inf in row 0, column 0\."),
    "two infinities": (lambda w: np.array([[INF, -INF]]) @ w, r"must be finite; got inf in row 0, column 0\."),
    "nan in float32": (lambda w: BAD.astype(np.float32) @ w, r"must be finite; got nan in row 1, column 1\."),
    "nan in a list": (lambda w: BAD.tolist() @ w, r"the array before @ must be finite; got nan at index \(1, 1\)\."),
    "nan in csr": (
        lambda w: sp.csr_array(BAD) @ w,
        r"the matrix before @ must be finite; got nan in row 1, column 1\.",
    ),
    "nan in csc": (
        lambda w: sp.csc_matrix(BAD) @ w,
        r"the matrix before @ must be finite; got nan in row 1, column 1\.",
    ),
    "nan after": (lambda w: w @ BAD.T, r"the matrix after @ must be finite; got nan in row 1, column 1\."),
    "columns": (
        lambda w: np.ones((3, 4)) @ w,
        r"the matrix before @ must have 2 columns to match w; got shape \(3, 4\)\.",
    ),
    "sparse columns": (
        lambda w: sp.coo_array(np.ones((3, 4))) @ w,
        r"must have 2 columns to match w; got shape \(3, 4\)\.",
    ),
    "operator columns": (
        lambda w: aslinearoperator(np.ones((3, 4))) @ w,
        r"must have 2 columns to match w; got shape \(3, 4\)\.",
    ),
    "rows": (lambda w: w @ np.ones((3, 4)), r"the matrix after @ must have 2 rows to match w; got shape \(3, 4\)\."),
    "columns of an expression": (
        lambda w: X @ (X @ w),
        r"must have 3 columns to match A\[3 x 2\] @ w; got shape \(3, 2\)\.",
    ),
    "no rows": (lambda w: np.ones((0, 2)) @ w, r"the matrix before @ must not be empty; got shape \(0, 2\)\."),
    "no columns": (lambda w: np.ones((3, 0)) @ w, r"the matrix before @ must not be empty; got shape \(3, 0\)\."),
    "empty sparse": (
        lambda w: sp.csr_array((0, 2)) @ w,
        r"the matrix before @ must not be empty; got shape \(0, 2\)\.",
    ),
    "empty operator": (lambda w: LinearOperator((0, 2), matvec=lambda x: x[:0], dtype=float) @ w, r"must not be empty"),
    "three axes": (
        lambda w: np.ones((2, 2, 2)) @ w,
        r"the array before @ must be a matrix or a vector; got shape \(2, 2, 2\)\.",
    ),
    "sparse vector": (
        lambda w: sp.coo_array(np.ones(2)) @ w,
        r"the vector before @ must be a number or a dense array; got coo_array",
    ),
    "complex": (lambda w: COMPLEX @ w, r"the array before @ must be real numbers; got dtype complex128\."),
    "complex sparse": (
        lambda w: sp.csr_array(COMPLEX) @ w,
        r"the matrix before @ must be real numbers; got dtype complex128\.",
    ),
    "complex operator": (
        lambda w: aslinearoperator(COMPLEX) @ w,
        r"the matrix before @ must be real numbers; got dtype complex128\.",
    ),
    "text": (lambda w: np.array([["a", "b"]]) @ w, r"the array before @ must be real numbers; got dtype <U1\."),
    "a string": (lambda w: "ab" @ w, r"the array before @ must be real numbers; got dtype <U2\."),
    "objects": (lambda w: np.array([[None, 1]]) @ w, r"the array before @ must be real numbers; got dtype object\."),
    "dates": (
        lambda w: np.zeros((1, 2), dtype="M8[s]") @ w,
        r"the array before @ must be real numbers; got dtype datetime64\[s\]\.",
    ),
    "ragged": (lambda w: [[1.0], [1.0, 2.0]] @ w, r"the array before @ must be a rectangular array of numbers"),
    "ragged after": (lambda w: w @ [[1.0], [1.0, 2.0]], r"the array after @ must be a rectangular array of numbers"),
    "nothing": (lambda w: None @ w, r"the array before @ must be real numbers; got dtype object\."),
    "matrix of terms": (
        lambda w: X @ vo.abs(w),
        r"a matrix product needs an affine expression or a polynomial in bits; got abs\(w\)\.",
    ),
    "operator of terms": (
        lambda w: aslinearoperator(X) @ vo.abs(w),
        r"a matrix product needs an affine expression .* got abs\(w\)\.",
    ),
    "matrix of an objective": (
        lambda w: X @ vo.norm1(w),
        r"@ needs a vector, and sum\(abs\(w\)\) is a number; use \*\.",
    ),
    "matrix of a scalar": (lambda w: X @ w[0], r"@ needs a vector, and w\[0\] is a number; use \*\."),
}

VECTORS = {
    "nan constant": (lambda w: w + np.array([1.0, NAN]), r"the constant must be finite; got nan at index 1\."),
    "nan subtracted": (lambda w: w - np.array([NAN, 1.0]), r"the constant must be finite; got nan at index 0\."),
    "nan target": (lambda w: np.array([1.0, INF, 2.0]) - X @ w, r"the constant must be finite; got inf at index 1\."),
    "nan number": (lambda w: w + NAN, r"the constant must be finite; got nan\."),
    "nan factor": (lambda w: NAN * w, r"the factor must be finite; got nan\."),
    "nan factors": (lambda w: np.array([1.0, NAN]) * w, r"the factor must be finite; got nan at index 1\."),
    "nan weights": (lambda w: np.array([1.0, NAN]) * vo.abs(w), r"the factor must be finite; got nan at index 1\."),
    "nan weight vector": (
        lambda w: np.array([1.0, NAN]) @ vo.abs(w),
        r"the vector before @ must be finite; got nan at index 1\.",
    ),
    "nan weight": (lambda w: INF * vo.norm1(w), r"the factor must be finite; got inf\."),
    "nan added": (lambda w: vo.norm1(w) + NAN, r"the constant must be finite; got nan\."),
    "length of a constant": (
        lambda w: w + Y,
        r"the constant must be a number or have length 2 to match w; got length 3\.",
    ),
    "length of a target": (
        lambda w: Y[:2] - X @ w,
        r"the constant must be a number or have length 3 to match -A\[3 x 2\] @ w; got length 2\.",
    ),
    "length of a factor": (lambda w: Y * w, r"the factor must be a number or have length 2 to match w; got length 3\."),
    "length of a sum": (
        lambda w: w + vo.Variable(3, name="v"),
        r"v must be a number or have length 2 to match w; got length 3\.",
    ),
    "length of weights": (
        lambda w: Y * vo.abs(w),
        r"the factor must be a number or have length 2 to match abs\(w\); got 3\.",
    ),
    "length of a weight vector": (
        lambda w: Y @ vo.abs(w),
        r"the vector before @ must have length 2 to match abs\(w\); got length 3\.",
    ),
    "length of a vector": (lambda w: Y @ w, r"the vector before @ must have length 2 to match w; got length 3\."),
    "length of a vector after": (lambda w: w @ Y, r"the vector after @ must have length 2 to match w; got length 3\."),
    "length of added terms": (
        lambda w: vo.abs(w) + vo.abs(X @ w),
        r"cannot be added entry by entry; sum each with vo\.sum first\.",
    ),
    "constant among terms": (
        lambda w: vo.abs(w) + Y,
        r"the constant must be a number or have length 2 .* got length 3\.",
    ),
    "vector among scalar terms": (
        lambda w: vo.abs(w[0]) + Y,
        r"abs\(w\[0\]\) is a number, and cannot be added to a vector of length 3\.",
    ),
    "weights of a scalar term": (
        lambda w: Y * vo.abs(w[0]),
        r"the factor must be a number or have length 1 .* got 3\.",
    ),
    "empty constant": (lambda w: w[0] + np.empty(0), r"the constant must not be empty\."),
    "empty factor": (lambda w: [] * w[0], r"the factor must not be empty\."),
    "matrix factor": (lambda w: X * w, r"the factor must be a number or a vector; got shape \(3, 2\)\."),
    "sparse factor": (
        lambda w: w * sp.csr_array(X),
        r"the factor must be a number or a dense array; got csr_array\. Did you mean @\?",
    ),
    "matrix constant": (
        lambda w: w + np.ones((1, 2)),
        r"the constant must be a number or a vector; got shape \(1, 2\)\.",
    ),
    "complex constant": (lambda w: w + 1j, r"the constant must be real numbers; got dtype complex128\."),
    "complex factor": (
        lambda w: np.complex128(1j) * vo.norm1(w),
        r"the factor must be real numbers; got dtype complex128\.",
    ),
    "complex added": (
        lambda w: vo.norm1(w) + np.complex128(1j),
        r"the constant must be real numbers; got dtype complex128\.",
    ),
    "text constant": (lambda w: w + "1", r"the constant must be real numbers; got dtype <U1\."),
    "text added": (lambda w: vo.norm1(w) + np.str_("1"), r"the constant must be real numbers; got dtype <U1\."),
    "none": (lambda w: w - None, r"the constant must be real numbers; got dtype object\."),
    "zero divisor": (lambda w: w / 0, r"the divisor must not be zero\."),
    "zero among divisors": (lambda w: w / [1.0, 0.0], r"the divisor must not be zero\."),
    "nan divisor": (lambda w: vo.norm1(w) / NAN, r"the divisor must be finite; got nan\."),
    "vector factor of an objective": (
        lambda w: Y * vo.norm1(w),
        r"the factor of an objective must be a number; got 3 entries\.",
    ),
    "vector added to an objective": (
        lambda w: vo.norm1(w) + Y,
        r"an objective must be a number built from variables; got ndarray\.",
    ),
    "expression added to an objective": (
        lambda w: vo.norm1(w) + w,
        r"an objective must be a number, and w has 2 entries: sum it with vo\.sum\.",
    ),
    "objective added to terms": (
        lambda w: vo.abs(w) + vo.norm1(w),
        r"cannot be added entry by entry; sum each with vo\.sum first\.",
    ),
    "scalar inner product": (lambda w: w @ w[0], r"@ needs vectors of one length; got shapes \(2,\) and \(\)\."),
}

FUNCTIONS = {
    "array for expression": (lambda w: vo.abs(Y), r"abs needs an expression of variables; got ndarray\."),
    "text for expression": (lambda w: vo.hinge("w"), r"hinge needs an expression of variables; got str\."),
    "objective for vector": (
        lambda w: vo.abs(vo.norm1(w)),
        r"abs needs an affine or elementwise expression; got the objective sum\(abs\(w\)\)\.",
    ),
    "sum of an array": (lambda w: vo.sum(Y), r"sum needs an expression of variables; got ndarray\."),
    "norm2 of terms": (lambda w: vo.norm2(vo.abs(w)), r"norm2 needs an affine expression of variables; got abs\(w\)\."),
    "norm2 of an array": (lambda w: vo.norm2(Y), r"norm2 needs an affine expression of variables; got ndarray\."),
    "quad_form of terms": (
        lambda w: vo.quad_form(vo.abs(w), np.eye(2)),
        r"quad_form needs an affine expression of variables; got abs\(w\)\.",
    ),
    "level": (lambda w: vo.pinball(w, 1.5), r"level must be in \(0, 1\); got 1\.5\."),
    "levels": (
        lambda w: vo.pinball(w, [0.1, 0.5, 0.9]),
        r"level must be a number or have one entry per row, 2; got shape \(3,\)\.",
    ),
    "levels of a scalar": (
        lambda w: vo.pinball(w[0], [0.1, 0.5]),
        r"level must be a number or have one entry per row, 1; got shape \(2,\)\.",
    ),
    "nan level": (lambda w: vo.pinball(w, [0.1, NAN]), r"level must be finite; got nan at index 1\."),
    "epsilon": (lambda w: vo.epsilon_insensitive(w, -1), r"epsilon must be >= 0; got -1\."),
    "delta": (lambda w: vo.huber(w, 0), r"delta must be > 0; got 0\."),
    "clip": (lambda w: vo.clip(w, 1, 1), r"low must be less than high"),
    "knots": (lambda w: vo.piecewise(w, [1.0, 0.0], [[0.0]] * 3), r"knots must be increasing"),
    "rows of knots": (
        lambda w: vo.piecewise(w, [Y], [[0.0], [1.0]]),
        r"knots must be a number or have one entry per row, 2; got shape \(3,\)\.",
    ),
    "rows of pieces": (
        lambda w: vo.piecewise(w, [0.0], [[0.0], [Y]]),
        r"pieces must be a number or have one entry per row, 2; got shape \(3,\)\.",
    ),
    "pieces": (
        lambda w: vo.piecewise(w, [0.0], [[0.0]]),
        r"pieces must be one more than knots; got 1 pieces for 1 knots\.",
    ),
    "order zero": (lambda w: vo.diff(w, 0), r"order must be a positive integer; got 0\."),
    "order too large": (lambda w: vo.diff(w, 2), r"order must be less than the length 2; got 2\."),
    "real order": (lambda w: vo.diff(w, 1.5), r"order must be a positive integer; got 1\.5\."),
    "diff of a scalar": (lambda w: vo.diff(w[0]), r"diff needs an affine vector, .* got w\[0\]\."),
    "diff of terms": (lambda w: vo.diff(vo.abs(w)), r"diff needs an affine vector, .* got abs\(w\)\."),
    "diff of an array": (lambda w: vo.diff(Y), r"diff needs an affine vector"),
    "quad_form shape": (
        lambda w: vo.quad_form(w, np.eye(3)),
        r"the matrix of quad_form must have shape \(2, 2\); got \(3, 3\)\.",
    ),
    "quad_form of a vector": (
        lambda w: vo.quad_form(w, Y),
        r"the matrix of quad_form must be a matrix; got an array of shape \(3,\)\.",
    ),
    "quad_form of nan": (
        lambda w: vo.quad_form(w, BAD[:2]),
        r"the matrix of quad_form must be finite; got nan in row 1, column 1\.",
    ),
    "groups zero": (lambda w: vo.norm2(w, 0), r"groups must be a positive integer; got 0\."),
    "groups real": (lambda w: vo.norm2(w, 1.5), r"groups must be a positive integer; got 1\.5\."),
    "groups that do not divide": (lambda w: vo.norm2(X @ w, 2), r"groups must divide the length 3; got 2\."),
    "groups outside": (
        lambda w: vo.norm2(w, [[0, 2]]),
        r"groups must hold positions in a vector of length 2; got \[0, 2\]\.",
    ),
    "groups far below": (
        lambda w: vo.norm2(w, [[-3]]),
        r"groups must hold positions in a vector of length 2; got \[-3\]\.",
    ),
    "groups with repeats": (lambda w: vo.norm2(w, [[0, -2]]), r"groups must not name an entry twice; got \[0, -2\]\."),
    "labels for groups": (
        lambda w: vo.norm2(w, [0, 1]),
        r"groups must be an integer or a sequence of non-empty index arrays; got 0 among them\.",
    ),
    "real groups": (
        lambda w: vo.norm2(w, [[0.5]]),
        r"groups must be an integer or a sequence of non-empty index arrays; got \[0\.5\] among them\.",
    ),
    "an empty group": (
        lambda w: vo.norm2(w, [[0], []]),
        r"groups must be an integer or a sequence of non-empty index arrays; got \[\] among them\.",
    ),
    "text for groups": (
        lambda w: vo.norm2(w, ["a"]),
        r"groups must be an integer or a sequence of non-empty index arrays; got 'a' among them\.",
    ),
    "no groups": (lambda w: vo.norm2(w, []), r"groups must not be empty\."),
    "group weights": (lambda w: vo.norm2(w, 1, [1, 2, 3]), r"weights must be a number or one per group, 2; got 3\."),
    "nan group weights": (lambda w: vo.norm2(w, 1, [1, NAN]), r"weights must be finite; got nan at index 1\."),
    "exponent zero": (lambda w: w**0, r"the exponent must be a positive integer; got 0\."),
    "negative exponent": (lambda w: w**-1, r"the exponent must be a positive integer; got -1\."),
    "real exponent": (lambda w: w**0.5, r"the exponent must be a positive integer; got 0\.5\."),
    "large exponent": (lambda w: w**50, r"degree at most"),
    "power of an objective": (
        lambda w: vo.norm1(w) ** 2,
        r"square needs an affine or elementwise expression; got the objective sum\(abs\(w\)\)\.",
    ),
    "objective of a vector": (
        vo.as_objective,
        r"an objective must be a number, and w has 2 entries: sum it with vo\.sum\.",
    ),
    "objective of nothing": (
        lambda w: vo.as_objective(None),
        r"an objective must be a number built from variables; got NoneType\.",
    ),
}

INDICES = {
    "outside": (lambda w: w[2], r"the index must lie in a vector of length 2; got 2\."),
    "far below": (lambda w: w[-3], r"the index must lie in a vector of length 2; got -3\."),
    "list outside": (lambda w: w[[0, 2]], r"the index must lie in a vector of length 2; got \[0, 2\]\."),
    "empty slice": (lambda w: w[2:], r"the index slice\(2, None, None\) selects nothing of w\."),
    "empty list": (lambda w: w[[]], r"the index \[\] selects nothing of w\."),
    "empty mask": (lambda w: w[[False, False]], r"the index selects nothing of w\."),
    "short mask": (lambda w: w[np.array([True])], r"a boolean index must have length 2 to match w; got length 1\."),
    "two axes": (
        lambda w: w[0, 1],
        r"an index must be an integer, a slice, or a vector of integers or booleans; got \(0, 1\)\.",
    ),
    "new axis": (
        lambda w: w[None],
        r"an index must be an integer, a slice, or a vector of integers or booleans; got None\.",
    ),
    "boolean": (
        lambda w: w[True],
        r"an index must be an integer, a slice, or a vector of integers or booleans; got True\.",
    ),
    "real": (
        lambda w: w[0.5],
        r"an index must be an integer, a slice, or a vector of integers or booleans; got 0\.5\.",
    ),
    "matrix of indices": (
        lambda w: w[[[0, 1]]],
        r"an index must be an integer, a slice, or a vector of integers or booleans",
    ),
    "text": (lambda w: w["a"], r"an index must be an integer, a slice, or a vector of integers or booleans; got 'a'\."),
    "slice of reals": (lambda w: w[0.5:], r"an index must be made of integers"),
    "scalar": (lambda w: w[0][0], r"w\[0\] is a number and cannot be indexed\."),
    "category": (
        lambda w: vo.Categorical(2, 3)[0, 3],
        r"the index \(0, 3\) is outside Categorical\(2, 3\): index 3 is out of bounds",
    ),
    "choice": (lambda w: vo.Categorical(2, 3)[2], r"the index 2 is outside Categorical\(2, 3\)"),
    "third axis": (lambda w: vo.Categorical(2, 3)[0, 0, 0], r"is outside Categorical\(2, 3\): too many indices"),
}

POLYNOMIALS = {
    "lengths of factors": (
        lambda x: x * vo.Binary(3),
        r"polynomials and their factors must have one length; got 2 and 3\.",
    ),
    "lengths of addends": (
        lambda x: x * x + vo.Binary(3),
        r"polynomials and their factors must have one length; got 2 and 3\.",
    ),
    "length of a factor": (lambda x: Y * (x * x), r"polynomials and their factors must have one length; got 2 and 3\."),
    "inner product": (lambda x: x @ vo.Binary(3), r"@ needs vectors of one length; got shapes \(2,\) and \(3,\)\."),
    "index outside": (lambda x: (x * x)[2], r"the index must lie in a vector of length 2; got 2\."),
    "index of a scalar": (lambda x: (x[0] * x[1])[0], r"x\[0\] \* x\[1\] is a number and cannot be indexed\."),
    "nan factor": (lambda x: NAN * (x[0] * x[1]), r"the factor must be finite; got nan\."),
    "nan constant": (lambda x: x[0] * x[1] + NAN, r"the constant must be finite; got nan\."),
    "nan matrix": (
        lambda x: np.array([[1.0, NAN]]) @ (x * x),
        r"the matrix before @ must be finite; got nan in row 0, column 1\.",
    ),
    "columns": (lambda x: np.ones((1, 3)) @ (x * x), r"the matrix before @ must have 2 columns"),
    "vector with real entries": (
        lambda x: x * x + vo.Variable(2, name="v"),
        r"cannot be added entry by entry; sum each with vo\.sum first\.",
    ),
    "vector with terms": (
        lambda x: x * x + vo.abs(x),
        r"cannot be added entry by entry; sum each with vo\.sum first\.",
    ),
    "exponent": (lambda x: (x * x) ** 0, r"the exponent must be a positive integer; got 0\."),
}


def cases(table):
    return pytest.mark.parametrize(("write", "message"), table.values(), ids=table)


@cases(VARIABLES)
def test_variables(write, message):
    with pytest.raises(ValueError, match=message):
        write()


@cases(MATRICES | VECTORS | FUNCTIONS | INDICES)
def test_expressions(write, message, w):
    with pytest.raises(ValueError, match=message):
        write(w)


@cases(POLYNOMIALS)
def test_polynomials(write, message, x):
    with pytest.raises(ValueError, match=message):
        write(x)


def test_the_limit_on_the_degree_of_a_term_is_none_on_polynomials_of_bits():
    x = vo.Binary(2)
    assert ((x[0] + x[1]) ** 50)([1, 0]) == 1.0


OPERATIONS = {
    "product": (
        lambda w, x: w * (w + 1.0),
        r"a product of expressions must be a polynomial in Binary or Categorical variables, and w is none: .*quad_form",
    ),
    "product of different": (lambda w, x: w[0] * x[0], r"and w\[0\] is none"),
    "inner product": (
        lambda w, x: (w + 1.0) @ (2.0 * w),
        r"and w \+ 1 is none: for real variables use sum_squares or quad_form, or hand vo\.bound a callable\.",
    ),
    "product with another's image": (lambda w, x: vo.Variable(2, name="v") @ (np.eye(2) @ w), r"and v is none"),
    "product with differences": (lambda w, x: (w @ np.ones((2, 2))) @ vo.concatenate([w[:1], w[:1]]), r"is none"),
    "product of terms": (lambda w, x: vo.abs(w) * vo.abs(w), r"and abs\(w\) is none"),
    "product of objectives": (lambda w, x: vo.norm1(w) * vo.norm1(w), r"and sum\(abs\(w\)\) is none"),
    "product with a norm": (lambda w, x: x[0] * vo.norm2(x), r"and norm2\(x\) is none"),
    "quotient": (lambda w, x: w / w, r"w cannot be a divisor"),
    "reciprocal": (lambda w, x: 1 / w[0], r"w\[0\] cannot be a divisor"),
    "truth": (lambda w, x: bool(w), r"an expression has no truth value"),
    "truth of an objective": (lambda w, x: 1 if vo.norm1(w) else 0, r"an expression has no truth value"),
    "iteration": (lambda w, x: list(w), r"w is not iterable: its sum is vo\.sum\(\.\.\.\)"),
    "iteration over terms": (lambda w, x: sum(vo.abs(w)), r"abs\(w\) is not iterable: its sum is"),
    "iteration over bits": (lambda w, x: tuple(x * x), r"is not iterable: its sum is"),
    "unpacking": (lambda w, x: print(*w), r"not iterable|must be an iterable"),
    "membership": (lambda w, x: 1.0 in w, r"w is not a container"),
    "length": (lambda w, x: len(w), r"has no len\(\)"),
    "comparison": (lambda w, x: w < 1, r"w < 1 is no constraint: a strict comparison"),
    "floor": (lambda w, x: w // 2, r"unsupported operand"),
    "base": (lambda w, x: 2**w, r"unsupported operand"),
}


@cases(OPERATIONS)
def test_operations_that_do_not_exist(write, message, w, x):
    with pytest.raises(TypeError, match=message):
        write(w, x)


@pytest.mark.parametrize("function", [np.linalg.norm, np.median, np.cumsum, np.exp, np.sign])
def test_other_numpy_functions_do_not_take_expressions(function, w):
    """Else some would loop over entries, and return an array of expressions."""
    with pytest.raises(TypeError, match=rf"numpy\.{function.__name__} does not take expressions: "):
        function(w)


# -- Large matrices ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[np.float32, np.float64])
def large(request):
    X = np.ones((_CHECKED_AT_ONCE // 64 + 1, 64), dtype=request.param)
    X[-2, 3] = NAN
    return X


USES = {
    "value": lambda f, p: f(np.zeros(p)),
    "curvature": lambda f, p: f.curvature,
    "explanation": lambda f, p: f.explain(),
    "check": lambda f, p: f.checked,
}


@pytest.mark.parametrize("use", USES)
def test_large_data_are_checked_at_first_use(use, large):
    rows, columns = large.shape
    w = vo.Variable(columns, name="w")
    f = vo.norm1(w) + vo.sum(vo.hinge(large @ w))
    with pytest.raises(ValueError, match=rf"the matrix of w must be finite; got nan in row {rows - 2}, column 3\."):
        USES[use](f, columns)
    with pytest.raises(ValueError, match="the matrix of w must be finite"):  # and again: nothing is half-built
        USES[use](f, columns)


def test_large_data_are_checked_wherever_they_are(large):
    rows, columns = large.shape
    w = vo.Variable(columns, name="w")
    for f in (
        vo.sum(large @ w),
        vo.sum_squares(large.T @ (large @ w)),
        vo.norm2(large @ w - 1),
        vo.sum(vo.pos(vo.abs(large @ w) - 1)),
        vo.sum(vo.abs(w)) - vo.sum(2 * (np.ones(rows) * (large @ w))[1:]),
        vo.quad_form(large @ w, sp.eye_array(rows)),
    ):
        with pytest.raises(ValueError, match="the matrix of w must be finite; got nan"):
            f(np.zeros(columns))
    with pytest.raises(ValueError, match="the matrix of w must be finite; got nan"):
        (large @ w)(np.zeros(columns))
    x = vo.Binary(columns)
    with pytest.raises(ValueError, match="must be finite; got nan"):
        (large @ x) @ (large @ x)


def test_large_sparse_data_are_checked_at_first_use():
    n = 2000
    X = sp.random_array((n, n), density=1e-3, format="csr", rng=0)
    X.data[7] = INF
    w = vo.Variable(n, name="w")
    f = vo.norm1(X @ w)
    with pytest.raises(ValueError, match=r"the matrix of w must be finite; got inf in row \d+, column \d+\."):
        f(np.zeros(n))


def test_operators_are_checked_at_first_use():
    w = vo.Variable(2, name="w")
    f = vo.norm1(aslinearoperator(BAD) @ w)
    with pytest.raises(ValueError, match="the matrix of w must be finite; its product with a vector of ones is not"):
        f([0.0, 0.0])


def test_entries_so_large_that_their_sum_overflows_are_finite(w):
    f = vo.norm1(np.full((3, 2), 1.5e308) @ w)
    assert f([1e-308, 0.0]) == pytest.approx(4.5)


# -- Points -----------------------------------------------------------------------------------------------------------

POINTS = {
    "nan": (lambda f, w, b: f([NAN, 0.0, 0.0]), r"the point must be finite; got nan at index 0\."),
    "inf by variable": (
        lambda f, w, b: f({w: [0.0, INF], b: 0.0}),
        r"the value of w must be finite; got inf at index 1\.",
    ),
    "short": (
        lambda f, w, b: f([0.0, 0.0]),
        r"the point must be a flat array of length 3, a mapping from variables to arrays, or one array for each of w, "
        r"b; got shape \(2,\)\.",
    ),
    "batch": (
        lambda f, w, b: f(np.zeros((2, 3))),
        r"the point must be a flat array of length 3, .* got shape \(2, 3\)\.",
    ),
    "scalar": (lambda f, w, b: f(0.0), r"the point must be a flat array of length 3, .* got shape \(\)\."),
    "nothing": (lambda f, w, b: f(), r"the point must be a flat array of length 3, .* got 0 arguments\."),
    "too many": (lambda f, w, b: f([0, 0], 0, 0), r"the point must be a flat array of length 3, .* got 3 arguments\."),
    "missing": (lambda f, w, b: f({w: [0, 0]}), r"the point must give a value to every variable; b missing"),
    "names for variables": (
        lambda f, w, b: f({"w": [0, 0], "b": 0}),
        r"every variable; w, b missing \(its keys are variables\)\.",
    ),
    "shape by variable": (lambda f, w, b: f([0, 0, 0], 0), r"the value of w must have shape \(2,\); got \(3,\)\."),
    "vector for a scalar": (lambda f, w, b: f([0, 0], [0, 0]), r"the value of b must have shape \(\); got \(2,\)\."),
    "column": (lambda f, w, b: f({w: [[0], [0]], b: 0}), r"the value of w must have shape \(2,\); got \(2, 1\)\."),
    "complex": (lambda f, w, b: f([0, 0, 1j]), r"the point must be real numbers; got dtype complex128\."),
    "text": (lambda f, w, b: f("abc"), r"the point must be real numbers; got dtype <U3\."),
    "none": (lambda f, w, b: f(None), r"the point must be real numbers; got dtype object\."),
    "ragged": (lambda f, w, b: f([[0], [0, 0]]), r"the point must be a rectangular array of numbers"),
}


@cases(POINTS)
def test_points(write, message, w, b):
    f = vo.norm1(w) + vo.abs(b)
    with pytest.raises(ValueError, match=message):
        write(f, w, b)
    for expression in (w + b, vo.abs(w + b)):
        with pytest.raises(ValueError, match=message):
            write(expression, w, b)
