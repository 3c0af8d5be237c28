"use strict";

// Sorting: the button in a head. First click up, second down; what is no number goes last.
function sortBy(table, column, direction) {
  const body = table.tBodies[0];
  const keyed = [...body.rows].map((row) => {
    const cell = row.cells[column];
    return {row, number: cell.dataset.v === undefined ? NaN : Number(cell.dataset.v), text: cell.textContent};
  });
  keyed.sort((a, b) => {
    const missing = Number.isNaN(a.number) - Number.isNaN(b.number);
    if (missing) return missing;
    const order = Number.isNaN(a.number) ? a.text.localeCompare(b.text, "en", {numeric: true}) : a.number - b.number;
    return direction * order;
  });
  body.append(...keyed.map((each) => each.row));
}

for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement;
    const direction = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
    sortBy(head.closest("table"), head.cellIndex, direction);
  });
}

// Filtering: a row stays if it has every word.
for (const input of document.querySelectorAll("input[type=search]")) {
  const sheet = input.closest(".sheet");
  const rows = [...sheet.querySelector("tbody").rows];
  // With a space between cells, or the end of one and the start of the next would make a word.
  const texts = rows.map((row) => [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase());
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, i) => {
      row.hidden = !words.every((word) => texts[i].includes(word));
      shown += !row.hidden;
    });
    sheet.querySelector("output").value =
      `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
  });
}

// Charts: drawn when they come into view, and again when the reader's system turns dark or light.
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function draw(box) {
  const config = structuredClone(themes[dark.matches ? "dark" : "light"]);
  const spec = JSON.parse(box.firstElementChild.textContent);
  if (spec.facet) {  // small charts side by side, as many as there is room for, and two on a phone
    const room = box.clientWidth - 60, gap = spec.spacing;
    spec.spec.width = Math.min(spec.spec.width, Math.floor((room - gap) / 2));
    const most = Math.max(1, Math.floor((room + gap) / (spec.spec.width + gap)));
    const count = spec.facet.sort.length;  // as many rows as it takes, all about as long
    spec.columns = Math.ceil(count / Math.ceil(count / most));
  }
  // A legend begins where the plot does, to the right of the axis.
  config.legend.labelLimit = box.clientWidth - (spec.encoding?.y?.axis?.labelLimit ?? 40) - 30;
  const place = box.querySelector("div") ?? box.appendChild(document.createElement("div"));
  place.style.width = "100%";
  vegaEmbed(place, spec, {config, renderer: "svg", actions: false, logLevel: 1, tooltip: {theme: dark.matches ? "dark" : "light"}});
}

if (window.vegaEmbed) {
  const boxes = [...document.querySelectorAll(".chart")];
  boxes.forEach(draw);
  dark.addEventListener("change", () => boxes.forEach(draw));
}
