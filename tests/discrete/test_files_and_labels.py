"""Labels, pools, files and their writers: what goes in under a name comes out under it."""

import bz2
import contextlib
import gzip
import json
import lzma
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

import varopt as vo
from varopt.discrete import (
    ising,
    max_cut,
    max_sat,
    qubo,
    read_cnf,
    read_dimacs,
    read_edges,
    read_gset,
    read_qubo,
    write_cnf,
    write_gset,
    write_qubo,
)

# -- Labels -----------------------------------------------------------------------------------------------------------


def test_a_cut_answers_with_its_nodes():
    networkx = pytest.importorskip("networkx")
    graph = networkx.Graph()
    graph.add_edge("a", "b", length=3.0)
    graph.add_edge("b", "c", length=2.0)
    graph.add_edge("a", "c", length=1.0)
    r = max_cut(graph, weight="length")
    assert r.fun == 5.0
    assert {frozenset(side) for side in r.partition} == {frozenset("b"), frozenset("ac")}
    assert max_cut(graph).fun == 2.0
    assert r.sample["a"] == r.sample["c"] != r.sample["b"]
    graph.add_edge("c", "d", length=None)
    with pytest.raises(ValueError, match="edge from 'c' to 'd' has None"):
        max_cut(graph, weight="length")


def test_a_cut_is_drawn_on_its_graph():
    networkx = pytest.importorskip("networkx")
    plt = pytest.importorskip("matplotlib.pyplot")
    axes = max_cut(networkx.petersen_graph()).draw()
    assert "cut 12, no cut is larger" in axes.get_title()
    mine = plt.subplots()[1]
    max_cut(networkx.path_graph(3)).draw(ax=mine)
    assert "cut 2" in mine.get_title()
    axes = max_cut(np.ones((12, 12))).plot()
    assert [line.get_label() for line in axes.lines] == ["upper", "lower"]
    assert axes.lines[0].get_ydata()[-1] == axes.lines[1].get_ydata()[-1] == 36.0
    plt.close("all")
    with pytest.raises(ValueError, match="draw needs the result of max_cut of a networkx graph"):
        max_cut(np.ones((3, 3))).draw()


