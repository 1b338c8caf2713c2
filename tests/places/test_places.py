"""Files, chunks and Parquet: what is read, and what bad input gets."""

import numpy as np
import pytest

import varopt as vo
from varopt.places import at, joined, table_of

ROWS = 3000


@pytest.fixture
def data(rng):
    X = rng.standard_normal((ROWS, 3))
    return X, X @ [1.0, 0.0, -1.0] + rng.standard_normal(ROWS), rng.random(ROWS)


def chunks_of(*arrays, size=700):
    return lambda: (tuple(a[i : i + size] for a in arrays) for i in range(0, len(arrays[0]), size))


def save(path, X, y=None, weight=None, **columns):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    named = {f"x{j}": X[:, j] for j in range(X.shape[1])}
    named |= {name: array for name, array in (("y", y), ("weight", weight)) if array is not None}
    pq.write_table(pa.table({**named, **columns}), path, row_group_size=500)


def whole(table):
    columns = [c for c in (table.X, table.y, table.weight) if c is not None]
    part = joined([read() for read in table_of(columns).parts(columns, 512)])
    return [at(c, part) for c in columns]


def stored_as(kind, data, folder):
    X, y, weight = data
    if kind == "npy":
        for name, array in zip("Xyw", data, strict=True):
            np.save(folder / f"{name}.npy", array)
        return vo.rows(folder / "X.npy", y=folder / "y.npy", weight=folder / "w.npy")
    if kind == "iterable":
        return vo.rows(chunks_of(*data))
    for i, part in enumerate(np.split(np.arange(ROWS), [1000, 1700])):
        save(folder / f"{i}.parquet", X[part], y[part], weight[part])
    source = {"folder": str(folder), "pattern": str(folder / "*.parquet"), "list": sorted(folder.glob("*.parquet"))}
    return vo.rows(source[kind], y="y", weight="weight")


KINDS = ["npy", "iterable", "folder", "pattern", "list"]


@pytest.mark.parametrize("kind", KINDS)
def test_all_rows_are_read_in_order(kind, data, tmp_path):
    table = stored_as(kind, data, tmp_path)
    assert table.count == ROWS
    for read, given in zip(whole(table), data, strict=True):
        assert np.array_equal(read, given)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_has_rows_from_everywhere_and_keeps_them_together(kind, data, tmp_path, rng):
    table = stored_as(kind, data, tmp_path)
    columns = [table.X, table.y, table.weight]
    part = table_of(columns).sample(columns, 600, rng)
    assert 400 <= part.count <= ROWS
    for column, given in zip(columns, data, strict=True):
        assert np.array_equal(at(column, part), given[part.index])
    assert np.histogram(part.index, 5, (0, ROWS))[0].min() > 0
    assert np.all(np.diff(part.index) > 0)


@pytest.mark.parametrize("kind", ["iterable", "folder"])
def test_chunks_are_minimised_like_memory(kind, data, tmp_path, monkeypatch):
    monkeypatch.setattr("varopt.optimize.anywhere._engine._ALL", 0)
    X, y, c = data
    w = vo.Variable(3)
    table = stored_as(kind, data, tmp_path)
    far = vo.minimize(vo.sum(table.weight * vo.pinball(table.y - table.X @ w, 0.6)), memory="200kB")
    near = vo.minimize(vo.sum(c * vo.pinball(y - X @ w, 0.6)))
    assert far.status is vo.Status.OPTIMAL
    assert far.method == "freezing"
    assert far.passes >= 3  # one to count or to sample
    assert far.fun == pytest.approx(near.fun, rel=1e-12)


