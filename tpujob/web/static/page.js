// Scripts of every page: current ages, keys, stars, selections, copying, and views that change in place.
// Every page is complete without them.
"use strict";
(() => {
  const root = document.documentElement;
  const all = (what, within = document) => [...within.querySelectorAll(what)];
  root.classList.add("js");

  // Ages: as `domain/text.py` tells them, by the server's clock.
  const ahead = Number(root.dataset.now) * 1000 - Date.now();
  const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const formats = {
    age: (s) => { const [unit, size] = UNITS.find(([, size]) => s >= size) ?? UNITS[3]; return `${Math.floor(s / size)}${unit}`; },
    span: (s) => {
      const two = (large, size, small, less) => `${Math.floor(s / size)}${large}${String(Math.floor((s % size) / less)).padStart(2, "0")}${small}`;
      return s < 60 ? `${s}s` : s < 3600 ? two("m", 60, "s", 1) : s < 86400 ? two("h", 3600, "m", 60) : two("d", 86400, "h", 3600);
    },
  };
  const tellTimes = (within = document) => {
    const now = Date.now() + ahead;
    for (const time of all("time[data-age]", within)) {
      const { age } = time.dataset, past = (now - Date.parse(time.dateTime)) / 1000;
      const text = (formats[age] ?? formats.span)(Math.floor(Math.max(0, age === "till" ? -past : past)));
      if (time.textContent !== text) time.textContent = text;
    }
  };
  setInterval(() => { if (!document.hidden && !document.body.hasAttribute("data-paused")) tellTimes(); }, 5_000);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) tellTimes(); });

  // Stars: kept in this browser, for each place that the page is served from. Starred rows come first.
  const KEY = "tpujob.stars";
  const stars = () => { try { return new Set(JSON.parse(localStorage.getItem(KEY) ?? "[]")); } catch { return new Set(); } };
  const pin = (rows = document.getElementById("rows")) => {
    if (!rows) return;
    const starred = stars();
    for (const button of all("[data-star]", rows)) button.setAttribute("aria-pressed", String(starred.has(button.dataset.star)));
    const first = all("tr[data-job]", rows).filter((row) => starred.has(row.dataset.job));
    first.reverse().forEach((row) => { if (rows.firstElementChild !== row) rows.prepend(row); });
  };
  const star = (job) => {
    const starred = stars();
    if (!starred.delete(job)) starred.add(job);
    try { localStorage.setItem(KEY, JSON.stringify([...starred])); } catch { /* nothing is kept here */ }
    pin();
  };

  // Selections.
  const count = () => {
    const boxes = all('#rows input[name="job"]');
    const picked = boxes.filter((box) => box.checked);
    for (const box of boxes) box.closest("tr").classList.toggle("picked", box.checked);
    for (const box of all("[data-all]")) {
      box.checked = boxes.length > 0 && picked.length === boxes.length;
      box.indeterminate = picked.length > 0 && picked.length < boxes.length;
    }
    for (const bar of all("[data-picked]")) bar.hidden = !picked.length;
    for (const number of all("[data-count]")) number.textContent = picked.length;
  };
  document.addEventListener("change", ({ target }) => {
    if (target.matches("[data-all]")) all('#rows input[name="job"]').forEach((box) => { box.checked = target.checked; });
    if (target.matches('[data-all], input[name="job"]')) count();
  });

  document.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-star], [data-copy], [data-open]");
    if (!button) return;
    if (button.dataset.star) star(button.dataset.star);
    if (button.dataset.open) document.getElementById(button.dataset.open).showModal();
    if (button.dataset.copy) navigator.clipboard?.writeText(button.dataset.copy).then(() => copied(button), () => say("The browser did not copy it."));
  });
  const copied = (button) => {
    say("Copied.");
    const shape = button.querySelector("use");
    shape.setAttribute("href", "#i-succeeded");
    setTimeout(() => shape.setAttribute("href", "#i-copy"), 1500);
  };
  const say = (text) => { document.getElementById("status").textContent = text; };

  // Keys: j and k go through the rows, o opens, x selects.
  const at = () => document.querySelector("#rows tr.at");
  const go = (by) => {
    const rows = all("#rows tr[data-job]");
    if (!rows.length) return;
    const next = rows[Math.max(0, Math.min(rows.length - 1, rows.indexOf(at()) + by))] ?? rows[0];
    next.querySelector(".name a").focus(); // which marks its row
    next.scrollIntoView({ block: "nearest" });
  };
  const keys = {
    j: () => go(1),
    k: () => go(-1),
    o: () => at()?.querySelector(".name a").click(),
    x: () => at()?.querySelector('input[name="job"]')?.click(),
    "?": () => document.getElementById("keys").showModal(),
    "/": () => { const field = document.querySelector('input[type="search"]'); field?.focus(); field?.select(); },
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest('input:not([type="checkbox"]), textarea, select, [contenteditable]');
    if (typing && event.key === "Escape") typing.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const act = keys[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  document.addEventListener("focusin", ({ target }) => {
    const row = target.closest("#rows tr[data-job]");
    if (row && row !== at()) { at()?.classList.remove("at"); row.classList.add("at"); }
  });

  // Submitting a form closes the box of filters, which would cover the results.
  document.addEventListener("submit", ({ target }) => target.querySelector("details[open]")?.removeAttribute("open"));

  // A form leaves out empty fields, so that addresses stay short.
  document.addEventListener("formdata", ({ target, formData }) => {
    if (target.method !== "get") return;
    for (const [name, value] of [...formData]) if (value === "") formData.delete(name);
  });

  // Views that change in place; other pages are opened as usual.
  document.addEventListener("htmx:before:swap", (event) => {
    const { ctx } = event.detail;
    if (/<main id="main"/.test(ctx.text ?? "")) return pin(event.detail.tasks[0]?.fragment.querySelector("#rows"));
    event.preventDefault();
    location.href = ctx.request.action;
  });
  const settled = () => {
    pin(); count(); tellTimes();
    document.activeElement.closest("#rows tr[data-job]")?.classList.add("at");
  };
  document.addEventListener("htmx:after:swap", settled);

  // In a narrow window, the name of this page is in sight; by `scrollIntoView`, the first Tab would lead behind it.
  const here = document.querySelector(".top nav [aria-current]");
  if (here) here.parentElement.scrollLeft = here.offsetLeft - here.parentElement.offsetLeft - 60;
  settled();
})();
