"""A live page over a real SQLite store and a real server on loopback, and a reader of its stream."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.types import Scope

from tests.support.callers import caller
from tests.support.scripted import LIMITLESS, listening
from tests.support.stores import a_job, an_event
from tpujob.adapters.sqlite import SqliteStore
from tpujob.api import JobsApi
from tpujob.domain.access import Principal
from tpujob.errors import Forbidden
from tpujob.service import Changes
from tpujob.web.api import create_app
from tpujob.web.limits import Limits
from tpujob.web.live import Address, Fragments, Views
from tpujob.web.live.hub import Hub, Pace

#: turned quicker, so that a test waits for nothing; but a stream begins with its view, however long that is made
QUICK = Pace(least=0.02, beyond=0.05, again=0.05, stop=0.02, patience=60.0)


class Lab:
    """A store, whoever may look at it, and a page of its jobs: a part with their number, and a row of each."""

    def __init__(self, folder: Path) -> None:
        self.store = SqliteStore(folder / "jobs.db")
        self.changes = Changes(self.store, interval=0.02)
        self.known = {name: caller(name) for name in ("ada", "bob")}
        self.rendered: list[Address] = []
        self.beyond = 0  #: what is known beyond the records
        self.fails: Exception | None = None
        self.stopping = False

    # Jobs ------------------------------------------------------------------------------------------------------------

    def create(self, name: str) -> str:
        made = self.store.create(a_job(name), an_event(), idempotency_key=name)
        self.changes.poke()
        return made.id

    def say(self, job_id: str, message: str) -> None:
        """The job has that message from here on."""
        job = self.store.get(job_id)
        changed = replace(job, message=message)
        self.store.commit(changed, None, expected_version=job.version, op_id=message, lease=None)
        self.changes.poke()

    # The page --------------------------------------------------------------------------------------------------------

    def rows(self) -> dict[str, str]:
        """As the store has them: what every page shows in the end."""
        jobs = self.store.list()
        return {f"j{j.id}": f'<tr id="j{j.id}"><td>{j.name}<td>{j.message}</tr>' for j in jobs}

    def all(self, api: JobsApi, at: Address) -> Fragments:
        del api
        self.rendered.append(at)
        if self.fails:
            raise self.fails
        return self.shown()

    def shown(self) -> Fragments:
        rows = self.rows()
        count = f'<p id="count">{len(rows)} jobs, {self.beyond} steps</p>'
        return Fragments({"count": count}, rows, [*rows])

    def one(self, api: JobsApi, at: Address) -> Fragments:
        del api
        self.rendered.append(at)
        job = self.store.get(at.parts["id"])
        return Fragments({"job": f'<p id="job">{job.message}</p>'})

    # The server ------------------------------------------------------------------------------------------------------

    async def principal(self, scope: Scope, headers: Headers) -> Principal:
        """As a door: whoever is named in a header."""
        name = headers.get("x-name", "ada")
        if name not in self.known:
            raise Forbidden(f"{name} is not a member", hint="An admin adds you.")
        return self.known[name]

    def app(self, pace: Pace = QUICK, limits: Limits = LIMITLESS) -> FastAPI:
        app = create_app(
            lambda who: cast(JobsApi, who),
            self,
            changes=self.changes,
            stopping=lambda: self.stopping,
            pace=pace,
            limits=limits,
        )
        app.state.views.add("/all", self.all, audience=lambda who, at: who.role)
        app.state.views.add("/one/{id}", self.one, job="id")
        self.views: Views = app.state.views
        return app

    @contextmanager
    def served(self, pace: Pace = QUICK, limits: Limits = LIMITLESS) -> Iterator[Door]:
        app = self.app(pace, limits)
        with listening(app) as url:
            door = Door(url, app.state.hub)
            try:
                yield door
            finally:
                self.stopping = True
                door.close()


class Door:
    """Where the page is served."""

    def __init__(self, url: str, hub: Hub) -> None:
        self.url, self.hub = url, hub
        self._readers: list[Reader] = []

    def open(self, view: str = "/all", *, name: str = "ada", last: str = "") -> Reader:
        reader = Reader(self.url, view, {"x-name": name, "last-event-id": last})
        self._readers.append(reader)
        return reader

    def close(self) -> None:
        for reader in self._readers:
            reader.close()

    def ask(
        self, view: str = "/all", *, name: str = "ada", known: str = ""
    ) -> tuple[int, str, Any]:
        """Status, event id and body of the view as it is now."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        try:
            headers = {"x-name": name, "if-none-match": f'"{known}"'} | {
                "accept": "application/json"
            }
            connection.request("GET", f"/live?view={quote(view)}", headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            etag = (answer.getheader("etag") or "").strip('"')
            return answer.status, etag, json.loads(body) if body else None
        finally:
            connection.close()


class Reader:
    """One page's end of a stream; `parts`, `rows` and `order` are what the page shows."""

    def __init__(self, url: str, view: str, headers: dict[str, str], timeout: float = 60) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)
        sent = {"accept": "text/event-stream", **{k: v for k, v in headers.items() if v}}
        try:
            self._connection.request("GET", f"/live?view={quote(view)}", headers=sent)
            self.answer = self._connection.getresponse()
        except OSError:
            self._connection.close()
            raise
        self.status = self.answer.status
        self.parts: dict[str, str] = {}
        self.rows: dict[str, str] = {}
        self.order: list[str] = []
        self.id = headers.get("last-event-id", "")
        self.retry = 0

    def next(self) -> tuple[str, dict[str, Any]]:
        """The next event, or `beat`; `closed` at the end. What it says is applied."""
        kind, data = "beat", "{}"
        while line := (raw := self.answer.readline()).decode().rstrip("\n"):
            name, _, value = line.partition(":")
            if name == "event":
                kind = value.strip()
            elif name == "data":
                data = value
            elif name == "id":
                self.id = value.strip()
            elif name == "retry":
                kind, self.retry = "retry", int(value)
        if not raw:
            return "closed", {}
        said: dict[str, Any] = json.loads(data)
        if kind == "change":
            self._apply(said)
        return kind, said

    def change(self) -> dict[str, Any]:
        return self.until("change")

    def until(self, kind: str) -> dict[str, Any]:
        """What the next event of that kind says; the others are applied."""
        while True:
            found, said = self.next()
            assert found in (kind, "beat", "retry", "change"), f"{found} {said} instead of {kind}"
            if found == kind:
                return said

    def wait(self, shown: Callable[[Reader], bool]) -> None:
        """Until the page shows that."""
        while not shown(self):
            self.change()

    def close(self) -> None:
        self.answer.close()
        self._connection.close()

    def _apply(self, said: dict[str, Any]) -> None:
        self.parts |= said["parts"]
        self.rows |= said["rows"]
        self.order = said.get("order", self.order)
        # of what the page had when it was loaded, a reader knows nothing
        self.rows = {row: self.rows[row] for row in self.order if row in self.rows}
