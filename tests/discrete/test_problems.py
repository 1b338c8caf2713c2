"""The named problems: their conventions by enumeration, what users hand in, and how runs end."""

import itertools
import math
import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

import varopt as vo
from varopt.certificates import Exhaustive, Relaxation
from varopt.discrete import ising, max_cut, max_sat, qubo, read_cnf, read_gset, read_qubo
from varopt.optimize import minimize_energy
from varopt.solvers.discrete import SEARCHES, Energy, _solve
from varopt.solvers.discrete.proofs import ENTRIES

N = 9


def bits(n):
    return np.array(list(itertools.product([0.0, 1.0], repeat=n)))


def graph(rng, n=N):
    weights = np.triu(rng.integers(-3, 4, (n, n)), 1)
    return (weights + weights.T).astype(float)


def cut_of(weights, x):
    return 0.5 * sum(weights[i, j] * (x[i] != x[j]) for i in range(len(x)) for j in range(len(x)))


@pytest.fixture(params=["exact", "search"])
def wide(request, monkeypatch):
    """By elimination, and by search and relaxation, as large problems are."""
    if request.param == "search":
        monkeypatch.setattr(_solve, "elimination_order", lambda energy, **options: None)
    return request.param


def test_max_cut(rng, wide):
    weights = graph(rng)
    r = max_cut(weights)
    best = max(cut_of(weights, x) for x in bits(N))
    assert r.fun == best == cut_of(weights, r.x)
    assert r.lower <= best <= r.upper
    assert r.status is vo.Status.PROVED
    assert r.success
    assert isinstance(r.certificate, Exhaustive if wide == "exact" else Relaxation)


def test_qubo_both_ways(rng, wide):
    Q, b = rng.standard_normal((N, N)), rng.standard_normal(N)
    values = [x @ Q @ x + b @ x for x in bits(N)]
    low, high = qubo(Q, b), qubo(Q, b, maximize=True)
    assert_allclose([low.fun, high.fun], [min(values), max(values)])
    for r, best in ((low, min(values)), (high, max(values))):
        assert r.lower <= best + 1e-9
        assert r.upper >= best - 1e-9
        assert r.gap <= 1e-8
        assert_allclose(r.x @ Q @ r.x + b @ r.x, r.fun)


def test_ising(rng, wide):
    J, h = rng.integers(-3, 4, (N, N)).astype(float), rng.integers(-2, 3, N).astype(float)
    upper = np.triu(J, 1)
    spins = 2.0 * bits(N) - 1.0
    values = [s @ upper @ s + h @ s for s in spins]
    for couplings in (
        upper,
        upper.T,
        sp.csr_array(upper + upper.T),
        {(i, j): upper[i, j] for i, j in np.argwhere(upper)},
    ):
        r = ising(couplings, h)
        assert r.fun == min(values) == r.x @ upper @ r.x + h @ r.x
        assert set(r.x) <= {-1.0, 1.0}
    assert ising(upper + np.diag(np.ones(N)), h).fun == min(values) + N


def test_max_sat(rng, wide):
    clauses = [
        [int(v) * int(rng.choice([-1, 1])) for v in rng.permutation(6)[: rng.integers(1, 5)] + 1] for _ in range(40)
    ]
    clauses += [[1, -1], [2, 2, -3]]  # always satisfied; a literal twice
    weights = rng.integers(1, 5, len(clauses)).astype(float)

    def satisfied(x, w):
        return sum(wk * any((k > 0) == (x[abs(k) - 1] == 1) for k in c) for c, wk in zip(clauses, w, strict=True))

    for w in (None, weights):
        r = max_sat(clauses, w)
        given = np.ones(len(clauses)) if w is None else w
        best = max(satisfied(x, given) for x in bits(6))
        assert r.fun == best == satisfied(r.x, given)
        assert r.lower <= best <= r.upper


def test_hard_clauses(wide):
    r = max_sat([[1], [-1], [1, 2]], [math.inf, 5.0, 1.0])
    assert r.fun == 1.0  # the hard clause costs the five
    assert r.x[0] == 1.0
    impossible = max_sat([[1], [-1], [2]], [math.inf, math.inf, 3.0])
    assert impossible.upper < 0.0