def test_a_generator_is_refused():
    with pytest.raises(ValueError, match="must start again each time"):
        vo.rows((np.ones((2, 1)), np.ones(2)) for _ in range(3))


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([(np.ones((2, 2)), np.ones(2)), (np.ones((2, 3)), np.ones(2))], "chunk 1 must have 2 columns"),
        ([(np.ones((2, 2)), np.ones(3))], "y of chunk 0 must have one entry for each of 2 rows"),
        ([np.ones((2, 2))], "chunk 0 must be"),
        ([(np.array([["a"]]), np.ones(1))], "real numbers"),
        ([], "must not be empty"),
    ],
)
def test_bad_chunks_get_a_sentence(chunks, message):
    with pytest.raises(ValueError, match=message):
        vo.rows(chunks)


def test_chunks_that_change_get_a_sentence(data, monkeypatch):
    monkeypatch.setattr("varopt.optimize.anywhere._engine._ALL", 0)
    X, y, _ = data
    lengths = iter([ROWS, 2000, 2000, 2000])

    def chunks():
        n = next(lengths)
        return chunks_of(X[:n], y[:n])()

    w, table = vo.Variable(3), vo.rows(chunks)
    with pytest.raises(ValueError, match="fewer rows than when they were first read"):
        vo.minimize(vo.sum(vo.abs(table.y - table.X @ w)), memory="200kB")


def test_missing_values_are_named_with_their_file(data, tmp_path):
    X, y, _ = data
    save(tmp_path / "a.parquet", X[:1000], y[:1000])
    bad = y[1000:].copy()
    bad[41] = np.nan
    save(tmp_path / "b.parquet", X[1000:], bad)
    table, w = vo.rows(tmp_path, y="y"), vo.Variable(3)
    with pytest.raises(ValueError, match=r"y must be finite; got nan in row 41 of .*b.parquet"):
        vo.minimize(vo.sum(vo.abs(table.y - table.X @ w)))


def test_missing_values_in_a_matrix_on_disk(data, tmp_path, monkeypatch):
    monkeypatch.setattr("varopt.optimize.anywhere._engine._ALL", 0)
    X, y, _ = data
    X[2222, 1] = np.inf
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    table, w = vo.rows(tmp_path / "X.npy", y=tmp_path / "y.npy"), vo.Variable(3)
    with pytest.raises(ValueError, match=r"X must be finite; got inf in row 2222 of .*npy, column 1"):
        vo.minimize(vo.sum(vo.abs(table.y - table.X @ w)), memory="200kB")


def test_negative_weights_get_a_sentence(data, tmp_path):
    X, y, c = data
    c[77] = -1.0
    table, w = vo.rows(chunks_of(X, y, c)), vo.Variable(3)
    with pytest.raises(ValueError, match=r"weights must not be negative; got -1 in row 77"):
        vo.minimize(vo.sum(table.weight * vo.abs(table.y - table.X @ w)))


def test_columns_that_are_absent_or_not_numbers(data, tmp_path):
    X, y, _ = data
    save(tmp_path / "a.parquet", X, y, name=["a"] * ROWS)
    with pytest.raises(ValueError, match="no column 'target'; they have 'x0'"):
        vo.rows(tmp_path / "a.parquet", y="target")
    with pytest.raises(ValueError, match="column 'name' must be numeric"):
        vo.rows(tmp_path / "a.parquet", y="y")
    assert vo.rows(tmp_path / "a.parquet", X=["x0", "x2"], y="y").X.shape == (ROWS, 2)
    with pytest.raises(ValueError, match="no file"):
        vo.rows(tmp_path / "none.parquet", y="y")


def test_a_file_that_changes_or_ends_on_the_way(data, tmp_path):
    X, y, _ = data
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    table, w = vo.rows(tmp_path / "X.npy", y=tmp_path / "y.npy"), vo.Variable(3)
    f = vo.sum(vo.abs(table.y - table.X @ w))
    with (tmp_path / "X.npy").open("r+b") as file:
        file.truncate(5000)
    with pytest.raises(ValueError, match="was changed while it was read"):
        vo.minimize(f)


