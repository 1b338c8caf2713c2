"""Dask: the same bracket whatever the partitions, and nothing large that travels."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import varopt as vo
from varopt.learn import HuberRegressor, LADRegressor, QuantileRegressor

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

ROWS = 10_000
w = vo.Variable(3, name="w")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((ROWS, 3))
    return X, X @ [1.0, 0.0, -1.0] + rng.standard_t(3, ROWS)


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setattr("varopt.optimize.anywhere._engine._ALL", 0)
    with dask.config.set(scheduler="threads"):
        yield


@pytest.mark.parametrize("partitions", [1, 4, 16])
@pytest.mark.parametrize("order", ["as drawn", "sorted"])
def test_partitions_do_not_matter(partitions, order, data):
    X, y = data
    if order == "sorted":  # all positives in the last partitions
        X, y = X[np.argsort(y)], np.sort(y)
    near = vo.minimize(vo.sum(vo.pinball(y - X @ w, 0.3)))
    dX = da.from_array(X, chunks=(ROWS // partitions, 2))
    dy = da.from_array(y, chunks=3000)
    far = vo.minimize(vo.sum(vo.pinball(dy - dX @ w, 0.3)))
    assert far.status is vo.Status.OPTIMAL
    assert far.method == "freezing"
    assert far.fun == pytest.approx(near.fun, rel=1e-13)
    assert far.lower <= near.upper
    assert near.lower <= far.upper
    assert far.passes <= 5


def test_what_columns_have_in_common_is_read_once_a_pass(data):
    X, y = data
    read = []

    def load(start, stop):
        read.append(start)
        return np.column_stack([X, y])[start:stop]

    blocks = [da.from_delayed(dask.delayed(load)(i, i + 2500), (2500, 4), float) for i in range(0, ROWS, 2500)]
    whole = da.concatenate(blocks)
    r = vo.minimize(vo.sum(vo.abs(whole[:, 3] - whole[:, :3] @ w)))
    assert r.method == "freezing"
    assert len(read) == r.passes * len(blocks)


def test_unknown_lengths(data):
    X, y = data
    dX, dy = da.from_array(X, chunks=(3000, 3)), da.from_array(y, chunks=3000)
    kept = dy > 0.0
    dX, dy = dX[kept], dy[kept]
    assert np.isnan(dX.shape[0])
    far = vo.rows(dX, y=dy)
    r = vo.minimize(vo.sum(vo.abs(far.y - far.X @ w)))
    assert r.fun == pytest.approx(vo.minimize(vo.sum(vo.abs(y[y > 0] - X[y > 0] @ w))).fun, rel=1e-12)


def test_unknown_lengths_that_are_cut_in_other_places(data):
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    X, y = data
    near = vo.minimize(vo.sum(vo.abs(y[y > 0] - X[y > 0] @ w))).fun
    dX, dy = da.from_array(X, chunks=(3000, 2)), da.from_array(y, chunks=4000)
    rows_of_X, rows_of_y = dX[da.from_array(y > 0, chunks=3000)], dy[dy > 0]
    assert np.isnan(rows_of_y.shape[0])
    assert vo.minimize(vo.sum(vo.abs(rows_of_y - rows_of_X @ w))).fun == pytest.approx(near, rel=1e-12)
    frame = dd.from_pandas(pd.Series(y[y > 0], name="y"), npartitions=3)
    assert LADRegressor(fit_intercept=False).fit(rows_of_X, frame).passes_ >= 2
    table = vo.rows(rows_of_X, y=frame)
    assert vo.minimize(vo.sum(vo.abs(table.y - table.X @ w))).fun == pytest.approx(near, rel=1e-12)


def test_frames_and_estimators(data):
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    X, y = data
    frame = dd.from_pandas(pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y}), npartitions=5)
    expected = LADRegressor().fit(X, y)
    table = vo.rows(frame, y="y")
    assert LADRegressor().fit(table, None).objective_ == pytest.approx(expected.objective_, rel=1e-11)
    model = LADRegressor().fit(frame[["a", "b", "c"]], frame["y"])
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-11)
    levels = QuantileRegressor(quantile=[0.2, 0.8], alpha=0.0).fit(da.from_array(X, chunks=(2500, 3)), da.from_array(y))
    assert levels.coef_.shape == (2, 3)
    with pytest.raises(ValueError, match="no column 'z'"):
        vo.rows(frame, y="z")
    with pytest.raises(ValueError, match="column 'b' must be numeric"):
        vo.rows(frame.assign(b="text"), y="y")
    product = frame[["a", "b", "c"]].values @ w
    assert vo.minimize(vo.sum(vo.abs(product - frame["y"]))).fun == pytest.approx(
        vo.minimize(vo.sum(vo.abs(y - X @ w))).fun, rel=1e-11
    )
    with pytest.raises(ValueError, match="A series of Dask comes second"):
        frame["y"] - product  # Dask asks nobody else


def test_a_scale_is_estimated_on_the_workers(data):
    X, y = data
    far = HuberRegressor().fit(da.from_array(X, chunks=(2500, 3)), da.from_array(y, chunks=3000))
    assert far.objective_ == pytest.approx(HuberRegressor().fit(X, y).objective_, rel=1e-9)
    assert far.certificate_.assumption == ""


def test_missing_values_are_named(data):
    X, y = data
    y = y.copy()
    y[8_001] = np.nan
    dX, dy = da.from_array(X, chunks=(2500, 3)), da.from_array(y, chunks=2500)
    f = vo.sum(vo.abs(dy - dX @ w))
    with pytest.raises(ValueError, match="y must be finite; got nan in row 8001"):
        vo.minimize(f)


def in_blocks(X, y):
    both = np.column_stack([X, y])
    read = dask.delayed(lambda i: both[i : i + 2500])
    return da.concatenate([da.from_delayed(read(i), (2500, 4), float) for i in range(0, ROWS, 2500)])


def test_a_pass_has_one_task_for_each_partition(data):
    from dask.callbacks import Callback

    done = []
    whole = in_blocks(*data)
    with Callback(pretask=lambda key, *_: done.append(key)):
        r = vo.minimize(vo.sum(vo.abs(whole[:, 3] - whole[:, :3] @ w)))
    assert r.method == "freezing"
    assert len(done) <= r.passes * (whole.numblocks[0] + 1)  # and what they have to do, which travels once


def test_partitions_that_share_what_they_read_are_left_to_dask(data):
    X, y = data
    whole, near = in_blocks(X, y), vo.minimize(vo.sum(vo.abs(y - X @ w))).fun
    for dX, dy in ((whole[:, :3], whole[:, 3].rechunk(3000)), (whole.rechunk(3000)[:, :3], whole[:, 3].rechunk(3000))):
        assert vo.minimize(vo.sum(vo.abs(dy - dX @ w))).fun == pytest.approx(near, rel=1e-12)


def test_names_of_a_collection_are_left_to_it(data):
    """Dask makes a graph over before it persists it: a name that passes had used would then stand for two graphs."""
    from dask.callbacks import Callback

    done = set()
    whole = in_blocks(*data).rechunk((3000, 4))
    known = whole[whole[:, 3] > 0.0]
    with Callback(pretask=lambda key, *_: done.add(key)):
        vo.minimize(vo.sum(vo.abs(whole[:, 3] - whole[:, :3] @ w)))
        table = vo.rows(known[:, :3], y=known[:, 3])
        vo.minimize(vo.sum(vo.abs(table.y - table.X @ w)))
    assert done
    assert not done & {*whole.dask, *whole[:, 3].dask, *whole[:, :3].dask, *known[:, :3].dask, *known[:, 3].dask}


def test_data_that_are_persisted_after_passes(data, caplog):
    distributed = pytest.importorskip("distributed", reason="the dask extra is not installed")
    X, y = data
    near = vo.minimize(vo.sum(vo.abs(y - X @ w))).fun
    whole = in_blocks(X, y).rechunk((3000, 4))
    with (
        distributed.Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0") as client,
        dask.config.set(scheduler=client),
    ):
        held = []  # so that the scheduler does not forget them
        for persist in (False, True, False, True):
            source = whole.persist() if persist else whole
            held.append(source)
            r = vo.minimize(vo.sum(vo.abs(source[:, 3] - source[:, :3] @ w)))
            assert r.fun == pytest.approx(near, rel=1e-12)
    assert "run_spec" not in caplog.text


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems keep memory as they like")
def test_a_worker_keeps_memory_while_it_works_on_a_partition():
    """In a process like those of Dask's workers, where freed memory goes back to the system at once."""
    code = """
import resource, numpy as np
from varopt.places._heap import memory_kept  # without a cluster
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50): np.ones(1 << 17)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
apart = faults()
with memory_kept():
    with memory_kept(): pass
    faults()
    within = faults()
print(apart, within, faults())
"""
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    apart, within, after = map(int, run.stdout.split())
    if apart < 1000:
        pytest.skip("the C library of this system does not give memory back")
    assert within < 0.1 * apart
    assert after > 0.5 * apart


def test_memory_is_given_back_whatever_the_environment_says_by_then(monkeypatch):
    from varopt.places import _heap  # another allocator is feigned

    told = []
    library = SimpleNamespace(mallopt=lambda *option: told.append(option), malloc_trim=lambda _: None)
    monkeypatch.setattr(_heap, "_library", lambda: library)
    for said, trim in (("", 1 << 17), ("65536", 65536), (str(1 << 32), (1 << 31) - 1)):
        monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", said)
        with pytest.raises(ZeroDivisionError), _heap.memory_kept():
            raise ZeroDivisionError
        assert _heap._HEAP.within == 0
        assert told[-1] == (-1, trim)