def test_objectives_of_bits_and_choices(rng, wide):
    x, c = vo.Binary(5, name="x"), vo.Categorical(3, 3, name="c")
    A, B = rng.standard_normal((5, 5)), rng.standard_normal((5, 9))
    f = vo.quad_form(x, A) + vo.sum((B @ c) * x) + 2.0 * x[0] * x[1] * c[0, 1]
    everything = [f({x: a, c: np.eye(3)[list(k)]}) for a in bits(5) for k in itertools.product(range(3), repeat=3)]
    for r, best in ((vo.minimize(f), min(everything)), (vo.maximize(f), max(everything))):
        assert_allclose(r.fun, best)
        assert_allclose(f({x: r[x], c: r[c]}), best)
        assert r.lower <= best + 1e-9
        assert r.upper >= best - 1e-9
        assert_array_equal(r[c].sum(axis=1), 1.0)


def test_colouring_with_choices():
    """A cycle of five nodes has no two-colouring, and a three-colouring."""
    edges = [(k, (k + 1) % 5) for k in range(5)]
    for colours, conflicts in ((2, 1.0), (3, 0.0)):
        c = vo.Categorical(5, colours)
        r = vo.minimize(sum((c[a] @ c[b] for a, b in edges), start=0.0 * vo.sum(c)))
        assert r.fun == conflicts
        assert r.status is vo.Status.PROVED


# -- How runs end -----------------------------------------------------------------------------------------------------


@pytest.fixture
def hard(rng, monkeypatch):
    """A problem that is not proved by itself."""
    monkeypatch.setattr(_solve, "_BRANCHED", 0)
    monkeypatch.setattr(_solve, "elimination_order", lambda energy, **options: None)
    return graph(rng, 26)


def test_target(hard):
    r = max_cut(hard, target=10.0)
    assert r.status is vo.Status.TARGET
    assert r.fun >= 10.0
    assert r.upper >= r.fun
    assert math.isfinite(r.upper)
    low = qubo(hard, target=-5.0)
    assert low.status is vo.Status.TARGET
    assert low.fun <= -5.0


def test_settled_runs_repeat_themselves(hard):
    first, second, other = max_cut(hard, seed=3), max_cut(hard, seed=3), max_cut(hard, seed=4)
    assert first.status is vo.Status.SETTLED
    assert not first.success
    assert_array_equal(first.x, second.x)
    assert_array_equal(first.history["upper"], second.history["upper"])
    assert first.fun == other.fun  # both optimal, most likely by different ways
    assert np.all(np.diff(first.history["lower"]) >= 0.0)
    assert np.all(np.diff(first.history["upper"]) <= 0.0)


def test_time_limit_and_interrupts_return_what_is_known(hard):
    r = max_cut(hard, time_limit=1e-9)
    assert r.status is vo.Status.TIME_LIMIT
    assert r.lower == r.fun == cut_of(hard, r.x)
    assert math.isfinite(r.upper)

    def interrupt(state):
        if math.isfinite(state.upper):
            raise KeyboardInterrupt

    r = max_cut(hard, callback=interrupt)
    assert r.status is vo.Status.INTERRUPTED
    assert r.fun == cut_of(hard, r.x) <= r.upper


def test_progress_is_shown_on_request_only(rng, capsys):
    max_cut(graph(rng))
    assert capsys.readouterr().err == ""
    max_cut(graph(rng), progress=True)
    assert "PROVED: gap 0" in capsys.readouterr().err


def test_start(hard):
    best = max_cut(hard)
    r = max_cut(hard, x0=best.x, target=best.fun)
    assert r.fun == best.fun
    assert r.history["steps"][-1] == 0  # the start itself was good enough


def test_inputs_are_not_changed(rng):
    weights = graph(rng)
    kept = weights.copy()
    start = np.zeros(N)
    max_cut(weights, x0=start)
    assert_array_equal(weights, kept)
    assert_array_equal(start, 0.0)


