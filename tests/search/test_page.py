"""A journal as a page: what it shows, in a real browser, and that nobody but this machine gets it."""

import contextlib
import hashlib
import html
import json
import math
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest

import varopt as vo
from tests.browser import looked_at, needs_chromium, opened
from varopt.cli import main
from varopt.search.page import Follower, journal_page, page_server

SPACE = vo.Space(
    {
        "rate": vo.Box(1e-4, 1, log=True),
        "kind": ["adam", "sgd", "</script><b>"],
        "momentum": vo.Box(0, 1),
        "shape": vo.Box(-1, 1, size=2),
        "layers": vo.Integer(1, 8),
        "unused": vo.Boolean(),
    },
    when={"momentum": {"kind": "sgd"}},
)


def loss(p):
    value = 4 * math.log10(p["rate"] / 0.01) ** 2 + 0.01 * abs(p["layers"] - 3) + p.get("momentum", 0.2)
    for step in range(1, 10):
        if p["layers"] >= 6:
            raise RuntimeError("out of <memory>")
        yield value + 1.0 / step


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "run.db"
    vo.minimize(loss, SPACE, budget=150, seed=0, method="cma", journal=path, stop_early=True)
    return path


def footprint(folder):
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(folder.iterdir())}


def test_what_it_shows_agrees_with_the_search(journal):
    before = footprint(journal.parent)
    shown = Follower(journal).read()
    search = vo.Search.load(journal, read_only=True)
    assert footprint(journal.parent) == before  # reading leaves no trace, in the file or beside it
    facts = dict(shown["facts"])
    assert facts["evaluations"] == "150"
    assert float(facts["best value"]) == pytest.approx(search.best.fun, rel=1e-6)
    assert dict(shown["best"]["point"]).keys() == search.best.x.keys()
    best = np.array([value for _, value in shown["course"]["best"]], dtype=float)
    assert best[-1] == search.best.fun
    assert np.all(np.diff(best) <= 0)
    np.testing.assert_allclose([row[1] for row in shown["course"]["bound"]], search.history["mean"])
    assert [part["name"] for part in shown["parts"]] == [
        "rate", "kind", "momentum", "shape[0]", "shape[1]", "layers", "unused",
    ]  # fmt: skip
    widths = np.array(shown["parts"][0]["quantiles"])
    assert math.log(widths[-1, 3] / widths[-1, 1]) < 0.5 * math.log(widths[0, 3] / widths[0, 1])
    shares = dict(shown["mattered"]["shares"])
    assert max(shares, key=shares.get) == "rate"
    assert shares["unused"] < 0.5 * shares["rate"]
    failed = [record for record in search.records if record.error]
    assert shown["failures"]["count"] == len(failed) > 0
    assert shown["failures"]["kinds"] == [["RuntimeError: out of <memory>", len(failed)]]
    assert len(shown["workers"]["spans"]) == 150
    assert 0.3 < shown["reports"]["saved"] < 1.0


@pytest.mark.parametrize(
    "options",
    [
        {
            "space": vo.Box(0, 1, size=2),
            "f": lambda x: (x @ x, -x.sum(), 0.5 - x[0]),
            "objectives": 2,
            "constraints": 1,
        },
        {"space": vo.Box(0, 1, size=2), "f": lambda x: -(x @ x), "subject_to": lambda x: x.sum() < 1},
        {"space": vo.Choice([np.sin, np.cos]), "f": lambda g: g(1.0)},
        {"space": vo.Permutation(4), "f": lambda p: float(p[0])},
        {"space": vo.Box(0, 1, size=2), "f": lambda x: math.nan},
        {"space": vo.Box(0, 1, size=2), "f": lambda x: 1.0, "maximize": True},
        {"space": vo.Box(0, 1, size=30), "f": lambda x: x @ x, "budget": 1},
    ],
)
def test_every_kind_of_journal_has_a_page(options, tmp_path):
    f, space = options.pop("f"), options.pop("space")
    vo.minimize(f, space, **{"budget": 30, "seed": 0, "method": "auto", "journal": tmp_path / "a.db", **options})
    page = journal_page(tmp_path / "a.db")
    contents = json.loads(re.search(r'id="contents">(.*?)</script>', page)[1])
    assert (contents["front"] is not None) == (options.get("objectives") == 2)
    assert contents["note"] == ""


