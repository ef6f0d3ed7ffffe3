// Shows the step and the value of each attempt under the pointer of a chart. The server draws and updates the chart.
"use strict";
document.addEventListener("pointermove", ({ target, clientX }) => {
  const plot = target.closest?.(".plot");
  for (const one of document.querySelectorAll(".chart output:not(:empty)")) if (!plot || one.closest(".chart") !== plot.closest(".chart")) one.textContent = "";
  if (!plot) return;
  const { left, width } = plot.getBoundingClientRect();
  const [first, last] = plot.dataset.steps.split(" ").map(Number);
  const [bottom, top] = plot.dataset.values.split(" ").map(Number);
  const at = (600 * (clientX - left)) / width;
  const near = [...plot.querySelectorAll("polyline")].map((line) => {
    const points = line.getAttribute("points").split(" ").map((point) => point.split(",").map(Number));
    return [line, ...points.reduce((a, b) => (Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a))];
  });
  const closest = Math.min(...near.map(([, x]) => Math.abs(x - at)));
  const step = (x) => Math.round(first + ((last - first) * x) / 600).toLocaleString("en");
  const value = (y) => Number((bottom + (top - bottom) * (1 - y / 120)).toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });
  plot.closest(".chart").querySelector("output").textContent = near.filter(([, x]) => Math.abs(x - at) <= closest + 1)
    .map(([line, x, y]) => `step ${step(x)}: ${value(y)} (${line.textContent})`).join("; ");
});