def test_result_reads_well(rng):
    r = max_cut(graph(rng))
    assert repr(r).startswith("PROVED: No point is better.")
    assert "Exhaustive" in r.explain()


# -- What users hand in -----------------------------------------------------------------------------------------------


def test_networkx(rng):
    networkx = pytest.importorskip("networkx")
    g = networkx.Graph()
    g.add_weighted_edges_from([("a", "b", 2.0), ("b", "c", 3.0), ("a", "c", 1.0)])
    g.add_edge("c", "d")
    r = max_cut(g)
    assert r.fun == 6.0
    sides = dict(zip(g.nodes, r.x, strict=True))
    assert sides["a"] != sides["b"] != sides["c"] != sides["d"]


def test_asymmetric_graphs_are_added_up_and_said(rng):
    weights = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 4.0], [0.0, 0.0, 0.0]])
    with pytest.warns(UserWarning, match=r"graph is not symmetric: .* added up"):
        assert max_cut(weights).fun == 7.0
    assert max_cut(np.triu(weights)).fun == 6.0  # every edge once: nothing to say


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: max_cut([[0.0, np.nan], [np.nan, 0.0]]), r"graph must be finite; got nan at index \(0, 1\)"),
        (lambda: max_cut(sp.csr_array([[0.0, np.inf], [0.0, 0.0]])), "the entries of graph must be finite"),
        (lambda: max_cut(np.zeros((2, 3))), r"graph must be a square matrix; got shape \(2, 3\)"),
        (lambda: max_cut(np.zeros((0, 0))), "graph must not be empty"),
        (lambda: max_cut(np.ones((3, 3)), x0=[0.0, 0.5, 1.0]), "x0 must be made of zeros and ones; got 0.5 at index 1"),
        (lambda: max_cut(np.ones((3, 3)), x0=[0.0, 1.0]), "x0 must have 3 entries"),
        (lambda: max_cut(np.ones((3, 3)), time_limit=-1.0), "time_limit must be a positive number"),
        (lambda: max_cut(np.ones((3, 3)), target="high"), "target must be a number; got 'high'"),
        (lambda: max_cut(np.ones((3, 3)), method="magic"), "method must be one of 'auto', 'free-energy'"),
        (lambda: max_cut(np.ones((3, 3)), seed=-1), "seed must be a non-negative integer"),
        (lambda: ising(np.ones((2, 2)), h=[1.0]), "h must have 2 entries"),
        (lambda: ising(np.ones((2, 2)), x0=[0.0, 1.0]), "x0 must be made of the spins -1 and 1; got 0"),
        (lambda: qubo(np.ones((2, 2)), linear=[np.nan, 0.0]), "linear must be finite"),
        (lambda: max_sat([[1, 2], []]), "clause 2 is empty"),
        (lambda: max_sat([[1, 0]]), "clause 1 has the literal 0"),
        (lambda: max_sat([[1.5]]), "clause 1 must be a sequence of whole numbers"),
        (lambda: max_sat([]), "clauses must not be empty"),
        (lambda: max_sat([[1]], [1.0, 2.0]), "weights must have one entry for each of 1 clauses"),
        (lambda: max_sat([[1]], [-1.0]), "weights must be >= 0"),
        (lambda: vo.minimize(vo.sum(vo.Binary(2)), x0=[0.0, 2.0]), "x0 must be made of zeros and ones; got 2"),
        (lambda: vo.minimize(vo.sum(vo.Categorical(2, 2)), x0=[1.0, 1.0, 1.0, 0.0]), "row 0 has 2"),
        (lambda: vo.minimize(vo.sum(vo.Binary(2)), budget=5), "has no option 'budget' for this objective"),
        (lambda: vo.minimize(vo.sum(vo.Binary(2)), tol=-1.0), "tol must be a number"),
    ],
)
def test_bad_input_gets_its_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


# -- Files ------------------------------------------------------------------------------------------------------------


