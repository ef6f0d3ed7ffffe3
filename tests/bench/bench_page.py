"""How fresh, and how cheap, open pages are: `python -m tests.bench.bench_page [--jobs=1000] [--viewers=50]`.

A real backend process over a SQLite store. Viewers in this process do what `live.js` does: they read the stream, and
fetch the page again by its ETag. Random jobs change. At the end every page must show what the store has.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import tempfile
import time
from pathlib import Path

import httpx

from tests.flow.page.backend import Process

PAGES = {"all": "/?who=everyone&show=all", "mine": "/?show=all"}
EVERY, LEAST = 3.0, 1.0  #: seconds between two fetches, as in `live.js`
SAID = re.compile(r"said (\d{19})")


class Viewer:
    """One open page of the list of jobs."""

    def __init__(self, url: str, name: str, path: str) -> None:
        self.client = httpx.AsyncClient(
            base_url=url, headers={"x-test-name": name, "x-tpujob-again": "1"}, timeout=60
        )
        self.path, self.text, self.etag = path, "", ""
        self.seen: dict[str, float] = {}  #: when each change was on the page
        self.fetches = self.unchanged = 0
        self._hint = asyncio.Event()

    async def run(self) -> None:
        listening = asyncio.create_task(self._listen())
        try:
            while True:
                await self.fetch()
                wait = asyncio.create_task(asyncio.sleep(LEAST))
                try:
                    async with asyncio.timeout(EVERY):
                        await self._hint.wait()
                except TimeoutError:
                    pass
                await wait
        finally:
            listening.cancel()
            await self.client.aclose()

    async def fetch(self) -> None:
        self._hint.clear()
        answer = await self.client.get(self.path, headers={"if-none-match": self.etag})
        self.fetches += 1
        if answer.status_code == 304:
            self.unchanged += 1
            return
        self.text, self.etag = answer.text, answer.headers["etag"]
        for at in SAID.findall(self.text):
            self.seen.setdefault(at, time.time())

    async def _listen(self) -> None:
        async with self.client.stream("GET", "/live", timeout=None) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    self._hint.set()


async def measure(backend: Process, viewers: int, path: str, seconds: float) -> None:
    url = f"http://127.0.0.1:{backend.port}"
    everybody = [Viewer(url, f"u{n}", path) for n in range(viewers)]
    tasks = [asyncio.create_task(viewer.run()) for viewer in everybody]
    await asyncio.sleep(10)
    for per_second in (0, 1, 20):
        before, fetches = backend.ask("figures"), sum(v.fetches for v in everybody)
        began, said = time.monotonic(), []
        if per_second:
            said = (await backend.do("change", int(seconds * per_second), per_second, 20))["said"]
        else:
            await asyncio.sleep(seconds)
        took = time.monotonic() - began
        after, count = backend.ask("figures"), sum(v.fetches for v in everybody) - fetches
        await asyncio.sleep(4)
        cpu = (after["cpu"] - before["cpu"]) / took
        print(
            f"{per_second} changes a second: {cpu:.2f} of a core, {count / took:.0f} fetches a second"
        )
        newest = {job: str(at) for job, at in said}
        delays = sorted(
            viewer.seen[at] - int(at) / 1e9
            for viewer in everybody
            for at in newest.values()
            if at in viewer.seen
        )
        if delays:
            half, most = delays[len(delays) // 2], delays[int(len(delays) * 0.99)]
            print(f"  half of {len(delays)} sightings within {half:.2f} s, 99% within {most:.2f} s")
    for viewer in everybody:
        await viewer.fetch()
        fresh = await asyncio.to_thread(backend.page, viewer.client.headers["x-test-name"], path)
        assert sorted(SAID.findall(viewer.text)) == sorted(SAID.findall(fresh)), "a page is wrong"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--pages", choices=PAGES, default="all")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tpujob-bench-") as folder:
        backend = Process(Path(folder, "store"), options.jobs, options.viewers)
        asyncio.run(measure(backend, options.viewers, PAGES[options.pages], options.seconds))
        print(json.dumps(backend.ask("figures")))
        backend.end()


if __name__ == "__main__":
    main()