def test_lengths_and_places_must_agree(data, tmp_path):
    X, y, _ = data
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y[:-1])
    with pytest.raises(ValueError, match="one number of rows; got 2999 and 3000"):
        vo.rows(tmp_path / "X.npy", y=tmp_path / "y.npy")
    np.save(tmp_path / "F.npy", np.asfortranarray(X))
    with pytest.raises(ValueError, match="order 'C'"):
        vo.rows(tmp_path / "F.npy")
    w, chunks = vo.Variable(3), vo.rows(chunks_of(X, y))
    file = vo.rows(tmp_path / "X.npy")
    with pytest.raises(ValueError, match="must be read together"):
        vo.minimize(vo.sum(vo.abs(chunks.y - file.X @ w)))
    with pytest.raises(ValueError, match="must be a path, a dataset or an iterable"):
        vo.rows(3)


def damaged(kind, folder, X, y):
    """Two files of Parquet, the second of which is not as it should be."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    save(folder / "1.parquet", X[:2000], y[:2000])
    second = folder / "2.parquet"
    save(second, X[2000:], y[2000:])
    table = pq.read_table(second)
    if kind == "absent":
        pq.write_table(table.drop(["x1"]), second)
    elif kind == "text":
        pq.write_table(table.set_column(1, "x1", pa.array(["q"] * (ROWS - 2000))), second)
    elif kind == "junk":
        second.write_bytes(b"junk")
    else:
        second.write_bytes(second.read_bytes()[:3000])


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("absent", r"2.parquet has no column 'x1', which the first file has"),
        ("text", r"column 'x1' must be numeric in every file; .*2.parquet has string"),
        ("junk", r"2.parquet cannot be read as a Parquet file"),
        ("cut", r"2.parquet cannot be read as a Parquet file"),
    ],
)
def test_a_file_that_is_not_like_the_first(kind, message, data, tmp_path):
    damaged(kind, tmp_path, *data[:2])
    with pytest.raises(ValueError, match=message):
        vo.rows(tmp_path, y="y")


def test_a_folder_without_files(tmp_path):
    pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match="there are no Parquet files in"):
        vo.rows(tmp_path, y="y")


@pytest.mark.parametrize("how", ["other numbers", "fewer rows", "cut", "gone"])
@pytest.mark.parametrize("when", ["before", "on the way"])
def test_parquet_files_that_change(how, when, data, tmp_path, monkeypatch):
    monkeypatch.setattr("varopt.optimize.anywhere._engine._ALL", 0)
    X, y, _ = data
    save(tmp_path / "1.parquet", X[:2000], y[:2000])
    save(tmp_path / "2.parquet", X[2000:], y[2000:])
    table, w, told = vo.rows(tmp_path, y="y"), vo.Variable(3), []

    def change(_=None):
        if told:
            return
        told.append(1)
        second = tmp_path / "2.parquet"
        if how == "other numbers":
            save(second, -X[2000:], y[2000:])
        elif how == "fewer rows":
            save(second, X[2500:], y[2500:])
        elif how == "cut":
            second.write_bytes(second.read_bytes()[:500])
        else:
            second.unlink()

    if when == "before":
        change()
    with pytest.raises(ValueError, match=r"2.parquet was changed while it was read"):
        vo.minimize(vo.sum(vo.abs(table.y - table.X @ w)), memory="300kB", callback=change)


def test_files_that_hold_no_numbers(tmp_path):
    (tmp_path / "junk.npy").write_bytes(b"abc")
    np.save(tmp_path / "text.npy", np.array(["a", "b"]))
    np.save(tmp_path / "complex.npy", np.ones((2, 2)) * 1j)
    for name, message in (("none", "there is no file"), ("junk", "junk.npy must hold"), ("text", "real numbers"),
                          ("complex", "complex128")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            vo.rows(tmp_path / f"{name}.npy")


def test_a_table_in_place_of_its_columns_is_told_so():
    table = vo.rows(lambda: iter([(np.eye(2), np.ones(2))]))
    with pytest.raises(ValueError, match="got a table, as vo.rows makes one: take its X, y or weight"):
        table @ vo.Variable(2)
