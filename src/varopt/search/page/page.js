"use strict";
const SVG = "http://www.w3.org/2000/svg";
let contents = JSON.parse(document.getElementById("contents").textContent);

// Elements -----------------------------------------------------------------------------------------------------------
function element(tag, attributes = {}, ...children) {
  const made = tag.startsWith("svg:") ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
const svg = (tag, attributes, ...children) => element("svg:" + tag, attributes, ...children);
const short = (value) => {
  const size = Math.abs(value);
  return value === 0 ? "0" : size >= 1e5 || size < 1e-3 ? value.toExponential(1).replace("e+", "e") : String(+value.toPrecision(4));
};

// Charts -------------------------------------------------------------------------------------------------------------
function ticks(low, high, log, most) {
  if (log) {
    const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
    const step = Math.max(1, Math.ceil((last - first + 1) / most)), found = [];
    for (let k = first; k <= last; k += step) found.push(10 ** k);
    if (found.length > 1) return found;
    const between = []; // less than two decades: 1, 2, 5, or as on a linear axis where these are too few
    for (let k = first - 1; k <= last + 1; k++) for (const m of [1, 2, 5]) {
      const value = Number(`${m}e${k}`);
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) between.push(value);
    }
    if (between.length > 1) return between;
  }
  const rough = (high - low) / most, unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * unit).find((k) => k >= rough * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  return found;
}
function chart(host, { height = 220, x, y, logX = false, logY = false, xTitle = "", options = null, label = "" }, draw) {
  const width = Math.max(240, host.clientWidth), left = options ? 76 : 58, right = 10, top = 8, bottom = 36;
  const box = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label });
  const scale = (low, high, from, to, log) => {
    if (log) [low, high] = [Math.log10(low), Math.log10(high)];
    if (!(high > low)) [low, high] = [low - 0.5 * (Math.abs(low) || 1), high + 0.5 * (Math.abs(high) || 1)];
    return (value) => from + ((log ? Math.log10(value) : value) - low) / (high - low) * (to - from);
  };
  const across = scale(x[0], x[1], left, width - right, logX), up = scale(y[0], y[1], height - bottom, top, logY);
  box.append(svg("path", { class: "axis", d: `M${left} ${top}V${height - bottom}H${width - right}` }));
  const say = (text, attributes) => box.append(svg("text", attributes, text));
  for (const value of ticks(x[0], x[1], logX, Math.max(3, Math.floor(width / 90)))) {
    say(short(value), { x: across(value), y: height - bottom + 15, "text-anchor": "middle" });
  }
  say(xTitle, { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" });
  const marks = options ? options.map((name, k) => [name.length > 10 ? "…" + name.slice(-9) : name, k]) : ticks(y[0], y[1], logY, 4).map((v) => [short(v), v]);
  for (const [text, value] of marks) {
    say(text, { x: left - 6, y: up(value) + 4, "text-anchor": "end" });
    box.append(svg("path", { class: "axis", opacity: 0.5, d: `M${left} ${up(value)}H${width - right}` }));
  }
  draw(box, across, up);
  host.append(box);
}
const range = (values, log) => {
  let low = Infinity, high = -Infinity;
  for (const value of values) if (value !== null && isFinite(value) && (!log || value > 0)) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low > high) return log ? [1, 10] : [0, 1];
  if (low === high) return log ? [low / 2, high * 2] : [low - 0.5 * (Math.abs(low) || 1), high + 0.5 * (Math.abs(high) || 1)];
  return [low, high];
};
const line = (points, across, up, fits = () => true) => {
  let path = "", pen = "M";
  for (const [a, b] of points) {
    if (a === null || b === null || !fits(b)) { pen = "M"; continue; }
    path += `${pen}${across(a).toFixed(1)} ${up(b).toFixed(1)}`; pen = "L";
  }
  return path;
};
const area = (points, across, up) => {
  if (!points.length) return "";
  const there = points.map(([a, , b]) => `${across(a).toFixed(1)} ${up(b).toFixed(1)}`);
  const back = points.slice().reverse().map(([a, b]) => `${across(a).toFixed(1)} ${up(b).toFixed(1)}`);
  return `M${there.join("L")}L${back.join("L")}Z`;
};
const legend = (entries) => element("div", { class: "legend" }, ...entries.map(([colour, text]) =>
  element("span", {}, element("i", { style: `background: var(--${colour})` }), text)));