def written(folder, text):
    path = folder / "problem.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_read_gset(tmp_path):
    W = read_gset(written(tmp_path, "3 2\n1 2 5\n\n2 3\n"))
    assert_array_equal(W.toarray(), [[0, 5, 0], [5, 0, 1], [0, 1, 0]])
    assert max_cut(W).fun == 6.0


def test_read_qubo(tmp_path):
    Q = read_qubo(written(tmp_path, "c comment\np qubo 0 3 2 1\n0 0 -1\n1 1 2.5\n0 2 4\n"))
    assert_array_equal(Q.toarray(), [[-1, 0, 4], [0, 2.5, 0], [0, 0, 0]])


def test_read_cnf(tmp_path):
    plain = read_cnf(written(tmp_path, "c x\np cnf 3 2\n1 -2 0 3\n-1 0\n%\n0\n"))
    assert plain.clauses == [[1, -2], [3, -1]]
    assert plain.weights is None
    weighted = read_cnf(written(tmp_path, "p wcnf 2 2 10\n10 1 2 0\n3 -1 0\n"))
    assert weighted.clauses == [[1, 2], [-1]]
    assert_array_equal(weighted.weights, [math.inf, 3.0])
    recent = read_cnf(written(tmp_path, "h 1 2 0\n3 -1 0\n"))
    assert_array_equal(recent.weights, [math.inf, 3.0])
    assert max_sat(*recent).fun == 3.0


