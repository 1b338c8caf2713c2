"use strict";
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, row = head.parentElement, body = row.closest("table").tBodies[0];
    const column = Array.prototype.indexOf.call(row.children, head);
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of row.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const numeric = head.classList.contains("number");
    const key = (line) => {
      const cell = line.children[column];
      return numeric ? parseFloat(cell.dataset.value ?? "NaN") : cell.textContent;
    };
    const compare = (a, b) => {
      const x = key(a), y = key(b);
      if (numeric && (isNaN(x) || isNaN(y))) return isNaN(x) - isNaN(y); // what was not measured stays last
      const order = numeric ? x - y : x.localeCompare(y);
      return down ? -order : order;
    };
    body.append(...Array.from(body.rows).sort(compare));
  });
}
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