def test_mappings_of_labels_and_models():
    r = qubo({("x", "x"): -1.0, ("y", "y"): -1.0, ("x", "y"): 3.0})
    assert (r.fun, r.labels, sum(r.sample.values())) == (-1.0, ("x", "y"), 1)
    assert ising({("u", "v"): 1.0}).sample in ({"u": 1, "v": -1}, {"u": -1, "v": 1})
    # A spin may have a field and no coupling; by number too, and beside a matrix.
    r = ising({("u", "v"): 1.0}, {"u": 0.5, "alone": -2.0})
    assert (r.fun, r.sample) == (-3.5, {"u": -1, "v": 1, "alone": 1})
    assert ising({(0, 1): 1.0}, {3: 1.0}).fun == -2.0
    assert ising(np.array([[0.0, 1.0], [1.0, 0.0]]), {0: 1.0}).sample == {0: -1, 1: 1}
    assert ising({}, {"one": 1.0}).sample == {"one": -1}
    for J, h, message in (
        ({("u", "v"): 1.0}, {"u": "much"}, "h must map spins to numbers; got a value that is none"),
        ({("u", "v"): 1.0}, {1.5: 1.0}, "h must map spins to numbers; 1.5 is none of the 2"),
        (np.eye(2), {5: 1.0}, "h must map spins to numbers; 5 is none of the 2"),
        ({("u", "v"): 1.0}, {"u": np.inf}, "the values of h must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            ising(J, h)
    dimod = pytest.importorskip("dimod")
    model = dimod.BinaryQuadraticModel({"a": 1.0}, {("a", "b"): -2.0}, 0.5, "SPIN")
    r = qubo(model)
    assert_allclose(r.fun, dimod.ExactSolver().sample(model).first.energy)
    assert r.sample == {"a": 0, "b": 0}


@pytest.mark.parametrize(
    ("Q", "message"),
    [
        ({(0, 1.7): -1.0}, "1.7 in the key"),
        ({(0,): -1.0}, "must map pairs"),
        ({0: -1.0}, "must map pairs"),
        ({"ab": -1.0}, "must map pairs"),
        ({(0, -1): 1.0}, "indices >= 0"),
        ({(0, 1): "x"}, "a value that is none"),
        ({(0, 1): np.nan}, "finite"),
        ({(0, 1): "3"}, "a value that is none"),
        ({(0, 1): 10**400}, "a value that is none"),
        ({(0, 10**9): 1.0}, "indices below 10000000, as places in x; got 1000000000"),
        ({(0, 10**30): 1.0}, "indices below 10000000"),
    ],
)
def test_bad_keys_are_named(Q, message):
    with pytest.raises(ValueError, match=message):
        qubo(Q)


# -- Several points ---------------------------------------------------------------------------------------------------


def test_the_pool_has_different_points_best_first(rng):
    Q = rng.integers(-9, 10, (20, 20)).astype(float)
    r = qubo(Q, pool=6)
    assert r.pool.x.shape == (6, 20)
    assert len(r.pool) == 6
    assert len({x.tobytes() for x in r.pool.x}) == 6
    assert_allclose(r.pool.fun, [x @ Q @ x for x in r.pool.x])
    assert np.all(np.diff(r.pool.fun) >= 0)
    assert r.pool.fun[0] == r.fun
    assert_array_equal(r.pool.distance, [[int(np.sum(a != b)) for b in r.pool.x] for a in r.pool.x])
    ring = np.roll(np.eye(9), 1, axis=1)
    cuts = max_cut(sp.csr_array(ring + ring.T), pool=3)  # many best cuts
    assert cuts.pool.fun[0] == cuts.fun == 8.0
    assert np.all(np.diff(cuts.pool.fun) <= 0)
    assert cuts.pool.distance[0, 1] not in (0, 9)  # a cut and its mirror image are one
    with pytest.raises(ValueError, match="pool must be a whole number >= 1"):
        qubo(Q, pool=0)


def test_reads_of_dimod_are_different_rows(rng):
    pytest.importorskip("dimod")
    from varopt.integrations.dimod import VaroptSampler

    found = VaroptSampler().sample_qubo(
        {(i, j): float(rng.integers(-9, 10)) for i in range(12) for j in range(i, 12)}, num_reads=5
    )
    assert len({tuple(row) for row in found.record.sample.tolist()}) == 5
    assert found.first.energy == found.info["upper"]


def test_results_are_written_as_json(rng):
    record = json.loads(qubo(rng.integers(-3, 4, (6, 6)).astype(float)).to_json())
    assert record["status"] == "PROVED"
    assert record["lower"] == record["value"] == record["upper"]
    assert len(record["x"]) == 6


# -- Files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_files(pack, tmp_path):
    path = tmp_path / "graph.any"
    path.write_bytes(pack(b"3 2\n1 2 4\n2 3 -1\n"))
    assert_array_equal(read_gset(path).toarray(), [[0, 4, 0], [4, 0, -1], [0, -1, 0]])
    path.write_bytes(pack(b"3 2\n1 2 4\n2 3 -1\n" * 50)[:-9])
    with pytest.raises(ValueError, match=r"graph\.any, line"):
        read_gset(path)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_files_with_a_bit_turned(pack, tmp_path):
    """Each bit of the file: it is read, or what is wrong is told with the name of the file."""
    path, good = tmp_path / "graph.any", pack(b"3 2\n1 2 4\n2 3 -1\n")
    damaged = 0
    for bit in range(0, 8 * len(good), 3):
        wrong = bytearray(good)
        wrong[bit // 8] ^= 1 << bit % 8
        path.write_bytes(wrong)
        with contextlib.suppress(ValueError):
            read_gset(path)
            continue
        with pytest.raises(ValueError, match=r"^graph\.any") as told:
            read_gset(path)
        damaged += "compressed file is damaged" in str(told.value)
    assert damaged > len(good) / 2


@pytest.mark.parametrize(
    ("text", "read", "message"),
    [
        ("p edge 5 1\ne 1 5\np edge 3 1\n", read_dimacs, "line 3: this is a second problem line"),
        ("p qubo 0 5 1 0\n4 4 1\np qubo 0 3 1 0\n", read_qubo, "line 3: this is a second problem line"),
        ("p cnf 5 1\n5 0\np cnf 3 1\n", read_cnf, "line 3: this is a second problem line"),
        (
            "p edge 3 2\ne 1 2 3\ne 2 1 4\n",
            read_dimacs,
            "line 3: the edge from 1 to 2 has the weight 3 in a line above",
        ),
        ("", read_gset, r"^file: the file is empty"),
        ("2 1\n1 2 " + 5000 * "x", read_gset, r"finite number; got 'x{12}\.\.\.x{13}'\.$"),
    ],
)
def test_what_is_said_twice_is_refused_and_messages_are_short(text, read, message, tmp_path):
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read(path)


def test_weights_that_overflow_are_told_of_in_one_sentence(tmp_path):
    path = tmp_path / "file"
    path.write_text("2 1\n1 2 1e308\n")
    with warnings.catch_warnings(action="error"), pytest.raises(ValueError, match="Give the problem in other units"):
        max_cut(read_gset(path))


def test_dimacs_graphs_and_lists_of_edges(tmp_path):
    path = tmp_path / "g.col"
    path.write_text("c a triangle, one edge both ways\np edge 4 4\ne 1 2\ne 2 1\ne 2 3\ne 1 3\n")
    assert max_cut(read_dimacs(path)).fun == 2.0
    assert read_dimacs(path).shape == (4, 4)
    clique = tmp_path / "k4.clq"
    clique.write_text("p col 4 6\n" + "".join(f"e {i} {j}\n" for i in range(1, 5) for j in range(i + 1, 5)))
    assert max_cut(read_dimacs(clique)).fun == 4.0
    path.write_text("# from zero\n0 1\n1,2,2.5\n")
    assert_array_equal(read_edges(path).toarray(), [[0, 1, 0], [1, 0, 2.5], [0, 2.5, 0]])
    path.write_text("1 2\n")
    assert read_edges(path, first=1).shape == (2, 2)
    path.write_text("p edge 3 1\ne 1 9\n")
    with pytest.raises(ValueError, match="a node must be from 1 to 3; got 9"):
        read_dimacs(path)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("2000000000 1\n1 2 1\n", read_gset),
        ("p edge 2000000000 1\ne 1 2\n", read_dimacs),
        ("p qubo 0 2000000000 0 1\n0 1 1\n", read_qubo),
        ("p cnf 2000000000 1\n1 0\n", read_cnf),
    ],
)
def test_headers_that_claim_too_much(text, read, tmp_path):
    path = tmp_path / "huge"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"announces 2000000000 (nodes|variables)"):
        read(path)


