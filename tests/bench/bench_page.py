"""How fresh, and how cheap, live pages are: `python -m tests.bench.bench_page [--jobs=10000] [--viewers=200]`.

A real backend process over a SQLite store; viewers in this process read its streams as browsers do, and three tabs of a
real Chromium look on. Random jobs change, among them some that come and go. In the end a table has every figure beside
its limit; about five minutes. `--only=slow --stalled=600` lets the slow readers stand still for ten minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import socket
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.page.backend import Process
from tests.page.conftest import CHROMIUM

EVERYBODY, MINE = "/?who=everyone&show=all", "/?show=all"
SAID = re.compile(r"said (\d{19})")
ROW = re.compile(r'<tr id="(job-\d+)".*?</tr>', re.DOTALL)
#: goes on without a change of the store
CLOCK = re.compile(r'(?<=>)[^<]*(?=</time>)|<td class="num spent">.*?</td>')


class Viewer:
    """Reads one stream for as long as it lasts; knows what its page shows."""

    def __init__(self, port: int, name: str, view: str) -> None:
        self.name, self.view, self._port = name, view, port
        self.rows: dict[str, str] = {}
        self.order: list[str] = []
        self.seen: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.deliveries = self.bytes = 0
        self.ended = ""
        self.ready = asyncio.Event()

    async def run(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        writer.write(_request(self.name, self.view))
        try:
            await reader.readuntil(b"\r\n\r\n")
            text = b""
            while size := int(await reader.readuntil(b"\r\n"), 16):
                text += (await reader.readexactly(size + 2))[:-2]
                self.bytes += size
                *events, text = text.split(b"\n\n")
                for one in events:
                    self._event(one.decode(), time.time_ns())
        finally:
            writer.close()

    def _event(self, one: str, now: int) -> None:
        said = dict(line.split(": ", 1) for line in one.split("\n") if ": " in line)
        if said.get("event") == "end":
            self.ended = json.loads(said["data"])["why"]
        if said.get("event") != "change":
            return
        data = json.loads(said["data"])
        self.deliveries += 1
        self.rows |= data["rows"]
        self.order = data.get("order", self.order)
        self.rows = {name: self.rows[name] for name in self.order}
        for name, html in data["rows"].items():
            for at in SAID.findall(html):
                self.seen[name].append((int(at), now))
        self.ready.set()

    def delays(self, said: list[tuple[str, int]]) -> Iterator[float]:
        """Seconds from each change until the page showed it, or something newer of the same job."""
        for job, at in said:
            if f"job-{job}" in self.rows:
                later = [now for told, now in self.seen[f"job-{job}"] if told >= at]
                yield (min(later) - at) / 1e9 if later else float("inf")


def _request(name: str, view: str) -> bytes:
    lines = (
        f"GET /live?view={quote(view)} HTTP/1.1",
        "host: 127.0.0.1",
        "accept: text/event-stream",
        f"x-test-name: {name}",
    )
    return "\r\n".join((*lines, "", "")).encode()


class Viewers:
    def __init__(self, backend: Process, count: int, view: str) -> None:
        self.backend = backend
        self.all = [Viewer(backend.port, f"u{n}", view) for n in range(count)]

    async def __aenter__(self) -> Viewers:
        self._tasks = [asyncio.create_task(viewer.run()) for viewer in self.all]
        await asyncio.gather(*(viewer.ready.wait() for viewer in self.all))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self.backend.ask("figures")["viewers"]:
            await asyncio.sleep(0.1)

    async def settle(self) -> None:
        """Until the backend is no busier than it stays: what the beginning cost belongs to no change."""
        used = [float("inf")] * 2
        while (len(used) < 20 and used[-1] < 0.8 * used[-2]) or len(used) < 4:
            before = self.backend.ask("figures")["cpu"]
            await asyncio.sleep(2)
            used.append(self.backend.ask("figures")["cpu"] - before)

    async def wrong(self, among: list[Viewer]) -> list[Viewer]:
        """Those whose pages do not show what the store has, as a fresh page shows it."""
        fresh: dict[tuple[str, str], list[str]] = {}
        wrong: list[Viewer] = []
        for viewer in among:
            key = (viewer.name if viewer.view == MINE else "u0", viewer.view)
            if key not in fresh:
                fresh[key] = _rows(await asyncio.to_thread(self.backend.page, *key))
            if [CLOCK.sub("", html).strip() for html in viewer.rows.values()] != fresh[key]:
                wrong.append(viewer)
        return wrong


def _rows(html: str) -> list[str]:
    return [CLOCK.sub("", row[0]).strip() for row in ROW.finditer(html)]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


class Table:
    """What was found, each figure beside its limit and the number of its check in `docs/page.md`."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str, str, str]] = []

    def add(self, check: str, what: str, figure: str, limit: str = "") -> None:
        self._rows.append((check, what, figure, limit))
        print(f"{what}: {figure}" + (f" ({limit})" if limit else ""), flush=True)

    def show(self) -> None:
        rows = [("", "what", "figure", "limit"), *self._rows]
        wide = [max(len(row[n]) for row in rows) for n in range(3)]
        print()
        for row in rows:
            print("  ".join([*(text.ljust(w) for text, w in zip(row, wide, strict=False)), row[3]]))


