"use strict";

// Tables: a click on a heading sorts by it, a second click the other way; gaps always come last.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") === "descending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
    const numeric = head.classList.contains("n");
    const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
    rows.sort(([a], [b]) => {
      if (a === "" || b === "") return (a === "") - (b === "");
      const order = numeric ? a - b : a.localeCompare(b);
      return up ? order : -order;
    });
    table.tBodies[0].append(...rows.map(([, row]) => row));
  }));
}

// Downloads: the page holds the tables, by column, as JSON, packed with gzip.
const unpacked = async (text) => {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
};
const quoted = (value) => {
  const text = value === null ? "" : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
for (const button of document.querySelectorAll("button[data-format]")) {
  button.addEventListener("click", async () => {
    const { name, table } = button.parentElement.dataset;
    const columns = await unpacked(table);
    const names = Object.keys(columns);
    const rows = (columns[names[0]] ?? []).map((_, row) => names.map((n) => columns[n][row]));
    const csv = button.dataset.format === "csv";
    const text = csv
      ? [names, ...rows].map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n"
      : JSON.stringify(rows.map((row) => Object.fromEntries(names.map((n, i) => [n, row[i]]))));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: csv ? "text/csv" : "application/json" }));
    link.download = `${name}.${button.dataset.format}`;
    link.click();
    URL.revokeObjectURL(link.href);
  });
}

// Timelines: what runs under the pointer, where and when. Without this script the titles still show.
const tip = document.getElementById("tip");
for (const svg of document.querySelectorAll("svg.timeline")) {
  for (const group of svg.querySelectorAll("g")) {
    const title = group.querySelector("title");
    group.dataset.name = title.textContent;
    title.remove();
  }
  const { left, right, start, end, unit, height } = svg.dataset;
  const tops = svg.dataset.tops.split(" ").map(Number);
  const rows = svg.dataset.rows.split("|");
  svg.addEventListener("mousemove", (event) => {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const row = tops.findLastIndex((top) => top <= point.y);
    const inside = row >= 0 && point.y < tops[row] + Number(height) && point.x >= left && point.x <= right;
    tip.style.display = inside ? "block" : "none";
    if (!inside) return;
    const time = Number(start) + (point.x - left) / (right - left) * (end - start);
    const job = event.target.closest("g")?.dataset.name ?? "idle";
    tip.textContent = `${rows[row]}, at ${time.toFixed(2)} ${unit}\n${job}`;
    const x = event.clientX + 14, y = event.clientY + 14;
    tip.style.left = `${Math.max(0, Math.min(x, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.max(0, Math.min(y, innerHeight - tip.offsetHeight - 8))}px`;
  });
  svg.addEventListener("mouseleave", () => { tip.style.display = "none"; });
}
