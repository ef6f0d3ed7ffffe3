// Scripts of the page of a log: loading lines while scrolling, following, the slider, local times.
// Each window is fetched from the page itself, so only the server formats lines; few lines are kept at a time.
"use strict";
(() => {
  const MOST = 240; // lines
  const NEAR = 400; // pixels from an end at which the next window is fetched
  const by = (id) => document.getElementById(id);
  const box = by("scroll"), list = by("log");
  if (!box) return;
  const news = by("news"), slider = by("where"), range = by("range");
  let before = Number(box.dataset.before); // number of lines before the first shown one
  let total = Number(box.dataset.total);
  let seen = total; // number of lines when the last line was in sight
  let busy = false;
  let settled = 0; // position to which this script has scrolled

  const rows = () => list.children.length;
  const last = () => before + rows() >= total;
  const atEnd = () => box.scrollTop + box.clientHeight >= box.scrollHeight - 30;
  let following = !new URLSearchParams(location.search).has("line") && last();

  // Windows ----------------------------------------------------------------------------------------------------------

  const ask = async (place) => {
    const query = new URLSearchParams(box.dataset.query);
    query.delete("tb");
    for (const [name, value] of Object.entries(place)) query.set(name, value);
    const answer = await fetch(`${location.pathname}?${query}`, { headers: { accept: "text/html" } });
    if (!answer.ok) throw new Error(answer.status);
    const got = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("scroll");
    const found = [...got.querySelector("ol").children];
    localTimes(found);
    return { before: Number(got.dataset.before), total: Number(got.dataset.total), found };
  };
  const alone = async (work) => {
    if (busy) return;
    busy = true;
    try { await work(); } catch { /* what is shown stays; the next scroll asks again */ } finally { busy = false; }
  };
  const placeOf = (row) => { const [of, line] = row.id.slice(1).split("-"); return { of, line }; };
  const scrollTo = (top) => { box.scrollTop = top; settled = box.scrollTop; };
  const known = (row) => by(row.id) !== null;

  const later = () => alone(async () => {
    if (!rows()) return show({ part: 1 });
    const got = await ask({ ...placeOf(list.lastElementChild), side: "after" });
    total = got.total;
    list.append(...got.found.filter((row) => !known(row)));
    const top = box.scrollTop, gone = Math.max(0, rows() - MOST);
    const height = [...list.children].slice(0, gone).reduce((sum, row) => sum + row.offsetHeight, 0);
    for (let n = 0; n < gone; n++) list.firstElementChild.remove();
    before += gone;
    scrollTo(following ? box.scrollHeight : top - height);
    tell();
  });
  const earlier = () => alone(async () => {
    const got = await ask({ ...placeOf(list.firstElementChild), side: "before" });
    total = got.total;
    const top = box.scrollTop, was = box.scrollHeight;
    const fresh = got.found.filter((row) => !known(row));
    list.prepend(...fresh);
    scrollTo(top + box.scrollHeight - was);
    while (rows() > MOST) list.lastElementChild.remove();
    before = Math.max(0, before - fresh.length);
    tell();
  });
  const show = async (place) => {
    const got = await ask(place);
    ({ before, total } = got);
    list.replaceChildren(...got.found);
    scrollTo(last() ? box.scrollHeight : 0);
    tell();
  };
  const jump = (part) => alone(async () => { following = part >= 1; await show({ part }); });

  // Following --------------------------------------------------------------------------------------------------------

  const tell = () => {
    if (last() && atEnd()) seen = total;
    const more = total - seen;
    news.hidden = following || more <= 0;
    if (!news.hidden) news.textContent = `${more.toLocaleString("en")} new ${more === 1 ? "line" : "lines"}`;
    const at = (top) => before + Math.max(0, rows() * (top - 6) / Math.max(1, list.clientHeight - 12)); // lines above it, below a margin of 6 px
    const end = following || (last() && atEnd());
    const first = Math.floor(at(box.scrollTop) + 0.01) + 1, through = end ? total : Math.ceil(at(box.scrollTop + box.clientHeight) - 0.01);
    if (total) range.textContent = `${first.toLocaleString("en")}–${through.toLocaleString("en")} of ${total.toLocaleString("en")}`;
    if (document.activeElement !== slider) slider.value = end ? 1000 : total ? Math.round(at(box.scrollTop) / total * 1000) : 0;
  };
  box.addEventListener("scroll", () => {
    if (box.scrollTop !== settled) following = last() && atEnd(); // a person scrolled: upwards lets go
    settled = box.scrollTop;
    if (box.scrollTop + box.clientHeight > box.scrollHeight - NEAR && !last()) later();
    else if (box.scrollTop < NEAR && before > 0 && rows()) earlier();
    tell();
  });
  news.addEventListener("click", () => jump(1));
  slider.addEventListener("change", () => jump(slider.value / 1000));
  box.addEventListener("keydown", (event) => {
    const part = { Home: 0, End: 1 }[event.key];
    if (part !== undefined) { event.preventDefault(); jump(part); }
  });
  // the live page has fetched the number of lines
  document.addEventListener("htmx:after:swap", () => {
    total = Math.max(total, Number(by("log-end").dataset.total));
    if (following && !last()) later(); else tell();
  });

  // Times and the form -----------------------------------------------------------------------------------------------

  const localTimes = (some) => {
    if (box.dataset.times !== "local") return;
    for (const time of some.map((row) => row.querySelector("time"))) {
      const at = new Date(time.dateTime), two = (n, width = 2) => String(n).padStart(width, "0");
      time.textContent = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${two(at.getMilliseconds(), 3)}`;
    }
  };
  by("logs-form").addEventListener("change", ({ target, currentTarget }) => { if (target.matches("select")) currentTarget.requestSubmit(); });

  localTimes([...list.children]);
  const here = list.querySelector(".here");
  if (here) scrollTo(here.offsetTop - box.clientHeight / 2); else if (following) scrollTo(box.scrollHeight);
  tell();
})();
