"""A reader of the stream that tells open pages what has changed."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from tests.flow.page.conftest import Site
from tests.support.callers import ADA


class EventsReader:
    def __init__(self, url: str, name: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        self._connection.request("GET", "/live", headers={"x-test-name": name})
        self.answer = self._connection.getresponse()

    def next(self) -> str:
        """The next event, as it is written; empty at the end."""
        lines: list[str] = []
        while line := self.answer.readline().decode():
            if line == "\n":
                return "".join(lines) or ":"
            lines.append(line)
        return ""

    def begin(self) -> None:
        """Read the first event: any job may have changed."""
        assert self._data() is None

    def change(self) -> list[str]:
        """The ids of the next event that has any."""
        while not (ids := self._data()):
            pass
        return ids

    def _data(self) -> list[str] | None:
        while not (event := self.next()).startswith("event: jobs\n"):
            assert event, "the stream has ended"
        return json.loads(event.partition("data: ")[2])

    def end(self) -> None:
        """Read until the stream ends."""
        while self.next():
            pass

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


@contextmanager
def stream(site: Site, name: str = ADA.name) -> Iterator[EventsReader]:
    reader = EventsReader(site.url, name)
    try:
        yield reader
    finally:
        reader.close()