def test_a_journal_just_begun_and_damaged_ones(journal, tmp_path):
    vo.Search(SPACE, journal=tmp_path / "new.db").close()
    assert Follower(tmp_path / "new.db").read()["best"] is None
    import sqlite3

    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(journal.read_bytes())
    with contextlib.closing(sqlite3.connect(damaged)) as database:
        database.execute("UPDATE evaluation SET value = 7 WHERE number = 9")
        database.commit()
    shown = Follower(damaged).read()
    assert "evaluation 9 of 150 does not match its checksum" in shown["note"]
    assert dict(shown["facts"])["evaluations"] == "149"


def test_the_command(journal, tmp_path, capsys):
    output = tmp_path / "page.html"
    assert main(["report", str(journal), "--output", str(output)]) == 0
    assert capsys.readouterr().out.strip() == str(output)
    page = output.read_text("utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "<b>" not in page.partition('id="contents">')[2].partition("</script>")[0]
    for arguments, message in (
        ([str(tmp_path / "none.db")], "none.db does not exist"),
        ([str(output)], "page.html is not a journal of varopt"),
        ([str(journal), "--output", str(journal)], "--output must not be the journal itself"),
        ([str(journal), "--watch", "--port", "70000"], "--port must be a number from 0 to 65535"),
    ):
        assert main(["report", *arguments]) == 2
        assert message in capsys.readouterr().err


def test_the_best_so_far_begins_where_constraints_hold(tmp_path):
    """Before, the curve would rise: what breaks them costs less."""

    def f(x):
        return float(x @ x), 1.0 - x.sum()

    r = vo.minimize(f, vo.Box(-5, 5, size=2), constraints=1, budget=40, seed=0, journal=tmp_path / "a.db")
    holds = [record.others[0] <= 0.0 for record in r.search.records]
    assert not holds[0]
    course = Follower(tmp_path / "a.db").read()["course"]["best"]
    assert [value is not None for _, value in course] == np.maximum.accumulate(holds).tolist()
    values = [value for _, value in course if value is not None]
    assert values == sorted(values, reverse=True)
    assert values[-1] == pytest.approx(r.fun)
    best = r.history["best"]
    assert np.isnan(best[0])
    assert np.all(np.diff(best[np.isfinite(best)]) <= 0)


# In a browser --------------------------------------------------------------------------------------------------------

HARNESS = """<!DOCTYPE html><meta charset="utf-8"><pre id="found"></pre>
<iframe id="desk" style="width: 1200px; height: 900px; border: 0" srcdoc="%(page)s"></iframe>
<iframe id="phone" style="width: 390px; height: 900px; border: 0" srcdoc="%(page)s"></iframe>
<script>
const errors = [];
const look = (frame) => {
  const page = frame.contentDocument, view = frame.contentWindow;
  const style = (name) => view.getComputedStyle(page.querySelector(name));
  const colour = () => style("body").backgroundColor + style("svg text").fill + style("svg .best").stroke;
  const before = colour(); page.getElementById("theme").click(); const after = colour();
  return {before, after, title: page.title, width: page.documentElement.scrollWidth,
    sections: Array.from(page.querySelectorAll("section"), (one) => one.id),
    hidden: Array.from(page.querySelectorAll("td, p, dd, svg, h3, .bar"))
      .filter((one) => one.getBoundingClientRect().right > view.innerWidth + 1).length,
    figures: Array.from(page.querySelectorAll("svg"), (svg) => {
      const box = svg.getBoundingClientRect();
      const tall = (one) => one.getBoundingClientRect().height;
      const texts = Array.from(svg.querySelectorAll("text"), tall).filter((height) => height);
      return {width: box.width, height: box.height, marks: svg.querySelectorAll("path, circle, rect").length,
              smallest: Math.min(...texts), label: svg.getAttribute("aria-label"),
              broken: /NaN|Infinity|undefined/.test(svg.outerHTML)};
    }),
    text: parseFloat(view.getComputedStyle(page.querySelector("main p")).fontSize),
    bold: page.querySelectorAll("main td b, #facts b, .legend b").length,
    best: page.querySelector("#facts dd").textContent};
};
let loaded = 0;
for (const frame of document.querySelectorAll("iframe")) frame.addEventListener("load", () => {
  frame.contentWindow.addEventListener("error", (event) => errors.push(event.message));
  if (++loaded === 2) document.getElementById("found").textContent = JSON.stringify(
    {errors, desk: look(document.getElementById("desk")), phone: look(document.getElementById("phone"))});
});
</script>"""


@pytest.fixture(scope="module")
def looked(journal, tmp_path_factory):
    harness = HARNESS.replace("%(page)s", html.escape(journal_page(journal)))
    return lambda *flags: looked_at(harness, tmp_path_factory.mktemp("browser"), *flags)


@needs_chromium
def test_it_shows_at_a_desk_and_on_a_phone_in_light_and_in_dark(looked, journal):
    found, console = looked()
    assert console == []
    assert found["errors"] == []
    for name, most in (("desk", 1200), ("phone", 390)):
        shown = found[name]
        assert shown["title"] == "run.db: a search by varopt"
        assert shown["sections"] == ["course", "parts", "mattered", "reports", "failures", "workers"]
        assert shown["width"] <= most
        assert shown["hidden"] == 0
        assert shown["bold"] == 0  # what the user's names and errors say is text
        assert shown["text"] >= 14
        assert len(shown["figures"]) == 10
        for figure in shown["figures"]:
            assert not figure["broken"], figure["label"]
            assert figure["width"] > 250
            assert figure["height"] > 100
            assert figure["marks"] >= 5
            assert figure["smallest"] >= 10
        assert shown["before"] != shown["after"]
        best = vo.Search.load(journal, read_only=True).best.fun
        assert float(shown["best"]) == pytest.approx(best, rel=1e-6)
    dark, _ = looked("--force-dark-mode", "--blink-settings=preferredColorScheme=0")
    assert dark["desk"]["before"] == found["desk"]["after"]


SEEN = """<pre id="found"></pre><script>
const texts = (where, what) => Array.from(document.querySelectorAll(where + " " + what), (one) => one.textContent);
const drawn = document.querySelector("#front svg");
document.getElementById("found").textContent = JSON.stringify({
  legends: Object.fromEntries(["course", "front"].map((id) => ["#" + id, texts("#" + id, ".legend span")])),
  said: texts("#course", "p"), levels: texts("#course", "svg text[text-anchor=end]"),
  across: drawn ? Array.from(drawn.querySelectorAll(".held"), (one) => one.cx.baseVal.value / drawn.clientWidth) : []});
</script>"""


def seen(path, folder):
    """What is drawn and said on the page of a journal."""
    page = folder / "seen.html"
    page.write_text(journal_page(path).replace("</body>", SEEN + "</body>"), encoding="utf-8")
    text, console = opened(page.as_uri(), folder)
    assert console == []
    return json.loads(text)


@needs_chromium
def test_a_search_without_a_value_has_no_empty_picture(tmp_path):
    vo.minimize(lambda x: 1 / 0, vo.Box(0, 9), budget=5, seed=0, journal=tmp_path / "a.db")
    found = seen(tmp_path / "a.db", tmp_path)
    assert found["said"] == ["No evaluation has given a value yet."]
    assert found["levels"] == []


@needs_chromium
def test_what_is_drawn_is_named_and_fills_the_picture(tmp_path):
    def course(p):
        yield 0.2 + float(abs(p).sum())
        yield 0.1 + float(abs(p).sum())

    vo.minimize(course, vo.Box(0, 9), budget=30, seed=0, method="cma", stop_early=True, journal=tmp_path / "a.db")
    found = seen(tmp_path / "a.db", tmp_path)
    assert found["legends"]["#course"][-1] == "stopped early"
    assert len(found["levels"]) > 1
    assert {level.strip("0.")[:1] for level in found["levels"]} <= set("125")  # round numbers of less than two decades

    def costs(x):
        return 5.0 + float(((x - 1) ** 2).sum()), 5.0 + float(((x + 1) ** 2).sum())

    vo.minimize(costs, vo.Box(-5, 5, size=3), objectives=2, budget=60, seed=0, journal=tmp_path / "b.db")
    found = seen(tmp_path / "b.db", tmp_path)
    assert found["legends"]["#front"] == ["on the front", "other evaluations"]
    assert min(found["across"]) < 0.2  # nothing is better in the first: the picture begins there


def test_it_asks_the_network_for_nothing(journal):
    addresses = re.findall(r'(?:src|href)="([^"#][^"]*)"|url\(([^)]*)\)|@import', journal_page(journal))
    assert [a for pair in addresses for a in pair if a and not a.startswith("data:")] == []


@contextlib.contextmanager
def serving(path):
    with page_server(path) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def asked(server, path="/contents.json", host="localhost"):
    request = urllib.request.Request(f"http://127.0.0.1:{server.server_address[1]}{path}", headers={"Host": host})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode(), answer.headers


def grown(search, count=10):
    points = search.ask(count)
    search.tell(points, [list(loss({**p, "layers": 3}))[-1] for p in points])


def test_watching_follows_a_search_on_this_machine_alone(tmp_path):
    path = tmp_path / "live.db"
    with vo.Search(SPACE, seed=0, method="cma", journal=path) as search:
        grown(search)
        with serving(path) as server:
            assert server.server_address[0] == "127.0.0.1"
            text, headers = asked(server)
            assert dict(json.loads(text)["facts"])["evaluations"] == "10"
            assert "default-src 'none'" in headers["Content-Security-Policy"]
            grown(search)
            grown(search, 7)
            shown = json.loads(asked(server)[0])
            assert dict(shown["facts"])["evaluations"] == "27"
            np.testing.assert_allclose([row[1] for row in shown["course"]["bound"]], search.history["mean"])
            for wrong, status in (({"path": "/../live.db"}, 404), ({"host": "evil.example:80"}, 403)):
                with pytest.raises(urllib.error.HTTPError) as refusal:
                    asked(server, **wrong)
                assert refusal.value.code == status
                refusal.value.close()  # it holds the connection
            path.rename(tmp_path / "elsewhere.db")
            assert "does not exist" in json.loads(asked(server)[0])["note"]


@needs_chromium
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # connections a browser opens in advance
def test_a_browser_that_watches_shows_what_is_new(tmp_path):
    path = tmp_path / "live.db"
    with vo.Search(SPACE, seed=0, method="cma", journal=path) as search:
        grown(search)
        with serving(path) as server:
            plain, calls = server.RequestHandlerClass.contents, []

            def contents():
                calls.append(1)
                if len(calls) == 2:  # the page is there, and asks for news
                    grown(search, 13)
                return plain()

            server.RequestHandlerClass.contents = staticmethod(contents)
            address = f"http://localhost:{server.server_address[1]}/"
            text, console = opened(
                address, tmp_path, "--virtual-time-budget=4000", pattern=r"<dt>evaluations</dt><dd>(23)</dd>"
            )
    assert text == "23"
    assert console == []


def test_the_server_ends_with_an_interrupt(journal):
    code = (  # the handler: whatever runs in the background of a shell inherits that interrupts are ignored
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"from varopt.cli import main; raise SystemExit(main(['report', {str(journal)!r}, '--watch']))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as process:
        line = process.stderr.readline()
        assert re.match(r"http://localhost:\d+/ follows .*run\.db; Ctrl-C ends it\.", line)
        process.send_signal(2)
        assert process.wait(30) == 130