# What is measured ----------------------------------------------------------------------------------------------------


async def changes_alone(backend: Process, table: Table) -> float:
    """Seconds of CPU of a change that nobody looks at."""
    await backend.do("change", 50, 40, 50)
    before = backend.ask("figures")["cpu"]
    await backend.do("change", 400, 40, 50)
    cost = (backend.ask("figures")["cpu"] - before) / 400
    table.add("1", "a change that nobody looks at", f"{cost * 1000:.1f} ms CPU")
    return cost


async def freshness(
    backend: Process, viewers: int, view: str, newest: int, alone: float, table: Table, what: str
) -> float:
    async with Viewers(backend, viewers, view) as looking:
        await looking.settle()
        quiet, began = backend.ask("figures"), time.monotonic()
        await asyncio.sleep(6)
        before = backend.ask("figures")
        idle = (before["cpu"] - quiet["cpu"]) / (time.monotonic() - began)
        sent = sum(viewer.deliveries for viewer in looking.all)
        began = time.monotonic()
        said = (await backend.do("change", 1000, 40, newest))["said"]
        await backend.do("shuffle", 40)
        await asyncio.sleep(2)
        after, seconds = backend.ask("figures"), time.monotonic() - began
        delays = [d for viewer in looking.all for d in viewer.delays(said)]
        deliveries = sum(viewer.deliveries for viewer in looking.all) - sent
        late = await looking.wrong(looking.all)
        for _ in range(10):
            lost = await looking.wrong(late)
            await asyncio.sleep(2 if lost else 0)
    p99 = percentile(delays, 0.99)
    cpu = after["cpu"] - before["cpu"] - idle * seconds
    made = (after["made"] - before["made"]) / seconds
    add = partial(table.add, "1")
    add(
        f"{what}: half of {len(delays)} sightings within", f"{percentile(delays, 0.5):.2f} s", "0.5"
    )
    add(f"{what}: 99% within", f"{p99:.2f} s", "2")
    add(f"{what}: the last after", f"{max(delays):.2f} s")
    add(f"{what}: pages that differ 2 s after the end", f"{len(late)}", "0")
    add(f"{what}: pages that differ for good", f"{len(lost)}", "0")
    add(f"{what}: CPU while nothing changes", f"{idle * 100:.1f}% of a core")
    add(f"{what}: CPU of a change beside its own", f"{(cpu / 1080 - alone) * 1000:.1f} ms")
    add(f"{what}: deliveries, renderings", f"{deliveries}, {made:.0f} a second")
    add(f"{what}: memory", f"{after['mib']:.0f} MiB")
    return p99


async def reads(backend: Process, viewers: int, view: str, table: Table, what: str) -> None:
    found: list[float] = []
    for count in (1, viewers):
        async with Viewers(backend, count, view) as looking:
            await looking.settle()
            before, began = backend.ask("figures")["reads"], time.monotonic()
            await backend.do("change", 100, 10, 50)
            await asyncio.sleep(5)
            seconds = time.monotonic() - began
            found.append((backend.ask("figures")["reads"] - before) / seconds * 60)
    one, many = found
    of = f"{many:.0f} a minute, {one:.0f} for one viewer: {many / one:.2f} times"
    table.add("3", f"{what}: reads of the store for {viewers} viewers", of, "1.05 times")


async def slow_readers(
    backend: Process, viewers: int, before: float, seconds: float, table: Table
) -> None:
    resident = backend.ask("figures")["mib"]
    stalled = [socket.create_connection(("127.0.0.1", backend.port)) for _ in range(50)]
    for n, one in enumerate(stalled):
        one.sendall(_request(f"u{n}", EVERYBODY))
    async with Viewers(backend, viewers - 50, EVERYBODY) as looking:
        most = 0.0
        delays: list[float] = []
        began = time.monotonic()
        gone = 0.0
        while time.monotonic() < began + seconds:
            said = (await backend.do("change", 400, 80, 50))["said"]
            figures = backend.ask("figures")
            most = max(most, figures["mib"])
            if not gone and figures["viewers"] <= viewers - 50:
                gone = time.monotonic() - began
            await asyncio.sleep(1)
            delays += [d for viewer in looking.all for d in viewer.delays(said)]
            for viewer in looking.all:
                viewer.seen.clear()
        left = backend.ask("figures")["viewers"] - (viewers - 50)
    for one in stalled:
        one.close()
    p99, add = percentile(delays, 0.99), partial(table.add, "6")
    add(f"50 readers that read nothing for {seconds:.0f} s: still there", f"{left}", "0")
    add("the last of them was dropped within", f"{gone:.0f} s")
    add("they cost memory", f"{most - resident:+.0f} MiB", "32")
    times = f", {p99 / before:.2f} times" if before else ""
    add("99% of what the others saw was there within", f"{p99:.2f} s{times}", "1.2 times")


