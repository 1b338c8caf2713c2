"""Journals: nothing is lost, a resumed search is the uninterrupted one, damage is found, two writers are refused."""

import contextlib
import functools
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import textwrap
import zlib
from collections import Counter

import numpy as np
import pytest

import varopt as vo
from fuzz import journals

SPACES = {
    "box": vo.Box(-5, 5, size=3),
    "bits": vo.Boolean(12),
    "mixed": vo.Space({"x": vo.Box(0, 1), "k": vo.Integer(0, 9), "c": list("abc"), "o": vo.Permutation(4)}),
}


def cost(point):
    """Some number for any point, failing now and then."""
    text = json.dumps(point, default=lambda v: v.tolist(), sort_keys=True) if isinstance(point, dict) else None
    row = np.frombuffer(text.encode(), dtype=np.uint8) if text else np.asarray(point, dtype=float)
    value = float(np.abs(np.sin(np.cumsum(row))).sum())
    return None if int(value * 1e6) % 7 == 0 else value


def advance(search, evaluations, chunk=None):
    while search.evaluations < evaluations:
        xs = search.ask(chunk)
        search.tell(xs, [cost(x) for x in xs])


def same(one, other):
    assert [(*r[:2], r.row.tobytes(), r.error) for r in one.records] == [
        (*r[:2], r.row.tobytes(), r.error) for r in other.records
    ]
    np.testing.assert_array_equal([r.value for r in one.records], [r.value for r in other.records])
    assert one.best.fun == other.best.fun
    np.testing.assert_equal(one.best.x, other.best.x)
    np.testing.assert_equal(one.bound, other.bound)
    np.testing.assert_equal(one.ask(5), other.ask(5))


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize(
    "options",
    [{}, {"noisy": True}, {"asynchronous": True}, {"noisy": True, "asynchronous": True}, {"maximize": True},
     {"method": "cma"}],
    ids=str,
)  # fmt: skip
def test_loaded_search_goes_on_bit_for_bit(name, options, tmp_path):
    if name == "bits" and "method" in options:
        pytest.skip("cma is for numbers")
    whole = vo.Search(SPACES[name], seed=7, **options)
    advance(whole, 143, 13)
    first = vo.Search(SPACES[name], seed=7, journal=tmp_path / "a.db", **options)
    advance(first, 65, 13)
    first.close()
    second = vo.Search.load(tmp_path / "a.db")
    advance(second, 143, 13)
    same(whole, second)


def test_points_under_way_are_handed_out_again(tmp_path):
    options = {"seed": 1, "method": "cma"}
    whole, broken = vo.Search(SPACES["box"], **options), vo.Search(SPACES["box"], journal=tmp_path / "a.db", **options)
    advance(whole, 100)
    advance(broken, 21)
    lost = broken.ask(4)  # never told
    broken.tell(lost[:1], [cost(lost[0])])
    broken.close()
    search = vo.Search.load(tmp_path / "a.db")
    np.testing.assert_array_equal(search.ask(3), lost[1:])
    search.tell(lost[1:], [cost(x) for x in lost[1:]])
    advance(search, 100)
    same(whole, search)


def test_points_of_ones_own_are_kept(tmp_path):
    search = vo.Search(SPACES["box"], seed=1)
    search.tell([[1.0, 2.0, 3.0]], [0.5])
    advance(search, 30)
    search.save(tmp_path / "a.db")
    with vo.Search.load(tmp_path / "a.db") as again:
        assert again.records[0].candidate == -1
        same(search, again)


def test_loading_and_saving_keep_settings(tmp_path):
    search = vo.Search(SPACES["box"], method="snes", population=9, x0=[1, 2, 3], sigma=0.1, journal=tmp_path / "a.db")
    advance(search, 20)
    search.save(tmp_path / "b.db")
    search.close()
    for name in ("a.db", "b.db"):
        with vo.Search.load(tmp_path / name) as again:
            assert again.settings == search.settings
            assert again.seed == search.seed  # drawn afresh, and kept
            assert again.space == search.space