// Sections -----------------------------------------------------------------------------------------------------------
const main = document.getElementById("main");
function section(id, title, about) {
  const made = element("section", { id }, element("h2", {}, title));
  if (about) made.append(element("p", { class: "about" }, about));
  main.append(made);
  return made;
}
function figure(host) { const made = element("figure"); host.append(made); return made; }

function course() {
  const { best, dots, bound, log } = contents.course;
  const bounded = bound.some((p) => p[1] !== null); // a Gaussian process has none
  const stopped = dots.some((p) => p[2]);
  const host = section("course", bounded ? "Best value and bound" : "Best value", "");
  if (!best.length) { host.append(element("p", {}, "Nothing has been told yet.")); return; }
  const known = best.map((p) => p[1]).filter((v) => v !== null);
  if (!dots.length) { host.append(element("p", {}, "No evaluation has given a value yet.")); return; }
  const levels = dots.map((p) => p[1]).sort((a, b) => a - b);
  const most = levels.length ? levels[Math.floor(0.97 * (levels.length - 1))] : 1, least = levels.length ? levels[Math.floor(0.03 * (levels.length - 1))] : 0;
  const y = range([...known, most, least], log), inside = (v) => v >= y[0] && v <= y[1];
  const x = [1, Math.max(2, best[best.length - 1][0])];
  host.append(legend([["best", "best so far"], ...(bounded ? [["bound", "bound: average over the distribution, 95 % interval"]] : []), ["dot", "evaluations"], ...(stopped ? [["early", "stopped early"]] : [])]));
  const clip = (v) => Math.min(y[1], Math.max(y[0], v));
  chart(figure(host), { x, y, logY: log, height: 300, xTitle: "evaluations", label: "best value and bound against evaluations" }, (box, across, up) => {
    for (const [a, b, stopped] of dots) if (inside(b)) box.append(svg("circle", { class: stopped ? "early" : "dot", cx: across(a).toFixed(1), cy: up(b).toFixed(1), r: 1.8 }));
    const banded = bound.filter((p) => p[1] !== null && p[2] !== null && p[3] !== null).map((p) => [p[0], clip(p[2]), clip(p[3])]);
    box.append(svg("path", { class: "band", d: area(banded, across, up) }));
    box.append(svg("path", { class: "bound", d: line(bound.map((p) => [p[0], p[1]]), across, up, inside) }));
    box.append(svg("path", { class: "best", d: line(best, across, up) }));
  });
  if (contents.best) {
    const rows = contents.best.point.map(([name, value]) => element("tr", {}, element("td", {}, name), element("td", {}, value)));
    host.append(element("details", { open: "" }, element("summary", {}, `the best point, evaluation ${contents.best.number}`), element("table", {}, element("tbody", {}, ...rows))));
  }
}
function front() {
  const found = contents.front;
  if (!found) return;
  const host = section("front", "The front", `${found.count} points that no other is better than in all of ${found.objectives} objectives${found.objectives > 2 ? ", by their first two" : ""}.`);
  if (!found.front.length) return;
  const reach = (k) => { // of the front and of what lies as far from it as it is long
    const [a, b] = range(found.front.map((p) => p[k])), length = b - a;
    const [low, high] = range([...found.dots, ...found.front].map((p) => p[k]));
    return [Math.max(low, a - length) - 0.04 * length, Math.min(high, b + length) + 0.04 * length];
  };
  const x = reach(0), y = reach(1);
  host.append(legend([["best", "on the front"], ["dot", "other evaluations"]]));
  chart(figure(host), { x, y, height: 320, xTitle: "objective 1 (upwards: objective 2)", label: "objectives of all evaluations and of the front" }, (box, across, up) => {
    for (const [a, b] of found.dots) if (a >= x[0] && a <= x[1] && b >= y[0] && b <= y[1]) box.append(svg("circle", { class: "dot", cx: across(a).toFixed(1), cy: up(b).toFixed(1), r: 1.8 }));
    for (const [a, b] of found.front) box.append(svg("circle", { class: "held", cx: across(a).toFixed(1), cy: up(b).toFixed(1), r: 3 }));
  });
}
function parts() {
  if (!contents.parts.length) return;
  const host = section("parts", "How the distribution narrows", "Half of the points of a stretch of the search lie in the dark band, nine in ten in the light one; of options, the shares. The dashed line is the best point.");
  const grid = element("div", { class: "grid" });
  host.append(grid);
  for (const part of contents.parts) {
    const made = element("figure", { class: "part" }, element("h3", {}, part.name));
    grid.append(made);
    if (!part.at.length) { made.append(element("p", { class: "about" }, "It has not existed in any point.")); continue; }
    const x = [1, Math.max(2, part.at[part.at.length - 1])], label = `values of ${part.name} against evaluations`;
    if (part.kind === "choice") {
      chart(made, { x, y: [0, 1], height: 170, label }, (box, across, up) => {
        let below = part.at.map(() => 0);
        part.options.forEach((_, k) => {
          const above = below.map((b, i) => b + part.shares[i][k]);
          const edges = part.at.map((a, i) => [a, below[i], above[i]]);
          if (edges.length === 1) edges.push([x[1], below[0], above[0]]);
          box.append(svg("path", { style: `fill: var(--option-${k % 8}); opacity: 0.75`, d: area(edges, across, up) }));
          below = above;
        });
      });
      made.append(legend(part.options.map((name, k) => [`option-${k % 8}`, name])));
      continue;
    }
    chart(made, { x, y: [part.low, part.high], logY: part.log, height: 170, label }, (box, across, up) => {
      for (const [kind, low, high] of [["wide", 0, 4], ["half", 1, 3]]) {
        const edges = part.at.map((a, i) => [a, part.quantiles[i][low], part.quantiles[i][high]]);
        if (edges.length === 1) edges.push([x[1], edges[0][1], edges[0][2]]);
        box.append(svg("path", { class: kind, d: area(edges, across, up) }));
      }
      box.append(svg("path", { class: "best", d: line(part.at.map((a, i) => [a, part.quantiles[i][2]]), across, up) }));
      if (part.best !== null) box.append(svg("path", { class: "here", d: `M${across(x[0])} ${up(part.best)}H${across(x[1])}` }));
    });
  }
}
function mattered() {
  const found = contents.mattered;
  const host = section("mattered", "Which parameters mattered", "");
  if (!found) { host.append(element("p", {}, "Too few evaluations to say.")); return; }
  const score = found.score;
  host.append(element("p", { class: "about" }, `What a forest of trees goes by to predict which evaluations are better. It explains ${Math.max(0, 100 * score).toFixed(0)} % of the ranks of evaluations that it has not seen${score < 0.3 ? ": too little to rely on" : ""}.`));
  const most = Math.max(...found.shares.map((s) => s[1]), 1e-12);
  for (const [name, share] of found.shares) {
    const bar = element("b"); bar.style.width = `${100 * share / most}%`;
    host.append(element("div", { class: "bar" }, element("span", {}, name), bar, element("span", {}, `${(100 * share).toFixed(1)} %`)));
  }
}
function reports() {
  const found = contents.reports;
  if (!found) return;
  const host = section("reports", "Values on the way", `Early stopping saved ${(100 * found.saved).toFixed(0)} % of the steps.`);
  const values = found.curves.flatMap(([, points]) => points.map((p) => p[1])).filter((v) => v !== null);
  const log = Math.min(...values) > 0 && Math.max(...values) > 50 * Math.min(...values);
  host.append(legend([["best", "finished"], ["early", "stopped early"]]));
  chart(figure(host), { x: [1, Math.max(2, found.longest)], y: range(values, log), logX: found.longest > 10, logY: log, height: 260, xTitle: "step", label: "values that evaluations reported" }, (box, across, up) => {
    for (const [stopped, points] of found.curves) box.append(svg("path", { class: stopped ? "way stopped" : "way", d: line(points.length > 1 ? points : [points[0], points[0]], across, up) }));
    for (const [stopped, points] of found.curves) { const [a, b] = points[points.length - 1]; if (b !== null) box.append(svg("circle", { class: stopped ? "early" : "held", cx: across(a).toFixed(1), cy: up(b).toFixed(1), r: 2.2 })); }
  });
}
function failures() {
  const { kinds, latest, count } = contents.failures;
  const host = section("failures", "Failures", count ? `${count} evaluations failed; they rank last, and nothing else comes of them.` : "No evaluation has failed.");
  if (!count) return;
  const table = (id, heads, rows) => element("table", { id }, element("thead", {}, element("tr", {}, ...heads.map(([text, kind]) => element("th", { class: kind }, text)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell, k) => element("td", { class: heads[k][1] }, String(cell)))))));
  host.append(table("kinds", [["error", ""], ["times", "number"]], kinds));
  host.append(element("details", {}, element("summary", {}, `the last ${latest.length}, one by one`), table("latest", [["evaluation", "number"], ["error", ""], ["worker", ""]], latest)));
}
function workers() {
  const found = contents.workers;
  if (!found) return;
  const host = section("workers", "The workers’ time line", `${found.names.length} worker${found.names.length > 1 ? "s" : ""}, ${(100 * found.busy).toFixed(0)} % of their time in evaluations.`);
  host.append(legend([["best", "evaluated"], ["early", "stopped early"], ["wrong", "failed"]]));
  const count = found.names.length, names = found.names.map((name) => name.split(":").pop());
  chart(figure(host), { x: [found.begin, Math.max(found.end, found.begin + 1e-9)], y: [-0.6, count - 0.4], height: Math.max(110, Math.min(640, 60 + 22 * count)), options: names, xTitle: "seconds since the first began", label: "when each worker evaluated" }, (box, across, up) => {
    const thick = Math.max(2, Math.min(14, 0.7 * Math.abs(up(1) - up(0))));
    for (const [worker, began, seconds, kind, number] of found.spans) {
      const a = across(began), b = across(began + seconds);
      const bar = svg("rect", { class: ["held", "early", "wrong"][kind], x: a.toFixed(2), width: Math.max(0.7, b - a - 0.5).toFixed(2), y: (up(worker) - thick / 2).toFixed(1), height: thick.toFixed(1) });
      bar.append(svg("title", {}, `evaluation ${number}: ${short(seconds)} s`));
      box.append(bar);
    }
  });
}
function show() {
  const height = document.documentElement.scrollTop;
  document.getElementById("name").textContent = contents.name;
  document.getElementById("note").textContent = contents.note;
  const facts = contents.facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)));
  document.getElementById("facts").replaceChildren(...facts);
  const open = Array.from(document.querySelectorAll("details"), (one) => one.open);
  main.replaceChildren();
  for (const draw of [course, front, parts, mattered, reports, failures, workers]) draw();
  document.querySelectorAll("details").forEach((one, k) => { if (k in open) one.open = open[k]; });
  document.documentElement.scrollTop = height;
}
show();
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; show(); } });
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

// Following ----------------------------------------------------------------------------------------------------------
if (document.documentElement.dataset.follow) {
  let text = JSON.stringify(contents);
  const follow = async () => {
    try {
      const answer = await fetch("/contents.json"), fresh = await answer.text();
      if (answer.ok && fresh !== text) { text = fresh; contents = JSON.parse(fresh); show(); }
    } catch { document.getElementById("note").textContent = "The server has ended; this is the last that it told."; }
    setTimeout(follow, 1000);
  };
  setTimeout(follow, 1000);
}
