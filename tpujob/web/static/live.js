// Keeps the open page live. The stream at `/live` says which jobs have changed; the page then fetches itself again, if its
// ETag has changed, and htmx writes what differs. It also asks every few seconds: a lost event makes it late, never wrong.
// A live page has `data-live` on `#main`: the jobs whose changes it shows, or empty for any; rows with ids are in `#rows`.
"use strict";
(() => {
  const S = 1000;
  const EVERY = 3 * S; // between two fetches without an event: steps and money change without one
  const LEAST = 1 * S; // between two fetches
  const PATIENCE = 10 * S; // a fetch that takes longer has failed
  const SEATS = 4; // streams of one browser, which has six connections to an origin over HTTP/1.1
  const NEWS = 10 * S; // between two announcements in the status line

  const by = (id) => document.getElementById(id);
  const place = by("live");
  if (!place) return;
  const make = (into, name, more) => into.appendChild(Object.assign(document.createElement(name), more));
  const write = (on, text) => { if (on.textContent !== text) on.textContent = text; };
  const badge = make(place, "span", { className: "badge" });
  const applying = make(place, "button", { type: "button", className: "apply", hidden: true });
  const pausing = make(place, "button", { type: "button", className: "quiet", hidden: true });

  let address = ""; // address of the open page
  let etag = "";
  let stream = null;
  let asked = 0; // time of the last fetch
  let fresh = 0; // time at which the shown page was last known to be current
  let trouble = ""; // reason of the last fetch's failure
  let hinted = false; // an event announced a change
  let busy = false;
  let paused = 0; // time of the pause's beginning
  let over = false; // the page will not change any more
  let waiting = 0; // rows that would come, go or move
  let forced = false; // rows may move, even under the pointer

  const open = () => by("main").dataset.live !== undefined && !paused && !over && !document.hidden;
  const clock = (at) => `${new Date(at).toISOString().slice(11, 19)} UTC`; // as the times of the page
  const show = (state, text) => {
    place.dataset.state = state;
    write(badge, text);
  };
  const showState = () => {
    const late = Date.now() - fresh > EVERY + PATIENCE;
    if (over) return;
    if (paused) show("paused", `paused at ${clock(paused)}`);
    else if (trouble || late) show("stale", `as of ${clock(fresh)}${trouble && `: ${trouble}`}`);
    else show("live", "live");
    applying.hidden = !waiting;
    write(applying, `${waiting} changed, apply`);
  };

  // The stream -------------------------------------------------------------------------------------------------------

  // Resolves to a function that releases the seat; null: visible windows have taken all seats.
  const seat = async () => {
    if (!navigator.locks) return () => {};
    for (let n = 0; n < SEATS; n++) {
      const free = await new Promise((found) => navigator.locks.request(`tpujob.live.${n}`, { ifAvailable: true }, (lock) => (lock ? new Promise(found) : found(null))));
      if (free) return free;
    }
    return null;
  };
  const close = () => {
    stream?.source?.close();
    stream?.free?.();
    stream = null;
  };
  const connect = async () => {
    const mine = (stream = { source: null, free: null });
    const free = await seat();
    if (mine !== stream || !free) { free?.(); if (mine === stream) stream = null; return; }
    mine.free = free;
    const source = (mine.source = new EventSource(`${by("main").dataset.up}live`));
    const hint = () => { hinted = true; look(); };
    source.addEventListener("jobs", ({ data }) => {
      const jobs = by("main").dataset.live, ids = JSON.parse(data);
      if (!jobs || !ids || ids.some((id) => jobs.split(" ").includes(id))) hint();
    });
    source.addEventListener("error", () => { if (source.readyState === EventSource.CLOSED) close(); else hint(); });
  };

  // Fetching ---------------------------------------------------------------------------------------------------------

  const look = () => {
    if (waiting && !held()) force();
    if (open() && !busy && Date.now() - asked >= (hinted ? LEAST : EVERY)) refresh();
    showState();
  };
  const refresh = async () => {
    busy = true; hinted = false; asked = Date.now();
    const from = address, began = asked;
    const headers = { "x-tpujob-again": by("main").dataset.again ?? "", ...(etag && { "if-none-match": etag }) };
    try {
      const answer = await fetch(location.href, { headers, signal: AbortSignal.timeout(PATIENCE), cache: "no-store", redirect: "manual" });
      const text = await answer.text();
      if (from !== address || !open()) return;
      if (answer.status === 200) { etag = answer.headers.get("etag"); await swap(text); } else if (answer.status !== 304) return refused(answer, text);
      fresh = began; trouble = "";
      if (!stream) connect();
    } catch { trouble = "the backend does not answer"; } finally { busy = false; showState(); }
  };
  const refused = (answer, text) => {
    if (answer.type === "opaqueredirect") return finish({ message: "Your sign-in has expired.", hint: "Reload the page to sign in again." });
    let error;
    try { ({ error } = JSON.parse(text)); } catch { /* a proxy has answered */ }
    if (error && [400, 401, 403, 404].includes(answer.status)) return finish(error);
    trouble = error?.message ?? `the backend answers ${answer.status}`;
  };

  // The job was removed, or its reader lost access: the shown page stays, with a note.
  const finish = ({ message, hint }) => {
    over = true;
    close();
    pausing.hidden = applying.hidden = true;
    show("over", "no longer live");
    const box = make(document.createDocumentFragment(), "div", { id: "over", className: "problem" });
    box.setAttribute("role", "alert");
    const line = (name, text, more) => {
      const made = make(box, name, more);
      text.split("`").forEach((textContent, n) => make(made, n % 2 ? "code" : "span", { textContent }));
    };
    line("p", message[0].toUpperCase() + message.slice(1));
    if (hint) line("p", hint);
    line("a", "Reload", { href: location.href });
    box.append(" ");
    line("a", "All jobs", { href: by("main").dataset.up });
    by("main").prepend(box);
  };

  // Writing ----------------------------------------------------------------------------------------------------------

  const states = () => new Map([...(by("rows")?.children ?? [])].filter((row) => row.id).map((row) => [row.id, row.classList[0]]));
  const swap = async (text) => {
    const before = states();
    await window.htmx.swap({ text, select: "#main", target: by("main"), swap: "outerMorph", sourceElement: document.body });
    forced = false;
    const after = states();
    for (const id of new Set([...before.keys(), ...after.keys()])) if (before.get(id) !== after.get(id)) news.set(id, after.get(id) === "failed");
    announce();
  };

  // Rows do not move while the pointer or the focus is on a row, or text in it is selected.
  const held = () => {
    const rows = by("rows");
    const chosen = getSelection();
    return rows && (rows.matches(":hover") || rows.contains(document.activeElement)
      || (!chosen.isCollapsed && chosen.containsNode(rows, true)) || rows.querySelector("input:checked"));
  };
  const force = () => { forced = hinted = true; asked = 0; etag = ""; waiting = 0; look(); };
  document.addEventListener("htmx:before:swap", ({ detail }) => {
    const now = detail.tasks[0]?.fragment.querySelector("#rows"), old = by("rows");
    waiting = 0;
    if (!busy || forced || !now || !old || !held()) return;
    const wished = new Map([...now.children].map((row) => [row.id, row]));
    const shown = [...old.children].filter((row) => row.id), ids = shown.map((row) => row.id);
    const stay = ids.filter((id) => wished.has(id)), places = [...wished.keys()].filter((id) => ids.includes(id));
    waiting = wished.size - stay.length + ids.length - stay.length + stay.filter((id, n) => places[n] !== id).length;
    if (!waiting) return;
    const gone = (row) => { const copy = row.cloneNode(true); copy.classList.add("gone"); return copy; };
    now.replaceChildren(...shown.map((row) => wished.get(row.id) ?? gone(row)));
  });

  // The status line: a summary of recent changes in one sentence.
  const news = new Map(); // rows that came, went or changed their state -> whether they failed
  let announced = 0, announcing = 0;
  const announce = () => {
    if (announcing || !news.size) return;
    announcing = setTimeout(() => {
      announcing = 0;
      if (paused) return;
      const failed = [...news.values()].filter(Boolean).length;
      const [one, several] = (by("rows")?.dataset.are ?? "row rows").split(" ");
      by("status").textContent = `${news.size} ${news.size === 1 ? one : several} changed${failed ? `, ${failed} failed` : ""}.`;
      announced = Date.now();
      news.clear();
    }, Math.max(2 * S, announced + NEWS - Date.now()));
  };

  // User actions -----------------------------------------------------------------------------------------------------

  const pause = (on) => {
    paused = on ? Date.now() : 0;
    pausing.setAttribute("aria-pressed", String(on));
    pausing.textContent = on ? "Resume" : "Pause";
    pausing.title = on ? "Show what has changed since" : "Stop updates of this page until you resume";
    document.body.toggleAttribute("data-paused", on);
    if (on) { close(); waiting = 0; clearTimeout(announcing); announcing = 0; } else wake();
    showState();
  };
  const wake = () => { hinted = true; asked = 0; fresh = Date.now(); look(); };
  pausing.addEventListener("click", () => pause(!paused));
  applying.addEventListener("click", force);
  document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else wake(); });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted) wake(); });

  const start = () => {
    if (address === location.href) return;
    const { live, etag: known } = by("main").dataset;
    close();
    address = location.href;
    etag = known ?? "";
    over = false;
    trouble = ""; waiting = 0; news.clear();
    fresh = asked = Date.now();
    pausing.hidden = live === undefined;
    if (open()) connect();
    showState();
  };
  document.addEventListener("htmx:after:swap", start);
  setInterval(look, S / 4);
  pause(false);
  start();
})();
