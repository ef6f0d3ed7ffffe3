// One crosshair over all charts of a page, with the value of each run there. The server draws and updates the charts.
"use strict";
(() => {
  const WIDTH = 600, HEIGHT = 120; // of the box of a plot
  const all = (what, within = document) => [...within.querySelectorAll(what)];
  const numbers = (text) => text.split(" ").map(Number);
  const parsed = new WeakMap(); // polyline -> its text and points, as they are the same at most moves
  const pointsOf = (line) => {
    const text = line.getAttribute("points");
    let known = parsed.get(line);
    if (known?.text !== text) parsed.set(line, (known = { text, points: text.split(" ").map((point) => point.split(",").map(Number)) }));
    return known.points;
  };
  const nearest = (points, at) => {
    let low = 0, high = points.length - 1;
    while (high - low > 1) { const middle = (low + high) >> 1; if (points[middle][0] < at) low = middle; else high = middle; }
    return Math.abs(points[low][0] - at) <= Math.abs(points[high][0] - at) ? points[low] : points[high];
  };
  const plain = (value) => Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });
  const span = (s) => (s < 60 ? `${s}s` : s < 3600 ? `${Math.floor(s / 60)}m${String(s % 60).padStart(2, "0")}s` : `${Math.floor(s / 3600)}h${String(Math.floor((s % 3600) / 60)).padStart(2, "0")}m`);
  const keep = (place, text) => { place.dataset.last ??= place.textContent; place.textContent = text; };

  // Returns the nearest point of each run: of two attempts the later one, which repeated the steps.
  const values = (plot, at) => {
    const byRun = new Map();
    for (const line of all("polyline", plot)) {
      const point = nearest(pointsOf(line), at), run = line.dataset.run, before = byRun.get(run);
      if (!before || Math.abs(point[0] - at) <= Math.abs(before.point[0] - at) + 1) byRun.set(run, { point, line });
    }
    return byRun;
  };
  let pointer = null; // the last place of the pointer in a plot, as a part of its width
  const show = () => {
    for (const plot of all(".chart .plot")) {
      const chart = plot.closest(".chart"), places = all(".runs [data-run] b", chart);
      plot.querySelector(".cross").setAttribute("d", pointer === null ? "" : `M${pointer * WIDTH} 0V${HEIGHT}`);
      if (pointer === null) {
        chart.querySelector("output").textContent = "";
        for (const place of places) if (place.dataset.last !== undefined) { place.textContent = place.dataset.last; delete place.dataset.last; }
        continue;
      }
      const [first, last] = numbers(plot.dataset.range), [bottom, top] = numbers(plot.dataset.values);
      const found = values(plot, pointer * WIDTH);
      const value = ([, y]) => { const v = bottom + (top - bottom) * (1 - y / HEIGHT); return plain("log" in plot.dataset ? 10 ** v : v); };
      const closest = [...found.values()].map(({ point }) => point[0]).reduce((a, b) => (Math.abs(b - pointer * WIDTH) < Math.abs(a - pointer * WIDTH) ? b : a));
      const x = Math.round(first + ((last - first) * closest) / WIDTH);
      const where = "time" in plot.dataset ? span(x) : `step ${x.toLocaleString("en")}`;
      for (const place of places) {
        const near = found.get(place.parentElement.dataset.run);
        keep(place, near && Math.abs(near.point[0] - closest) < WIDTH / 50 ? value(near.point) : "–");
      }
      const [only] = found.values();
      chart.querySelector("output").textContent = places.length ? where : `${where}: ${value(only.point)} (${only.line.textContent.trim()})`;
    }
  };
  // A run is shown alone while its name is pointed at.
  const dim = (run) => { for (const line of all(".many .plot polyline")) line.classList.toggle("dimmed", run !== undefined && line.dataset.run !== run); };
  let asked = 0;
  const move = ({ target, clientX }) => {
    const plot = target.closest?.(".chart .plot, .chart .marks");
    dim(target.closest?.(".many .runs [data-run]")?.dataset.run);
    if (!plot && pointer === null) return;
    const box = plot?.getBoundingClientRect();
    pointer = box ? Math.min(1, Math.max(0, (clientX - box.left) / box.width)) : null;
    asked ||= requestAnimationFrame(() => { asked = 0; show(); });
  };
  document.addEventListener("pointermove", move);
  document.addEventListener("pointerdown", move);
  document.addEventListener("htmx:after:swap", () => { if (pointer !== null) show(); });
})();
