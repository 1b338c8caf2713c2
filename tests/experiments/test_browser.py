"""The report in a real browser: no error, no request, tables that sort, figures that are drawn, phone and dark."""

import html
import re

import pytest

from tests.browser import looked_at, needs_chromium

pytestmark = needs_chromium

# The report runs in a frame of the width of a phone or a desk; what it shows is written into the page around it.
HARNESS = """<!DOCTYPE html><meta charset="utf-8"><pre id="found"></pre>
<iframe id="frame" style="width: %(width)dpx; height: 900px; border: 0" srcdoc="%(report)s"></iframe>
<script>
const frame = document.getElementById("frame"), errors = [];
addEventListener("error", (event) => errors.push(event.message));
frame.addEventListener("load", () => {
  const page = frame.contentDocument, view = frame.contentWindow;
  view.addEventListener("error", (event) => errors.push(event.message));
  const column = (table, k) => Array.from(table.tBodies[0].rows, (row) => row.children[k].textContent);
  const tables = {};
  for (const table of page.querySelectorAll("table[id]")) {
    tables[table.id] = Array.from(table.tHead.rows[0].children, (head, k) => {
      const button = head.querySelector("button");
      button.click(); const up = column(table, k), sort = head.getAttribute("aria-sort");
      button.click(); const down = column(table, k);
      return {numeric: head.classList.contains("number"), up, down, sort};
    });
  }
  const style = (element) => view.getComputedStyle(element);
  const colour = () => style(page.body).backgroundColor + style(page.querySelector("svg text")).fill;
  const before = colour(); page.getElementById("theme").click(); const after = colour();
  document.getElementById("found").textContent = JSON.stringify({
    errors, tables, before, after,
    width: page.documentElement.scrollWidth,
    hidden: Array.from(page.querySelectorAll("td, .caption, figcaption, .verdict p"))
      .filter((element) => element.getBoundingClientRect().right > view.innerWidth + 1).length,
    title: page.title,
    figures: Array.from(page.querySelectorAll("figure svg"), (svg) => {
      const box = svg.getBoundingClientRect();
      const texts = Array.from(svg.querySelectorAll("text"), (text) => text.getBoundingClientRect().height);
      return {width: box.width, height: box.height, texts: texts.length, smallest: Math.min(...texts),
              curves: svg.querySelectorAll("path").length};
    }),
    text: parseFloat(view.getComputedStyle(page.querySelector("main p")).fontSize),
  });
});
</script>"""


def look(report, width, folder, *flags):
    """What a browser finds in the report, and what it logs."""
    text = html.escape(report.read_text("utf-8"))
    return looked_at(HARNESS.replace("%(width)d", str(width)).replace("%(report)s", text), folder, *flags)


@pytest.fixture(scope="module")
def desk(reproduction, tmp_path_factory):
    return look(reproduction[0] / "report.html", 1200, tmp_path_factory.mktemp("desk"))


@pytest.fixture(scope="module")
def phone(reproduction, tmp_path_factory):
    return look(reproduction[0] / "report.html", 390, tmp_path_factory.mktemp("phone"))


def test_it_opens_without_an_error_in_the_console(desk):
    found, console = desk
    assert found["title"] == "Variational Optimization, reproduced"
    assert found["errors"] == []
    assert console == []


def test_it_asks_the_network_for_nothing(reproduction):
    page = (reproduction[0] / "report.html").read_text("utf-8")
    addresses = re.findall(r'(?:src|href)="([^"#][^"]*)"|url\(([^)]*)\)|@import', page)
    assert [a for pair in addresses for a in pair if a and not a.startswith(("#", "data:", "&quot;#"))] == []


def test_every_table_sorts_by_every_column(desk):
    tables = desk[0]["tables"]
    assert {"table-table1-50", "table-fused", "table-figure4-matrix", "table-figure4-runs", "table-corrections"} <= set(
        tables
    )
    for name, columns in tables.items():
        for column in columns:
            assert column["sort"] == "ascending"
            if column["numeric"]:
                values = [number(text) for text in column["up"]]
                known = [value for value in values if value is not None]
                assert known == sorted(known), name
                assert values[: len(known)] == known, name  # what was not measured stays last
                assert [v for v in map(number, column["down"]) if v is not None] == sorted(known, reverse=True), name
            else:
                assert sorted(column["up"]) == sorted(column["down"])


def number(text):
    match = re.match(r"-?[\d.]+(?:e-?\d+)?", text.replace("−", "-"))
    return float(match[0]) if match else None


def test_every_figure_is_drawn_and_can_be_read_at_a_desk_and_on_a_phone(desk, phone):
    for found, least in ((desk[0], 9.0), (phone[0], 8.0)):
        assert len(found["figures"]) == 9
        for figure in found["figures"]:
            assert figure["width"] > 250
            assert figure["height"] > 180
            assert figure["texts"] >= 8
            assert figure["curves"] > 5
            assert figure["smallest"] >= least


def test_a_phone_shows_everything_within_its_width(phone):
    found, console = phone
    assert found["width"] <= 390
    assert found["hidden"] == 0  # no cell and no caption beyond the edge: the paper's columns can be reached
    assert found["text"] >= 15
    assert console == []


def test_dark_and_light_change_page_and_figures(desk, reproduction, tmp_path):
    assert desk[0]["before"] != desk[0]["after"]
    dark, _ = look(
        reproduction[0] / "report.html", 1200, tmp_path, "--force-dark-mode", "--blink-settings=preferredColorScheme=0"
    )
    assert dark["before"] == desk[0]["after"]
