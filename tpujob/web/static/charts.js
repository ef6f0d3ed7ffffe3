// Curves that can be looked into: when they come into view, uPlot draws them over what the server drew. Without it, the
// page has the server's drawing and the tables.
"use strict";
(() => {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const load = (section) => new Promise((done, failed) => {
    if (window.uPlot) { done(); return; }
    const script = document.createElement("script");
    script.src = section.dataset.uplot;
    script.integrity = section.dataset.uplotHash;
    script.onload = done;
    script.onerror = () => failed(new Error("uPlot did not come"));
    document.head.append(script);
  });

  const short = (value) => (value === null || value === undefined ? "–" : Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 }));
  // Of each attempt: the steps that count, and those that were lost.
  const parts = (curves) => curves.flatMap(({ attempt, points, kept }) => {
    const good = kept === null ? points : points.filter(([step]) => step <= kept);
    const lost = kept === null ? [] : points.slice(Math.max(0, good.length - 1));
    return [{ attempt, points: good, lost: false }, { attempt, points: lost, lost: true }].filter((one) => one.points.length);
  });

  // As the server's drawing: what hardly changes shall look so.
  const room = (least, most) => {
    const high = Math.max((most - least) * 1.08, 0.1 * Math.max(Math.abs(most), Math.abs(least))) || 1;
    return [(least + most - high) / 2, (least + most + high) / 2];
  };

  const drawings = new WeakMap();
  const draw = (box, chart) => {
    const drawn = parts(chart.curves);
    const tables = drawn.map(({ points }) => [points.map((p) => p[0]), points.map((p) => p[4])]);
    const data = tables.length > 1 ? uPlot.join(tables) : tables[0];
    const before = drawings.get(box);
    const kinds = drawn.map(({ attempt, lost }) => `${attempt} ${lost}`).join();
    if (before?.kinds === kinds) { before.plot.setData(data); return; }
    const axis = { stroke: css("--mute"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 }, font: "11px system-ui" };
    const series = drawn.map(({ attempt, lost }) => ({
      label: `attempt ${attempt}${lost ? ", lost" : ""}`, stroke: css(lost ? "--bad" : "--accent"), width: 1.6, spanGaps: true,
      dash: lost ? [4, 3] : undefined, points: { show: false }, value: (_, value) => short(value),
    }));
    const plot = new uPlot({
      width: box.clientWidth, height: 190, cursor: { sync: { key: "steps" } }, 
      scales: { x: { time: false }, y: { range: (_, least, most) => room(least, most) } },
      axes: [{ ...axis, size: 30 }, { ...axis, size: 56, values: (_, ticks) => ticks.map(short) }],
      series: [{ label: "step", value: (_, value) => (value === null ? "–" : value.toLocaleString("en")) }, ...series],
      legend: { live: true },
    }, data);
    box.replaceChildren(plot.root);
    box.classList.add("drawn");
    drawings.set(box, { plot, kinds });
    new ResizeObserver(() => { if (Math.abs(plot.width - box.clientWidth) > 1) plot.setSize({ width: box.clientWidth, height: 190 }); }).observe(box);
  };

  const show = async (section) => {
    const [answer] = await Promise.all([fetch(section.dataset.metrics, { headers: { accept: "application/json" } }), load(section)]);
    if (!answer.ok) return;
    const { charts } = await answer.json();
    for (const chart of charts) {
      const figure = [...section.querySelectorAll("[data-chart]")].find((one) => one.dataset.chart === chart.name);
      if (figure) draw(figure.querySelector(".canvas"), chart);
    }
    section.dataset.drawn = "";
    last = Date.now();
  };

  // While a job goes on, its curves are asked for again, at most each half minute, when somebody can see them.
  const AGAIN = 30_000;
  let last = 0;
  document.addEventListener("tpujob:rows", () => {
    const section = document.querySelector("[data-drawn]");
    if (!section || document.hidden || Date.now() - last < AGAIN) return;
    const { top, bottom } = section.getBoundingClientRect();
    if (bottom < 0 || top > innerHeight) return;
    last = Date.now();
    show(section).catch(() => { /* the next time */ });
  });

  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      show(target).catch(() => { /* what the server drew stays */ });
    }
  });
  for (const section of document.querySelectorAll("[data-metrics]")) if (section.querySelector("[data-chart]")) seen.observe(section);
})();