async def ending(backend: Process, viewers: int, table: Table) -> None:
    looking = [Viewer(backend.port, f"u{n}", EVERYBODY) for n in range(viewers)]
    tasks = [asyncio.create_task(viewer.run()) for viewer in looking]
    await asyncio.gather(*(viewer.ready.wait() for viewer in looking))
    seconds = await asyncio.get_running_loop().run_in_executor(None, backend.end)
    await asyncio.gather(*tasks, return_exceptions=True)
    told = sum(viewer.ended == "stops" for viewer in looking)
    table.add("6", f"SIGTERM with {viewers} streams: ended after", f"{seconds:.1f} s", "5")
    table.add("6", "streams that were told", f"{told}", f"{viewers}")


@contextlib.contextmanager
def tabs(backend: Process, count: int) -> Iterator[Any]:
    """Looks how long it takes until a change is in the DOM of real tabs."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        pages = []
        for n in range(count):
            context = browser.new_context(extra_http_headers={"x-test-name": f"u{n}"})
            pages.append(context.new_page())
            pages[-1].goto(f"http://127.0.0.1:{backend.port}{EVERYBODY}")
            pages[-1].locator("#live[data-state=live]").wait_for()
            pages[-1].evaluate(WATCH)
        yield pages
        browser.close()


#: notes when the text of a change came to be in the table
WATCH = """() => {
  window.seen = {};
  new MutationObserver(() => {
    const now = Date.now();
    for (const [at] of document.getElementById("rows").textContent.matchAll(/said \\d{19}/g)) seen[at.slice(5)] ??= now;
  }).observe(document.getElementById("rows"), { subtree: true, childList: true, characterData: true });
}"""


def in_tabs(backend: Process, table: Table) -> None:
    with tabs(backend, 3) as pages:
        said: list[tuple[str, int]] = []
        for _ in range(5):
            said += backend.ask("change", 60, 20, 50)["said"]
            pages[0].wait_for_timeout(300)
        pages[0].wait_for_timeout(1500)
        delays = [
            (now - int(at) / 1e6) / 1e3
            for page in pages
            for at, now in page.evaluate("seen").items()
            if any(int(at) == told for _, told in said)
        ]
        fresh = _rows(backend.page("u0", EVERYBODY))
        ids = [re.search(r'"(job-\d+)"', row)[1] for row in fresh]
        same = sum(
            page.evaluate("[...document.querySelectorAll('#rows tr')].map(r => r.id)") == ids
            for page in pages
        )
    half, most = percentile(delays, 0.5), percentile(delays, 0.99)
    table.add("1", f"DOM of 3 tabs: half of {len(delays)} sightings within", f"{half:.2f} s", "0.5")
    table.add("1", "DOM of 3 tabs: 99% within", f"{most:.2f} s", "2")
    table.add("1", "DOM of 3 tabs: pages with the rows of the store", f"{same}", "3")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument(
        "--stalled", type=float, default=60, help="seconds that slow readers stand still"
    )
    parser.add_argument("--only", default="", help="of shared, own, tabs, reads, slow; with commas")
    options = parser.parse_args()
    only = options.only.split(",") if options.only else ["shared", "own", "tabs", "reads", "slow"]
    viewers, table, shared, alone = options.viewers, Table(), 0.0, 0.0
    with tempfile.TemporaryDirectory(prefix="tpujob-bench-") as folder:
        backend = Process(Path(folder, "store"), options.jobs, viewers)
        if {"shared", "own"} & {*only}:
            alone = asyncio.run(changes_alone(backend, table))
        if {"shared", "slow"} & {*only}:
            looks = (EVERYBODY, 60, alone, table, "one view for all")
            shared = asyncio.run(freshness(backend, viewers, *looks))
        if "own" in only:
            looks = (MINE, options.jobs, alone, table, "a view for each")
            asyncio.run(freshness(backend, viewers, *looks))
        if CHROMIUM and "tabs" in only:
            in_tabs(backend, table)
        if "reads" in only:
            asyncio.run(reads(backend, viewers, EVERYBODY, table, "one view for all"))
            asyncio.run(reads(backend, viewers, MINE, table, "a view for each"))
        if "slow" in only:
            asyncio.run(slow_readers(backend, viewers, shared, options.stalled, table))
        asyncio.run(ending(backend, viewers, table))
    table.show()


if __name__ == "__main__":
    main()