KILLED = """
import os, sys, numpy as np, varopt as vo
calls = 0
def f(x):
    global calls
    calls += 1
    if calls == 37:
        os.kill(os.getpid(), 9)
    return float((x ** 2).sum() + np.sin(50 * x).sum())
vo.minimize(f, vo.Box(-5, 5, size=4), budget=150, seed=3, journal=sys.argv[1], population=8, method="cma")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX")
def test_killed_and_resumed_run_equals_the_uninterrupted_one(tmp_path):
    def f(x):
        return float((x**2).sum() + np.sin(50 * x).sum())

    path = tmp_path / "run.db"
    options = {"budget": 150, "seed": 3, "population": 8, "method": "cma"}
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    with vo.Search.load(path, read_only=True) as known:
        assert 32 <= known.evaluations <= 36  # at most what came within one flush is missing
    resumed = vo.minimize(f, vo.Box(-5, 5, size=4), journal=path, **options)
    whole = vo.minimize(f, vo.Box(-5, 5, size=4), **options)
    assert resumed.nfev == whole.nfev == 150
    assert resumed.fun == whole.fun
    np.testing.assert_array_equal(resumed.x, whole.x)
    for name in ("evaluations", "best", "mean", "standard_error", "sigma"):
        np.testing.assert_array_equal(resumed.history[name], whole.history[name])


def filled(path, evaluations=30):
    with vo.Search(SPACES["box"], seed=2, journal=path) as search:
        advance(search, evaluations)
    return search


def test_damaged_last_record_is_dropped_with_a_message(tmp_path):
    path = tmp_path / "a.db"
    whole = filled(path)
    with sqlite3.connect(path) as database:
        database.execute(
            "UPDATE evaluation SET value = value + 1e-9 WHERE number = (SELECT max(number) FROM evaluation)"
        )
    database.close()
    with pytest.warns(UserWarning, match=r"last record of .* is damaged and was dropped"):
        search = vo.Search.load(path)
    assert search.evaluations == whole.evaluations - 1
    advance(search, whole.evaluations)
    same(whole, search)
    search.close()
    vo.Search.load(path).close()  # the message comes once


def test_a_batch_drawn_after_a_damaged_record_is_drawn_again(tmp_path):
    """It was written with the record known, and would stand where the new one belongs."""
    path = tmp_path / "a.db"
    with vo.Search(SPACES["box"], seed=2, journal=path) as search:
        advance(search, 24, 12)
        search.ask(6)  # another batch, of which nothing is told
    whole = vo.Search(SPACES["box"], seed=2)
    advance(whole, 24, 12)
    advance(whole, 90, 6)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE evaluation SET value = value + 1 WHERE number = 23")
        database.commit()
    with pytest.warns(UserWarning, match="is damaged and was dropped"):
        search = vo.Search.load(path)
    with search:
        advance(search, 24, 1)
        advance(search, 90, 6)
        same(whole, search)
    with vo.Search.load(path, read_only=True) as again:
        assert again.evaluations == 90


@pytest.mark.parametrize("condition", ["number = 23", "number > 12", "1"])
def test_evaluations_that_are_gone_are_missed(condition, tmp_path):
    """A later batch says how many there were: a search of fewer would be another, and its batches find no place."""
    path = tmp_path / "a.db"
    with vo.Search(SPACES["box"], seed=2, journal=path) as search:
        advance(search, 24, 12)
        search.ask(6)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(f"DELETE FROM evaluation WHERE {condition}")
        database.commit()
        left = database.execute("SELECT count(*) FROM evaluation").fetchone()[0]
    for read_only in (True, False):
        with pytest.raises(ValueError, match=rf"a\.db is damaged: it has {left} evaluations, and once had 24 at least"):
            vo.Search.load(path, read_only=read_only)
    with vo.Search.salvage(path, tmp_path / "new.db") as search:
        assert search.evaluations == left


def test_damage_in_the_middle_is_an_error(tmp_path):
    path = tmp_path / "a.db"
    filled(path)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE evaluation SET x = '[0, 0, 0]' WHERE number = 3")
    database.close()
    with pytest.raises(ValueError, match=r"a\.db is damaged: evaluation 3 of 3. does not match its checksum"):
        vo.Search.load(path)


def test_every_random_damage_is_told_with_the_name_of_the_file():
    """A few of what `fuzz.journals` tries by the ten thousand."""
    outcomes = Counter(found for _, _, found in journals.sweep(60, seed=1))
    assert set(outcomes) <= {"refused", "as before", "repaired", "shortened"}
    assert outcomes["refused"] > 20


def test_edited_settings_are_found(tmp_path):
    path = tmp_path / "a.db"
    filled(path)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE meta SET value = replace(value, '\"seed\": 2', '\"seed\": 3')")
        database.commit()
    with pytest.raises(ValueError, match=r"a\.db is damaged: its settings do not match their checksum"):
        vo.Search.load(path)


def test_another_version_drew_otherwise(tmp_path, monkeypatch):
    """It is not called damaged, and nothing of it is lost."""
    from varopt.solvers.natural_gradient import Restarts

    path = tmp_path / "a.db"
    with monkeypatch.context() as then:
        then.setattr(Restarts, "_why_end", lambda self: "then" if self._run_used > 30 else "")
        with vo.Search(SPACES["box"], seed=0, journal=path) as search:
            advance(search, 200)
    with pytest.raises(ValueError, match=r"a\.db was written by another version .* Search\.salvage"):
        vo.Search.load(path)
    with vo.Search.salvage(path, tmp_path / "b.db") as search:
        assert search.evaluations >= 200


def test_what_is_sound_is_salvaged(tmp_path):
    path = tmp_path / "a.db"
    whole = filled(path)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE evaluation SET x = '[0, 0, 0]' WHERE number = 3")
        database.commit()
    before = path.read_bytes()
    with vo.Search.salvage(path, tmp_path / "b.db") as search:
        assert search.evaluations == whole.evaluations - 1
        kept = [r for r in whole.records if r.number != 3]
        assert [(r.row.tobytes(), r.error) for r in search.records] == [(r.row.tobytes(), r.error) for r in kept]
        assert search.best.fun == whole.best.fun
        advance(search, 40)
    assert path.read_bytes() == before
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM meta")
        database.commit()
    with pytest.raises(ValueError, match="is damaged: its settings"):
        vo.Search.salvage(path, tmp_path / "c.db")
    with vo.Search.salvage(path, tmp_path / "c.db", SPACES["box"]) as search:
        assert search.evaluations == whole.evaluations - 1


def test_a_journal_that_cannot_be_written_says_so(tmp_path):
    path = tmp_path / "a.db"
    search = vo.Search(SPACES["box"], seed=2, journal=path)
    advance(search, 20)
    search._journal._database.execute("PRAGMA max_page_count = 1")  # what a full disk does
    with pytest.raises(OSError, match=r"a\.db cannot be written: .*full.* evaluations before are in it") as error:
        advance(search, 2000)
    told = int(re.search(r"The (\d+) evaluations", str(error.value))[1])
    search.close()
    with vo.Search.load(path, read_only=True) as known:
        assert known.evaluations == told >= 20
    (tmp_path / "a.db.lock").write_bytes(b"garbage" * 200)
    with pytest.raises(OSError, match=r"a\.db cannot be written: .*a\.db\.lock is damaged"):
        vo.Search.load(path)


def test_damage_that_only_writing_meets_is_told_as_damage(tmp_path):
    """The list of free pages is none that reading looks at; "run the same again" would be no help."""
    path = tmp_path / "a.db"
    whole = filled(path)
    content = bytearray(path.read_bytes())
    content[32:40] = b"\0\0\0\2\0\0\0\5"  # its first page, and how many there are
    path.write_bytes(content)
    with vo.Search.load(path) as search, pytest.raises(ValueError, match=r"a\.db is damaged: .*Search\.salvage"):
        advance(search, 1000)
    with vo.Search.salvage(path, tmp_path / "new.db") as search:
        assert search.evaluations >= whole.evaluations


@pytest.mark.skipif(sys.platform == "win32", reason="file modes are POSIX")
def test_reading_leaves_no_trace_even_where_nothing_can_be_written(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    path = place / "a.db"
    filled(path)
    (place / "a.db.lock").unlink()
    before = sorted((file.name, file.stat().st_mtime_ns) for file in place.iterdir())
    with vo.Search.load(path, read_only=True) as known:
        assert known.evaluations >= 30
    assert sorted((file.name, file.stat().st_mtime_ns) for file in place.iterdir()) == before
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        database.execute("SELECT * FROM meta")


def test_torn_write_ahead_log_loses_the_torn_records_only(tmp_path):
    path = tmp_path / "a.db"
    search = vo.Search(SPACES["box"], seed=2, journal=path)
    while search.evaluations < 70:
        before_the_last = search.evaluations
        advance(search, before_the_last + 1)
    copy, log = tmp_path / "copy.db", tmp_path / "copy.db-wal"
    copy.write_bytes(path.read_bytes())
    log.write_bytes((tmp_path / "a.db-wal").read_bytes()[:-1000])  # a crash in the middle of a write
    whole = vo.Search(SPACES["box"], seed=2)
    advance(whole, 70)
    with vo.Search.load(copy) as resumed:
        assert before_the_last <= resumed.evaluations < search.evaluations
        advance(resumed, 70)
        same(whole, resumed)
    search.close()


def test_journal_of_a_process_killed_before_it_began_is_begun_anew(tmp_path):
    for content in ("nothing", "a header"):
        path = tmp_path / content
        path.touch()
        if content == "a header":
            with contextlib.closing(sqlite3.connect(path)) as database:
                database.execute("PRAGMA journal_mode = WAL")
            assert path.stat().st_size > 0
        vo.minimize(cost, SPACES["box"], budget=20, seed=0, journal=path)
        with vo.Search.load(path, read_only=True) as search:
            assert search.evaluations == 20


def test_two_writers_are_refused_and_readers_are_not(tmp_path):
    path = tmp_path / "a.db"
    search = vo.Search(SPACES["box"], seed=2, journal=path)
    advance(search, 20)
    with pytest.raises(ValueError, match="in use by another search"):
        vo.Search.load(path)
    code = f"import varopt as vo; vo.Search.load({os.fspath(path)!r})"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "in use by another search" in other.stderr
    with vo.Search.load(path, read_only=True) as reader:
        assert reader.evaluations == search.evaluations
    search.close()
    vo.Search.load(path).close()


def test_wrong_files_and_settings_get_a_sentence(tmp_path):
    path = tmp_path / "a.db"
    filled(path)
    (tmp_path / "text").write_text("not a database, but long enough to look at " * 20)
    with pytest.raises(ValueError, match="exists already"):
        vo.Search(SPACES["box"], journal=path)
    with pytest.raises(ValueError, match="does not exist"):
        vo.Search.load(tmp_path / "none.db")
    with pytest.raises(ValueError, match="is a folder"):
        vo.minimize(cost, SPACES["box"], journal=tmp_path)
    with pytest.raises(ValueError, match="there is no folder"):
        vo.Search(SPACES["box"], journal=tmp_path / "no" / "a.db")
    with pytest.raises(ValueError, match="is not a journal of varopt"):
        vo.Search.load(tmp_path / "text")
    with pytest.raises(ValueError, match="space differs from the one in"):
        vo.Search.load(path, vo.Box(0, 1))
    with pytest.raises(ValueError, match="was begun with seed=2, not 3"):
        vo.minimize(cost, SPACES["box"], seed=3, journal=path)


def test_parts_in_another_order_are_the_same_space(tmp_path):
    """The rows of a journal have the order that it was begun with."""
    parts = {"small": vo.Box(0, 1), "large": vo.Box(10, 100), "kind": ["a", "b"]}

    def f(p):
        assert p["small"] <= 1
        assert p["large"] >= 10
        return p["small"] + p["large"] + (p["kind"] == "a")

    options = {"seed": 0, "x0": {"small": 0.25, "large": 20.0}}
    whole = vo.minimize(f, vo.Space(parts), budget=12, **options)
    vo.minimize(f, vo.Space(parts), budget=12, journal=tmp_path / "a.db", target=60.0, **options)
    turned = vo.Space({name: parts[name] for name in ("kind", "large", "small")})
    r = vo.minimize(f, turned, budget=12, journal=tmp_path / "a.db", **options)
    assert (r.fun, r.x) == (whole.fun, whole.x)


def test_a_choice_with_a_nan_goes_on(tmp_path):
    for budget in (3, 5):
        space = vo.Space({"missing": [float("nan"), 0.0]})
        assert vo.minimize(lambda p: 1.0, space, budget=budget, seed=0, journal=tmp_path / "a.db").nfev == budget


def test_a_file_of_someone_else_is_not_called_damaged(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "study.db")) as database:
        database.execute("CREATE TABLE trials (number INTEGER)")
    with pytest.raises(ValueError, match=r"study.db is not a journal of varopt: its tables are 'trials' and others"):
        vo.Search.load(tmp_path / "study.db")


def test_every_name_is_that_of_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for budget in (3, 5):
        vo.minimize(lambda x: float(x @ x), vo.Box(-1, 1, size=2), budget=budget, seed=0, journal=":memory:")
    with vo.Search.load(":memory:") as search:
        assert search.evaluations == 5


def test_settings_that_are_refused_leave_the_journal_free(tmp_path):
    run = functools.partial(
        vo.minimize, lambda x: float(x @ x), vo.Box(-1, 1, size=2), seed=0, journal=tmp_path / "a.db"
    )
    run(budget=3)
    with pytest.raises(ValueError, match="sigma must be"):
        run(budget=5, sigma=-1)
    assert run(budget=5).nfev == 5


def test_format_is_as_documented(tmp_path):
    path = tmp_path / "a.db"
    search = vo.Search(SPACES["mixed"], seed=0, journal=path)
    xs = search.ask(2)
    search.tell(xs, [1.5, ValueError("why")])
    search.close()
    database = sqlite3.connect(path)
    meta = dict(database.execute("SELECT key, value FROM meta"))
    rows = database.execute("SELECT number, candidate, x, value, error FROM evaluation").fetchall()
    database.close()
    assert json.loads(meta["space"])["parts"]["k"] == {
        "kind": "integer",
        "low": 0,
        "high": 9,
        "log": None,
        "size": None,
    }
    assert json.loads(meta["settings"])["seed"] == 0
    assert [(row[0], row[1], row[3], row[4]) for row in rows] == [(0, 0, 1.5, None), (1, 1, None, "ValueError: why")]
    first = json.loads(rows[0][2])
    assert first[:2] == [xs[0]["x"], xs[0]["k"]]
    assert "abc"[int(first[2])] == xs[0]["c"]
    assert first[3:] == xs[0]["o"].tolist()


def as_format_2(path, old):
    """The same search as version 0.1.0 kept it: no columns for what was not there, checksums as documented for it."""

    def checksum(fields):
        text = "|".join("\0" if f is None else f.hex() if isinstance(f, float) else str(f) for f in fields)
        return zlib.crc32(text.encode())

    with contextlib.closing(sqlite3.connect(path)) as new, contextlib.closing(sqlite3.connect(old)) as database:
        database.executescript(
            "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);"
            "CREATE TABLE batch (number INTEGER PRIMARY KEY, size INTEGER, told INTEGER, checksum INTEGER);"
            "CREATE TABLE evaluation (number INTEGER PRIMARY KEY, candidate INTEGER, x TEXT, value REAL, error TEXT,"
            " time REAL, began REAL, seconds REAL, worker TEXT, checksum INTEGER);"
        )
        meta = dict(new.execute("SELECT key, value FROM meta WHERE key != 'checksum'"))
        settings = json.loads(meta["settings"])
        for name in ("objectives", "constraints", "subject_to", "stop_early"):
            del settings[name]
        meta.update(format="2", settings=json.dumps(settings))
        meta["checksum"] = str(checksum(text for item in sorted(meta.items()) for text in item))
        database.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        database.executemany("INSERT INTO batch VALUES (?, ?, ?, ?)", new.execute("SELECT * FROM batch").fetchall())
        kept = "number, candidate, x, value, error, time, began, seconds, worker"
        rows = new.execute(f"SELECT {kept} FROM evaluation ORDER BY number").fetchall()
        database.executemany(
            f"INSERT INTO evaluation VALUES ({', '.join('?' * 10)})", [(*row, checksum(row)) for row in rows]
        )
        database.commit()


def test_journals_of_the_version_before_are_read_and_written(tmp_path):
    space = SPACES["box"]
    whole = vo.minimize(cost, space, seed=2, budget=60, method="cma")
    vo.minimize(cost, space, seed=2, budget=25, method="cma", journal=tmp_path / "new.db")
    as_format_2(tmp_path / "new.db", tmp_path / "old.db")
    r = vo.minimize(cost, space, seed=2, budget=60, method="cma", journal=tmp_path / "old.db")
    assert [x.row.tobytes() for x in r.search.records] == [x.row.tobytes() for x in whole.search.records]
    again = vo.Search.load(tmp_path / "old.db", read_only=True)
    assert [x.value for x in again.records] == [x.value for x in whole.search.records]
    with contextlib.closing(sqlite3.connect(tmp_path / "old.db")) as database:
        database.execute("UPDATE meta SET value = '9' WHERE key = 'format'")
        database.commit()
    with pytest.raises(ValueError, match=r"old\.db has format 9; this version of varopt reads 2 and 3"):
        vo.Search.load(tmp_path / "old.db")