@pytest.mark.parametrize(
    ("clauses", "options", "message"),
    [
        ([[1, 10**9]], {}, "clauses must have up to 10000000 variables; got 1000000000"),
        ([[1]], {"variables": 10**12}, "clauses must have up to 10000000 variables"),
        ([[1]], {"weights": [10**400]}, "weights must be numbers"),
        (5, {}, "clauses must be sequences of whole numbers; got 5"),
    ],
)
def test_clauses_that_claim_too_much_or_are_none(clauses, options, message):
    with pytest.raises(ValueError, match=message):
        max_sat(clauses, **options)


@pytest.mark.parametrize("weight", ["3", 10**400, None])
def test_weights_of_edges_are_numbers(weight):
    nx = pytest.importorskip("networkx")
    with pytest.raises(ValueError, match="graph must have numbers for weights; the edge from 'a' to 'b'"):
        max_cut(nx.Graph([("a", "b", {"weight": weight})]))


def test_a_mark_of_the_order_of_bytes_is_skipped(tmp_path):
    path = tmp_path / "marked"
    path.write_bytes(b"\xef\xbb\xbf2 1\r\n1 2 3\r\n")
    assert read_gset(path)[0, 1] == 3.0


@pytest.mark.parametrize(
    ("write", "given", "message"),
    [
        (write_gset, np.ones((2, 3)), "graph must be a square matrix"),
        (write_gset, [[0.0, np.nan], [np.nan, 0.0]], "graph must be finite"),
        (write_qubo, "Q", "Q must be real numbers"),
        (write_cnf, [["a"]], "clause 1 must be a sequence of whole numbers"),
        (write_cnf, [[]], "clause 1 is empty"),
        (write_cnf, [[1, 0]], "clause 1 has the literal 0"),
    ],
)
def test_what_cannot_be_written_is_told(write, given, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        write(tmp_path / "file", given)
    assert not (tmp_path / "file").exists()


def test_writers_are_read_back(tmp_path, rng):
    weights = np.triu(rng.integers(-2, 3, (6, 6)) * 0.5, 1)
    write_gset(tmp_path / "g", sp.csr_array(weights + weights.T))
    assert_array_equal(read_gset(tmp_path / "g").toarray(), weights + weights.T)
    Q = rng.standard_normal((5, 5))
    write_qubo(tmp_path / "q", Q)
    x = rng.integers(2, size=5)
    assert_allclose(x @ read_qubo(tmp_path / "q") @ x, x @ Q @ x)
    clauses, given = [[1, -2], [2, 3]], [2.5, np.inf]
    write_cnf(tmp_path / "w", clauses, given, 7)
    formula = read_cnf(tmp_path / "w")
    assert (formula.clauses, formula.variables) == (clauses, 7)
    assert_array_equal(formula.weights, given)
    write_cnf(tmp_path / "c", clauses)
    assert read_cnf(tmp_path / "c").weights is None


@pytest.mark.parametrize("weight", [2.0**53, 1e17, 1e300])
def test_soft_clauses_stay_soft_however_heavy(weight, tmp_path):
    """In double precision they weigh as much as they and one together, which marks hard clauses in the file."""
    write_cnf(tmp_path / "w", [[1, -2], [2]], [weight, np.inf])
    assert read_cnf(tmp_path / "w").weights.tolist() == [weight, np.inf]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": [np.nan]}, "weights must be >= 0"),
        ({"weights": [-np.inf]}, "weights must be >= 0"),
        ({"weights": [1.0, 2.0]}, "weights must have one entry for each of 1 clauses"),
        ({"variables": 1}, "variables must be a whole number >= 2"),
    ],
)
def test_clauses_that_would_be_read_as_others_are_not_written(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        write_cnf(tmp_path / "w", [[1, -2]], **options)
    assert not (tmp_path / "w").exists()


def test_unused_variables_keep_their_place(tmp_path):
    path = tmp_path / "f.cnf"
    path.write_text("p cnf 5 1\n1 -2 0\n")
    r = max_sat(*read_cnf(path))
    assert r.x.size == 5
    assert r.status is vo.Status.PROVED
    with pytest.raises(ValueError, match="variables must be a whole number >= 2"):
        max_sat([[1, -2]], variables=1)


@pytest.mark.parametrize("tol", [-1.0, np.nan, np.inf, "small"])
def test_bad_tolerances_are_refused(tol):
    with pytest.raises(ValueError, match="tol must be a number >= 0"):
        qubo(np.eye(3), tol=tol)


def test_the_pool_of_cuts_knows_that_complements_are_equal():
    """Distances are those of the nearer of a cut and its complement, and the points are turned to the best one."""
    nx = pytest.importorskip("networkx")
    pool = max_cut(nx.karate_club_graph(), pool=6).pool
    flipped = (pool.x[:, None] != pool.x[None]).sum(axis=2)
    assert np.all(pool.distance == np.minimum(flipped, 34 - flipped))
    assert np.all(pool.distance[0] == flipped[0])
    assert np.all(pool.distance <= 17)
    assert np.all(pool.distance[~np.eye(6, dtype=bool)] > 0)


@pytest.mark.parametrize("solve", [max_cut, qubo, ising])
def test_unknown_options_are_named(solve):
    with pytest.raises(TypeError, match="'bogus' is no option; there are x0, progress"):
        solve(np.array([[0.0, 1.0], [1.0, 0.0]]), bogus=3)


def test_a_callback_is_a_function():
    with pytest.raises(ValueError, match="callback must be a function of the state; got 3"):
        max_cut(np.ones((2, 2)), callback=3)


def test_a_model_without_variables_is_refused():
    dimod = pytest.importorskip("dimod")
    with pytest.raises(ValueError, match="Q must not be empty"):
        qubo(dimod.BinaryQuadraticModel("BINARY"))


def test_nothing_to_cut_is_between_zero_and_zero():
    r = max_cut(np.zeros((3, 3)))
    assert [str(end) for end in (r.fun, r.lower, r.upper)] == ["0.0"] * 3
