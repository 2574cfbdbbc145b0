"use strict";

// Sections with data-live are fetched again while somebody looks; logs grow; tables sort by their headings.
(() => {
  const told = new Map(); // id of a section -> its HTML as the server last sent it
  const orders = new Map(); // id of a table -> [column, up]
  const own = document.getElementById("script").dataset;
  const connection = document.getElementById("connection");

  function say(words) {
    if (connection && connection.textContent !== words) connection.textContent = words;
  }

  function sort(table, column, up) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[column].setAttribute("aria-sort", up ? "ascending" : "descending");
    const numeric = heads[column].classList.contains("n");
    const key = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
    const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
    rows.sort(([a], [b]) => {
      if (a === "" || b === "") return (a === "") - (b === "");
      const order = numeric ? a - b : a.localeCompare(b, undefined, { numeric: true });
      return up ? order : -order;
    });
    table.tBodies[0].append(...rows.map(([, row]) => row));
  }

  function enliven(part) {
    for (const table of part.querySelectorAll("table.sortable")) {
      [...table.tHead.rows[0].cells].forEach((head, column) => {
        head.querySelector("button")?.addEventListener("click", () => {
          const up = head.getAttribute("aria-sort") !== "ascending";
          orders.set(table.id, [column, up]);
          sort(table, column, up);
        });
      });
      if (orders.has(table.id)) sort(table, ...orders.get(table.id));
    }
    for (const form of part.querySelectorAll("form[data-confirm]")) {
      form.addEventListener("submit", (event) => {
        if (!confirm(form.dataset.confirm)) event.preventDefault();
      });
    }
  }

  // How to find the element with the focus again in a newer copy of its section.
  function mark(element) {
    if (element.id) return `#${CSS.escape(element.id)}`;
    if (element.matches("a[href]")) return `a[href="${CSS.escape(element.getAttribute("href"))}"]`;
    const form = element.closest("form[action]");
    if (form) return `form[action="${CSS.escape(form.getAttribute("action"))}"] button`;
    const head = element.closest("table[id] th");
    if (head) return `#${CSS.escape(head.closest("table").id)} th:nth-child(${head.cellIndex + 1}) button`;
    return element.matches(".scroll") ? `.scroll[aria-label="${CSS.escape(element.ariaLabel)}"]` : null;
  }

  function replace(old, fresh) {
    if (told.get(old.id) === fresh.outerHTML) return;
    const picked = getSelection();
    if (!picked.isCollapsed && picked.containsNode(old, true)) return; // somebody copies from it
    told.set(old.id, fresh.outerHTML);
    const focus = old.contains(document.activeElement) ? mark(document.activeElement) : null;
    const left = [...old.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
    const open = [...old.querySelectorAll("details[open]")].map((details) => details.id);
    old.replaceWith(fresh);
    enliven(fresh);
    for (const id of open) if (id) document.getElementById(id)?.setAttribute("open", "");
    fresh.querySelectorAll(".scroll").forEach((box, i) => {
      [box.scrollLeft, box.scrollTop] = left[i] ?? [0, 0];
    });
    if (focus) fresh.querySelector(focus)?.focus({ preventScroll: true });
  }

  async function get(url) {
    const answer = await fetch(url, { cache: "no-store", redirect: "error", signal: AbortSignal.timeout(20000) });
    if (answer.status === 401) location.reload();
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    return answer;
  }

  async function refresh(kind) {
    const asked = location.href;
    const url = new URL(asked);
    url.hash = "";
    url.searchParams.set("part", kind);
    const text = await (await get(url)).text();
    if (location.href !== asked) return true; // another list is wanted by now
    const parsed = new DOMParser().parseFromString(text, "text/html");
    for (const fresh of parsed.querySelectorAll("section[data-live]")) {
      const old = document.getElementById(fresh.id);
      if (old) replace(old, document.adoptNode(fresh));
    }
    return parsed.querySelector("[data-later]") !== null; // not ready: ask again soon
  }

  // A list that is searched, sorted and turned by the server: its address changes, and the part that shows it.
  const filter = document.querySelector("form[data-filter]");
  async function show(address, remember) {
    history[remember ? "pushState" : "replaceState"](null, "", address);
    try {
      await refresh("fast");
      const told = document.getElementById("told");
      if (told) told.textContent = document.querySelector("[data-told]")?.textContent ?? "";
    } catch {
      location.reload(); // says what is wrong
    }
  }

  function fill(everything) {
    const asked = new URL(location.href).searchParams;
    for (const field of filter.elements) {
      if (field.type === "checkbox") field.checked = asked.has(field.name);
      else if (field.name && (everything || field !== document.activeElement)) field.value = asked.get(field.name) ?? "";
    }
  }

  if (filter) {
    let typing = 0;
    const search = () => {
      clearTimeout(typing);
      const url = new URL(filter.action);
      for (const [name, value] of new FormData(filter)) if (value) url.searchParams.set(name, value);
      if (url.href !== location.href) show(url, false);
    };
    filter.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(search, 50);
    });
    filter.addEventListener("submit", (event) => { event.preventDefault(); search(); });
    document.addEventListener("click", (event) => {
      const turn = event.target.closest?.("a[data-list]");
      if (!turn || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
      event.preventDefault();
      show(turn.href, true).then(() => fill(false));
    });
    addEventListener("popstate", () => show(location.href, false).then(() => fill(true)));
  }

  const LONGEST = 200000; // characters of a log that a page keeps
  async function follow(log) {
    const url = new URL(log.dataset.log, location.href);
    url.searchParams.set("cursor", log.dataset.cursor);
    const answer = await get(url);
    log.dataset.cursor = answer.headers.get("x-cursor");
    const more = await answer.text();
    if (!more) return;
    const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
    if (log.dataset.empty) { log.textContent = ""; delete log.dataset.empty; }
    log.textContent = (log.textContent + more).slice(-LONGEST);
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  // One after the other: a slow server is never asked twice at a time.
  function repeat(seconds, now, ask) {
    let wait = seconds;
    const turn = async () => {
      if (!document.hidden) {
        try {
          const soon = await ask();
          wait = soon ? Math.min(seconds, 2) : seconds;
          say("");
        } catch {
          wait = Math.min(wait * 2, 30);
          say(`No answer from the server; what you see is old. Trying again every ${wait} s.`);
        }
      }
      setTimeout(turn, wait * 1000);
    };
    setTimeout(turn, now ? 0 : seconds * 1000);
  }

  for (const wait of document.querySelectorAll("[data-later]")) wait.hidden = false;
  for (const part of document.querySelectorAll("section[id]")) told.set(part.id, part.outerHTML);
  enliven(document);
  for (const kind of ["fast", "slow"]) {
    const parts = document.querySelectorAll(`section[data-live=${kind}]`);
    const late = [...parts].some((part) => part.querySelector("[data-later]"));
    if (parts.length) repeat(Number(own[kind]), late, () => refresh(kind));
  }
  const log = document.getElementById("log");
  if (log) {
    log.scrollTop = log.scrollHeight;
    repeat(Number(own.fast), false, () => follow(log));
  }
})();