@pytest.mark.parametrize(
    ("reader", "text", "sentence"),
    [
        (read_gset, "3 2\n1 2 5\n", "line 2: the first line announces 2 edges, and the file has 1"),
        (read_gset, "3 1\n1 4 5\n", "line 2: a node must be from 1 to 3; got 4"),
        (read_gset, "3 1\n1 x 5\n", "line 2: a node must be a whole number; got 'x'"),
        (read_gset, "3 1\n1 2 nan\n", "line 2: a weight must be a finite number; got 'nan'"),
        (read_gset, "", r"^problem\.txt: the file is empty"),
        (read_qubo, "0 0 1\n", "line 1: the line 'p qubo ...' must come before"),
        (read_qubo, "p qubo 0 2 1 0\n0 2 1\n", "line 2: a node must be from 0 to 1; got 2"),
        (read_cnf, "p cnf 2 1\n0\n", "line 2: clause 1 is empty"),
        (read_cnf, "p cnf 2 1\n1 3 0\n", "line 2: a literal must be from 1 to 2 in size; got 3"),
        (read_cnf, "p cnf 2 1\n1 2\n", "line 2: clause 1 does not end with 0"),
        (read_cnf, "p cnf 2 2\n1 2 0\n", "line 2: the problem line announces 2 clauses, and the file has 1"),
        (read_cnf, "p dnf 2 1\n", "line 1: the problem line must be"),
    ],
)
def test_unreadable_files_name_the_line(reader, text, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        reader(written(tmp_path, text))
    with pytest.raises(ValueError, match="path must name a file"):
        reader(tmp_path / "absent")


# -- Proven instances -------------------------------------------------------------------------------------------------


def test_proven_instances(shared_data):
    r = max_cut(read_gset(shared_data / "rudy" / "pm1d_80.0"), target=227.0)
    assert r.fun == 227.0 <= r.upper
    r = max_sat(*read_cnf(shared_data / "maxsat" / "s2v120c1200-1.cnf"), target=1200 - 161)
    assert r.fun == 1200 - 161 <= r.upper
    r = qubo(read_qubo(shared_data / "bqp" / "bqp50_1.qubo"), maximize=True)
    assert r.fun == 2098.0 == r.upper
    r = max_cut(read_gset(shared_data / "gset" / "G11.txt"))  # a narrow torus: proved by elimination
    assert r.fun == 564.0 == r.upper
    assert isinstance(r.certificate, Exhaustive)


@pytest.mark.parametrize("problem", [qubo, ising, max_cut])
def test_dense_and_sparse_input_give_one_answer(problem, rng):
    Q = rng.integers(-9, 10, (25, 25)) / 2.0
    for matrix in (Q + Q.T, np.triu(Q), np.where(Q > 3.0, Q, 0.0)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that the last is not symmetric
            dense, sparse = problem(matrix), problem(sp.csr_array(matrix))
        assert_allclose([dense.fun, dense.gap], [sparse.fun, sparse.gap])
        assert_array_equal(dense.x, sparse.x)


def test_the_time_of_what_came_before_counts():
    energy = Energy.quadratic_form(-np.ones((30, 30)))
    r = minimize_energy(energy, time_limit=1e5, started=time.perf_counter() - 1e6)
    assert r.status is vo.Status.TIME_LIMIT
    assert r.time > 1e6


def test_a_dense_problem_with_more_neighbours_than_a_float_has_exponents(rng):
    n = 1100
    Q = np.ones((n, n))
    Q[0, 1:] = Q[1:, 0] = 0.0  # one site with few: the order of elimination has to look further
    r = qubo(Q, time_limit=1.0, seed=0)
    assert (r.fun, r.lower <= 0.0) == (0.0, True)
    dense = qubo(rng.standard_normal((n, n)), time_limit=1.0, seed=0)
    assert dense.lower <= dense.fun < 0.0


def test_narrow_graphs_are_proved_at_any_length(rng):
    n = 3000
    diagonals = [rng.standard_normal(n - 1), rng.standard_normal(n - 2)]
    weights = sp.diags_array(diagonals, offsets=[1, 2])
    r = max_cut(weights)
    assert r.status is vo.Status.PROVED
    assert_allclose(r.fun, _strip_optimum(diagonals))
    assert ENTRIES >= 8


def _strip_optimum(diagonals):
    """Dynamic programming over the last two sides, written out."""
    one, two = diagonals
    best = {(a, b): one[0] * (a != b) for a in (0, 1) for b in (0, 1)}
    for k in range(2, one.size + 1):
        best = {
            (b, c): max(best[a, b] + one[k - 1] * (b != c) + two[k - 2] * (a != c) for a in (0, 1))
            for b in (0, 1)
            for c in (0, 1)
        }
    return max(best.values())


def test_loops_in_single_precision_are_added_up_in_double(rng):
    J = np.zeros((2000, 2000), dtype=np.float32)
    np.fill_diagonal(J, rng.uniform(0.0, 1e3, 2000))
    J[0, 1] = 1.0
    r = ising(J)
    assert_allclose(r.fun, math.fsum(np.diagonal(J).astype(float)) - 1.0, rtol=1e-14)


@pytest.mark.parametrize("unit", [1e-20, 1e20])
def test_large_and_small_coefficients(unit, rng):
    Q = rng.standard_normal((30, 30))
    one, other = qubo(Q), qubo(unit * Q)
    assert_allclose(other.fun, unit * one.fun, rtol=1e-12)
    assert other.lower <= unit * one.upper * (1.0 - 1e-12)


@pytest.mark.parametrize("unit", [1e-150, 1e-40, 1e40, 1e150])
def test_coefficients_beyond_single_precision_are_refused(unit, rng):
    with pytest.raises(ValueError, match="coefficients must add up to between 1e-30 and 1e\\+30"):
        qubo(unit * rng.standard_normal((30, 30)))
    assert qubo(np.zeros((30, 30))).fun == 0.0


# -- What ran ---------------------------------------------------------------------------------------------------------


def strip(rng, length=12):
    """A narrow graph, which elimination solves at once."""
    matrix = np.zeros((2 * length, 2 * length))
    for k in range(length - 1):
        for a, b in ((2 * k, 2 * k + 1), (2 * k, 2 * k + 2), (2 * k + 1, 2 * k + 3)):
            matrix[a, b] = rng.choice([-1.0, 1.0])
    return matrix


def test_method_is_elimination_where_nothing_else_ran(rng):
    r = qubo(strip(rng))
    assert (r.status, r.method, r.nit) == (vo.Status.PROVED, "elimination", 24)
    assert "elimination, 24 steps" in repr(r)
    assert isinstance(r.certificate, Exhaustive)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_that_is_named_runs(name, rng, monkeypatch):
    ran = []
    search = SEARCHES[name]
    monkeypatch.setitem(SEARCHES, name, lambda *a, **k: (ran.append(f.sweeps) or f for f in search(*a, **k)))
    r = qubo(strip(rng), method=name)
    assert ran[-1] > 0  # it swept, and did more than begin
    assert r.method == f"{name} > elimination"
    assert r.status is vo.Status.PROVED


def test_method_tells_the_chain_of_a_search(rng, monkeypatch):
    dense = np.triu(rng.integers(-3, 4, (40, 40)), 1).astype(float)
    seen = []
    for name in ("semidefinite_bound", "branch_and_bound"):
        function = getattr(_solve, name)
        monkeypatch.setattr(_solve, name, lambda *a, n=name, f=function, **k: seen.append(n) or f(*a, **k))
    r = qubo(dense)
    stages = {"semidefinite_bound": "semidefinite", "branch_and_bound": "branch-and-bound"}
    assert r.method == " > ".join(["free-energy", *(stages[name] for name in seen)])
    assert "semidefinite_bound" in seen


def test_method_of_a_start_that_is_proved_or_wanted():
    Q = np.diag([-1.0, -1.0, 2.0])
    assert qubo(Q, x0=[1.0, 1.0, 0.0]).method == "termwise"
    wanted = qubo(Q + np.triu(np.ones((3, 3)), 1), x0=[1.0, 0.0, 0.0], target=-1.0)
    assert wanted.status in (vo.Status.TARGET, vo.Status.PROVED)
    assert "free-energy" not in wanted.method


def test_wishes_with_hard_clauses_are_the_same_as_choices_with_constraints(rng):
    """As the guide says: exams in slots, where those that clash are apart, and each has a slot that it wants."""
    exams, slots = 9, 3
    wish, weight = rng.integers(slots, size=exams), rng.integers(1, 20, exams)
    pairs = [(i, j) for i in range(exams) for j in range(i) if rng.random() < 0.3]
    at = np.arange(1, exams * slots + 1).reshape(exams, slots)
    hard = [row.tolist() for row in at]
    hard += [[-int(row[a]), -int(row[b])] for row in at for a, b in itertools.combinations(range(slots), 2)]
    hard += [[-int(at[i, t]), -int(at[j, t])] for i, j in pairs for t in range(slots)]
    soft = [[int(at[i, wish[i]])] for i in range(exams)]
    clauses = max_sat(hard + soft, [math.inf] * len(hard) + weight.astype(float).tolist())
    x = vo.Categorical(exams, slots)
    wanted = weight[:, None] * np.eye(slots)[wish]
    choices = vo.maximize(vo.sum(wanted * x), subject_to=[x[i] + x[j] <= 1 for i, j in pairs])
    assert clauses.status is choices.status is vo.Status.PROVED
    assert clauses.fun == pytest.approx(choices.fun)
    assert 0.0 < choices.fun < weight.sum()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_limit_too_short_for_elimination_still_has_a_good_cut(rng, monkeypatch, stopped):
    """A torus of 12 x 9 needs tables of 2^19 entries each: where they cannot be made in time there is a search, and a
    point even where they are begun and stopped."""
    nodes = np.arange(108).reshape(12, 9)
    ends = np.stack([np.concatenate([nodes, nodes]), np.concatenate([np.roll(nodes, 1, 0), np.roll(nodes, 1, 1)])])
    rows, columns = ends.reshape(2, -1)
    half = sp.csr_array((rng.choice([-1.0, 1.0], rows.size), (rows, columns)), shape=(108, 108))
    graph = half + half.T
    if stopped:

        def eliminate(energy, order, check):
            while True:
                check()

        monkeypatch.setattr(_solve, "eliminate", eliminate)
    r = max_cut(graph, time_limit=0.3)
    assert r.fun == cut_of(graph.toarray(), r.x)
    assert r.fun > 0.5 * np.abs(half.data)[half.data > 0].sum()
