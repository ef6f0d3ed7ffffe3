// Keeps the page that is open live: the one file that knows the stream at `/live`; `web/live/` is its other end.
// A page that lives has `data-live` on its body, parts with ids, and its rows, which have ids too, in `#rows`.
// What it tells the page: `data-paused` on the body, and the event `tpujob:rows` after rows were written.
"use strict";
(() => {
  const S = 1000;
  const QUIET = 30 * S; // without a byte: the stream is stale, and the page asks by itself
  const POLL = 10 * S;
  const SOON = [0.5 * S, 5 * S]; // between two tries, in the first minute
  const LATER = 30 * S;
  const SEATS = 4; // streams of one browser: over HTTP/1.1 it has six connections to a place
  const NEWS = 10 * S; // between two words in the status line
  const OWN = ["at", "picked", "gone"]; // classes that scripts give; the server knows nothing of them
  const KEPT = ["open", "aria-pressed", "data-htmx-powered"]; // and attributes

  const by = (id) => document.getElementById(id);
  const place = by("live");
  if (!place) return;
  const make = (name, more) => place.appendChild(Object.assign(document.createElement(name), more));
  const badge = make("span", { className: "badge" });
  const applying = make("button", { type: "button", className: "apply", hidden: true });
  const pausing = make("button", { type: "button", className: "quiet", hidden: true });

  let view; // path?query of the page that is open
  let id = ""; // the newest state that was applied
  let stream = null; // what closes it
  let timer = 0; // the next try
  let failing = 0; // since when no stream came about
  let tries = 0;
  let heard = 0; // when the last byte came
  let looked = 0; // when the page last asked by itself
  let asking = false;
  let paused = false;
  let over = false; // there is nothing more to come
  let store = null; // since when the store does not answer, and when it last did

  // What is shown of the stream itself -------------------------------------------------------------------------------

  const clock = (at) => new Date(at).toLocaleTimeString([], { hour12: false });
  const tell = (state, text) => {
    place.dataset.state = state;
    if (badge.textContent !== text) badge.textContent = text;
  };
  const tellState = () => {
    const stale = Date.now() - heard > QUIET;
    if (over) return;
    if (paused) tell("paused", `paused at ${clock(paused)}`);
    else if (!stale && store) tell("stale", `as of ${clock(store.answered ?? store.since)}: the store has not answered since ${clock(store.since)}`);
    else if (!stale) stream?.open ? tell("live", "live") : tell("waiting", "connecting");
    else if (looked > heard) tell("stale", `not live; as of ${clock(looked)}`);
    else tell("stale", heard ? `stale since ${clock(heard)}` : "not live");
  };

  // The stream -------------------------------------------------------------------------------------------------------

  const address = () => `${"../".repeat(view.split("?")[0].split("/").length - 2) || "./"}live?view=${encodeURIComponent(view)}`;
  const ask = (headers, signal) => fetch(address(), { headers, signal, cache: "no-store", redirect: "manual" });

  const close = () => {
    clearTimeout(timer);
    timer = 0;
    stream?.abort();
    stream = null;
  };

  // What gives the seat back; null: as many windows are shown as may have a stream.
  const seat = async () => {
    if (!navigator.locks) return () => {};
    for (let n = 0; n < SEATS; n++) {
      const free = await new Promise((found) => navigator.locks.request(`tpujob.live.${n}`, { ifAvailable: true }, (lock) => (lock ? new Promise(found) : found(null))));
      if (free) return free;
    }
    return null;
  };

  const wanted = () => view !== undefined && !paused && !over && !document.hidden;

  const connect = async () => {
    close();
    if (!wanted()) return;
    store = null;
    const mine = (stream = new AbortController());
    const free = await seat();
    if (mine !== stream) return free?.();
    if (!free) {
      heard = 0; // without a stream the page asks by itself
      return again(POLL);
    }
    let back = null;
    try {
      const answer = await ask({ accept: "text/event-stream", ...(id && { "last-event-id": id }) }, mine.signal);
      if (answer.status === 200) back = await read(answer.body, mine);
      else if (mine === stream) await refused(answer);
    } catch { /* cut off, or nobody there: the next try tells */ } finally { free(); }
    if (mine === stream) again(back);
  };

  // Milliseconds until the next try, when the server said so before it ended the stream; else null.
  const read = async (body, mine) => {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "", retry = null;
    for (;;) {
      const { done, value } = await reader.read();
      if (done || mine !== stream) return null;
      heard = Date.now();
      mine.open = true;
      failing = tries = 0;
      const events = (text + value).split("\n\n");
      text = events.pop();
      for (const event of events) {
        const said = Object.fromEntries(event.split("\n").map((line) => { const [name, ...rest] = line.split(":"); return [name, rest.join(":").trim()]; }));
        if (said.retry) retry = Number(said.retry);
        if (said.event === "change") apply(JSON.parse(said.data));
        if (said.event === "store") store = told(JSON.parse(said.data));
        if (said.id) id = said.id;
        if (said.event === "end") return ended(JSON.parse(said.data), retry);
      }
      tellState();
    }
  };

  const told = ({ since, answered }) => since && { since: since * S, answered: answered && answered * S };

  const ended = ({ why, error }, retry) => {
    if (why === "gone" && error?.type === "NotFound") finish(error);
    return why === "access" ? 0 : retry;
  };

  // The rest of the answers mean: try again.
  const refused = async (answer) => {
    if (answer.type === "opaqueredirect") return finish({ message: "Your sign-in has expired.", hint: "Reload the page to sign in again." });
    const said = await answer.json().catch(() => ({}));
    if (said.error && [400, 401, 403, 404].includes(answer.status)) finish(said.error);
  };

  const again = (back) => {
    stream = null;
    tellState();
    if (!wanted()) return;
    let wait = back;
    if (wait === null) {
      failing ||= Date.now();
      wait = Date.now() - failing < 60 * S ? Math.min(SOON[0] * 2 ** tries++, SOON[1]) : LATER;
      wait *= 0.5 + Math.random() / 2;
    }
    clearTimeout(timer);
    timer = setTimeout(connect, wait);
  };

  // The job is gone, or whoever reads may not any more: what is shown stays, and the page says so.
  const finish = ({ message, hint }) => {
    over = true;
    close();
    pausing.hidden = applying.hidden = true;
    tell("over", "no longer live");
    const box = Object.assign(document.createElement("div"), { id: "over", className: "problem" });
    box.setAttribute("role", "alert");
    const line = (name, text, more) => box.appendChild(Object.assign(document.createElement(name), { textContent: text, ...more }));
    line("p", message);
    if (hint) line("p", hint);
    line("a", "Reload", { href: location.href });
    box.append(" ");
    line("a", "All jobs", { href: address().replace(/live\?.*/, "") });
    by("main").prepend(box);
  };

  // Nothing was heard for long: half-open connections are given up, and the same address is asked by a condition.
  const poll = async () => {
    asking = true;
    const from = view;
    try {
      const answer = await ask({ accept: "application/json", ...(id && { "if-none-match": `"${id}"` }) }, AbortSignal.timeout(POLL));
      if (!wanted() || from !== view || stream?.open) return;
      if (answer.status === 200) {
        const data = await answer.json();
        if (!wanted() || from !== view || stream?.open) return;
        apply(data);
        id = data.id;
      } else if (answer.status !== 304) return await refused(answer);
      looked = Date.now();
      if (failing) { failing = tries = 0; connect(); } // it answers again: no need to wait for the next try
    } catch { /* the badge says it */ } finally { asking = false; tellState(); }
  };

  let polled = 0;
  setInterval(() => {
    if (!wanted()) return;
    const now = Date.now();
    if (now - heard > QUIET) {
      if (stream?.open) { close(); again(null); }
      if (!asking && now - polled >= POLL) { polled = now; poll(); }
    }
    tellState();
  }, S);

  // Morphing: what is equal is not touched, so that focus, selection and scroll stay --------------------------------

  const made = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content.firstElementChild;
  };
  const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id ?? "") === (b.id ?? "");

  const morph = (old, now) => {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== now.nodeValue) old.nodeValue = now.nodeValue;
      return;
    }
    if (old.isEqualNode(now)) return;
    for (const name of OWN) if (old.classList.contains(name)) now.classList.add(name);
    for (const { name, value } of now.attributes) {
      if (old.getAttribute(name) !== value && !(KEPT.includes(name) && old.hasAttribute(name))) old.setAttribute(name, value);
    }
    for (const name of old.getAttributeNames()) {
      if (!now.hasAttribute(name) && !KEPT.includes(name)) old.removeAttribute(name);
    }
    morphChildren(old, now);
  };

  const move = (parent, node, before) => (parent.moveBefore && node.isConnected ? parent.moveBefore(node, before) : parent.insertBefore(node, before));

  const morphChildren = (old, now) => {
    let at = old.firstChild;
    for (const next of [...now.childNodes]) {
      const same = next.id && [...old.children].find((child) => child.id === next.id);
      if (same && same !== at) { move(old, same, at); at = same; }
      if (at && alike(at, next)) {
        const after = at.nextSibling;
        morph(at, next);
        at = after;
      } else old.insertBefore(next, at);
    }
    while (at) { const after = at.nextSibling; at.remove(); at = after; }
  };

  // What is shown ----------------------------------------------------------------------------------------------------

  let order = null; // of the rows, as it should be
  const incoming = new Map(); // rows that are not shown as yet

  const rowsNow = () => [...(by("rows")?.children ?? [])].filter((row) => row.id);

  // While somebody points at a row, has it focused or selected something in it, rows stay where they are.
  const held = () => {
    const rows = by("rows");
    const chosen = getSelection();
    return rows && (rows.matches(":hover") || rows.contains(document.activeElement)
      || (!chosen.isCollapsed && chosen.containsNode(rows, true)) || rows.querySelector("input:checked"));
  };

  const apply = (data) => {
    for (const [part, html] of Object.entries(data.parts)) {
      const old = by(part);
      if (!old) continue;
      const before = old.textContent;
      morph(old, made(html));
      window.htmx?.process(old);
      if (old.matches("[data-say]") && old.textContent !== before) said.set(part, old.textContent.trim());
    }
    for (const [row, html] of Object.entries(data.rows)) {
      const old = by(row);
      if (!old) { incoming.set(row, html); continue; }
      const before = old.className;
      morph(old, made(html));
      if (old.className !== before) changed(old);
    }
    order = data.order ?? order;
    if (order && Boolean(order.length) !== Boolean(by("rows"))) return whole();
    arrange();
    written();
  };

  const written = () => { document.dispatchEvent(new Event("tpujob:rows")); announce(); };

  const arrange = (anyway = false) => {
    if (!order || !by("rows")) return;
    const shown = rowsNow();
    const waiting = anyway ? 0 : held() ? differing(shown.map((row) => row.id), order) : 0;
    for (const row of shown) row.classList.toggle("gone", waiting > 0 && !order.includes(row.id));
    const text = `${waiting} changed, apply`;
    if (applying.textContent !== text) applying.textContent = text;
    applying.hidden = !waiting;
    if (!waiting) settle(shown);
  };

  // How many rows came, went or moved.
  const differing = (shown, wished) => {
    const came = wished.filter((row) => !shown.includes(row)).length;
    const stay = shown.filter((row) => wished.includes(row));
    const places = wished.filter((row) => shown.includes(row));
    return came + (shown.length - stay.length) + stay.filter((row, n) => places[n] !== row).length;
  };

  const settle = (shown) => {
    const rows = by("rows");
    const known = new Map(shown.map((row) => [row.id, row]));
    const focused = document.activeElement;
    let at = rows.firstElementChild;
    for (const name of order) {
      let row = known.get(name);
      if (!row && incoming.has(name)) changed((row = made(incoming.get(name))));
      if (!row) continue;
      known.delete(name);
      if (row === at) at = at.nextElementSibling;
      else move(rows, row, at);
    }
    for (const row of known.values()) { row.remove(); news.set(row.id, false); }
    incoming.clear();
    if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  };

  // A table appeared or went: the whole page is asked for, at most once a second.
  let fetching = 0, fetched = 0;
  const whole = () => { fetching ||= setTimeout(fetchWhole, Math.max(0, fetched + S - Date.now())); };

  const fetchWhole = async () => {
    fetching = 0;
    fetched = Date.now();
    const from = view;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
      const main = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
      if (!answer.ok || !main || from !== view || paused) return;
      morph(by("main"), main);
      window.htmx?.process(by("main"));
      order = null;
      incoming.clear();
      id = loaded(); // what was fetched may be newer than the stream
      written();
      connect();
    } catch { /* the stream ends, too, and its next try mends it */ }
  };

  // The status line: what happened since, in one sentence -------------------------------------------------------------

  const news = new Map(); // rows that came, went or changed their state -> whether they failed
  const said = new Map(); // parts that are to be read out -> their text
  let announced = 0, announcing = 0;
  const changed = (row) => news.set(row.id, row.classList.contains("failed"));
  const announce = () => {
    if (announcing || !(news.size || said.size)) return;
    announcing = setTimeout(() => {
      announcing = 0;
      if (paused) return;
      const failed = [...news.values()].filter(Boolean).length;
      const [one, several] = (by("rows")?.dataset.are ?? "row rows").split(" ");
      const rows = news.size ? [`${news.size} ${news.size === 1 ? one : several} changed${failed ? `, ${failed} failed` : ""}.`] : [];
      by("status").textContent = [...rows, ...said.values()].join(" ");
      announced = Date.now();
      news.clear();
      said.clear();
    }, Math.max(S, announced + NEWS - Date.now()));
  };

  // What people do ---------------------------------------------------------------------------------------------------

  const pause = (on) => {
    paused = on ? Date.now() : false;
    pausing.setAttribute("aria-pressed", String(on));
    pausing.textContent = on ? "Go on" : "Pause";
    pausing.title = on ? "Show what has changed since" : "Nothing on this page changes until you go on";
    document.body.toggleAttribute("data-paused", on);
    heard = Date.now();
    if (on) { close(); applying.hidden = true; clearTimeout(announcing); announcing = 0; } else if (view !== undefined) { arrange(); connect(); }
    tellState();
  };

  pausing.addEventListener("click", () => pause(!paused));
  applying.addEventListener("click", () => { arrange(true); written(); });
  let settling = 0;
  const letGo = () => {
    if (applying.hidden || paused) return;
    clearTimeout(settling);
    settling = setTimeout(() => { if (!paused) { arrange(); written(); } }, 300);
  };
  for (const name of ["pointerout", "focusout", "selectionchange", "change"]) document.addEventListener(name, letGo);

  const shown = () => {
    heard = Date.now();
    if (document.hidden) close(); else connect();
  };
  document.addEventListener("visibilitychange", shown);
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted) shown(); });

  // The id of what the page shows as it was loaded. It is told once: a page that comes out of the history shows more.
  const loaded = () => {
    const { liveId = "" } = by("main").dataset;
    delete by("main").dataset.liveId;
    return liveId;
  };

  const start = () => {
    const next = document.body.dataset.live;
    if (next === view) return;
    close();
    view = next;
    id = loaded();
    order = null;
    over = false;
    incoming.clear(); news.clear(); said.clear();
    heard = Date.now();
    place.hidden = pausing.hidden = view === undefined;
    applying.hidden = true;
    if (!paused) connect();
    tellState();
  };
  document.addEventListener("tpujob:view", start);
  pause(false);
  start();
})();
