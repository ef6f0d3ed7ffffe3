"""`tpujob.Client()`: jobs from a notebook or a script, by the same `JobsApi` as the command line and the page.

import tpujob

lab = tpujob.Client()
job = lab.create("configs/mlp.yaml")
job.wait()
pandas.DataFrame(job.metrics())
"""

from __future__ import annotations

import html
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tpujob.api import CodeGiven, EventView, JobRow, JobView, ListAsked, LogLine
from tpujob.domain.model import State
from tpujob.domain.paging import PAGE, newest
from tpujob.errors import BadRequest, Transient

if TYPE_CHECKING:
    from tpujob.adapters.http.client import RemoteJobs

TAIL = 1000  #: lines of a log that are read unless more are asked for
POLL = 30.0  #: seconds that one request waits for a change
FINAL = frozenset(str(state) for state in State if state.final)
HIGH = 640  #: pixels of a page in a notebook


class Client:
    """The way in to the backend of a context, as the commands have it; one on this machine is started when it is down.

    Every method raises the errors of `JobsApi` (`tpujob.errors`), each with a hint."""

    def __init__(self, context: str = "", *, api: RemoteJobs | None = None) -> None:
        """`context`: of `tpujob use`; left out: the current one. `api`: instead of any. Raises BackendGone,
        NotFound."""
        from tpujob.config import settings
        from tpujob.wiring import client

        #: everything that can be asked, in its own shapes (`tpujob.api.JobsApi`)
        self.api = api or client.client(settings.load(context=context))

    def create(
        self, spec: Mapping[str, Any] | str | Path, *, key: str = "", allow_keys: bool = False
    ) -> Job:
        """Submit a job: a job file, with the folder of code that it names, or its content as a mapping, without code.
        A repeat with the same `key` makes no second job."""
        key = key or secrets.token_hex(12)
        if isinstance(spec, Mapping):
            if spec.get("code"):
                raise BadRequest(
                    "a mapping has no folder that `code` could be in",
                    hint="Write the job file, and pass its path.",
                )
            return Job(self, self.api.create(spec, idempotency_key=key))
        bundles, code, given = _read(self.api, Path(spec), allow_keys=allow_keys)
        made = self.api.create(given, bundles=bundles, code=code, idempotency_key=key)
        return Job(self, made)

    def job(self, job: str) -> Job:
        """By its id, or by the name of a job of the caller's."""
        return Job(self, self.api.get(job))

    def jobs(self, **asked: Unpack[ListAsked]) -> Rows:
        """A row of each job that matches, the newest first: `jobs(mine=True, recent=True, order="spent")`."""
        return Rows(self.api.list(ListAsked(**asked))["rows"])

    def events(self, *kinds: str, limit: int = PAGE) -> list[dict[str, Any]]:
        """The newest events of all jobs, of these kinds (none: of all), the oldest first."""

        def page(most: int, before: str) -> tuple[list[dict[str, Any]], str]:
            found = self.api.happened(before=before, kinds=kinds, limit=most)
            return [*map(dict, found["events"])], found["next"]

        return newest(page, limit)

    def __repr__(self) -> str:
        return f"<tpujob.Client of {self.api.url}>"


class Job:
    """A job as it was when it was last asked for: `refresh()` and every other method ask again."""

    def __init__(self, client: Client, view: JobView) -> None:
        self._client, self.view = client, view

    @property
    def id(self) -> str:
        return self.view["id"]

    @property
    def name(self) -> str:
        return self.view["name"]

    @property
    def state(self) -> str:
        return self.view["state"]

    @property
    def why(self) -> str:
        """Why it is in its state, and what happens next."""
        following = self.view.get("next")
        reasons = (self.view["trouble"], self.view["waiting"], self.view["message"])
        parts = [next(filter(None, reasons), ""), following["text"] if following else ""]
        return "; next: ".join(filter(None, parts))

    def refresh(self) -> Job:
        self.view = self._client.api.get(self.id)
        return self

    def wait(self, timeout: float | None = None) -> Job:
        """Until it has ended, however it did. Raises Transient after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.refresh().state not in FINAL:
            left = POLL if deadline is None else min(POLL, deadline - time.monotonic())
            if left <= 0:
                raise Transient(f"job {self.id} is {self.state} after {timeout:g} s", hint=self.why)
            self._changed(left)
        return self

    def _changed(self, within: float) -> None:
        """Return when it may have changed, at the latest after so many seconds."""
        hints = self._client.api.follow(self.id, timeout=within)
        next(hints)
        if self.refresh().state not in FINAL:
            next(hints)

    def events(self) -> list[EventView]:
        """What happened to it, the oldest first."""
        return self._client.api.events(self.id)

    def logs(
        self, *, host: int | None = None, attempt: int | None = None, tail: int = TAIL
    ) -> list[LogLine]:
        """The last lines of an attempt, of one host or of all merged; `tail=0`: every line."""
        api = self._client.api
        if tail:
            return api.logs(self.id, host=host, attempt=attempt, tail=tail)["lines"]
        return [*self._all_logs(host, attempt)]

    def _all_logs(self, host: int | None, attempt: int | None) -> Iterator[LogLine]:
        cursor = ""
        while True:
            page = self._client.api.logs(self.id, host=host, attempt=attempt, cursor=cursor)
            yield from page["lines"]
            if page["done"] or not page["lines"]:
                return
            cursor = page["cursor"]

    def metrics(self, attempt: int | None = None) -> list[dict[str, float | int | str | bool]]:
        """A row of each number that the program reported: `attempt`, `step`, `name`, `value`, `least`, `greatest`,
        `time` (seconds since the attempt's first) and `kept` (False: the step was lost, and made again)."""
        found = self._client.api.metrics(self.id, attempt=attempt)
        return [
            {
                "attempt": curve["attempt"],
                "step": step,
                "name": chart["name"],
                "value": last,
                "least": least,
                "greatest": greatest,
                "time": at,
                "kept": curve["kept"] is None or step <= curve["kept"],
            }
            for chart in found["charts"]
            for curve in chart["curves"]
            for step, at, least, greatest, last in curve["points"]
        ]

    def cancel(self, *, release: bool = False) -> Job:
        self.view = self._client.api.cancel(self.id, release=release)
        return self

    def resume(self, *, budget: float | None = None) -> Job:
        self.view = self._client.api.resume(self.id, budget=budget)
        return self

    def delete(self) -> Job:
        self.view = self._client.api.delete(self.id)
        return self

    def __repr__(self) -> str:
        return f"<job {self.id} {self.name}: {self.state}: {self.why}>"

    def _repr_html_(self) -> str:
        """As its page is."""
        return _framed(self._client.api.html(f"/jobs/{self.id}"), f"Job {self.id}")


class Rows(list[JobRow]):
    """Rows of a list of jobs, ready for a DataFrame."""

    def __repr__(self) -> str:
        return "\n".join(f"{r['id']}  {r['state']:12}  {r['name']}" for r in self) or "no jobs"


def _framed(page: str, title: str) -> str:
    """A page within a page: its styles stay its own, and it may run and send nothing."""
    held = html.escape(page, quote=True)
    return f'<iframe srcdoc="{held}" title="{html.escape(title)}" sandbox="" width="100%" height="{HIGH}"></iframe>'


def _read(
    api: RemoteJobs, file: Path, *, allow_keys: bool
) -> tuple[list[str], CodeGiven | None, dict[str, Any]]:
    """The object paths of what is shipped, its checkout, and the spec."""
    from tpujob.domain.spec import dump
    from tpujob.submit import job_file

    spec = job_file.read(file, "", cross_region=False)
    given = dump(spec)
    plan = job_file.named(file, lambda: api.plan(given))
    if any(one["to_bring"] for one in plan.get("data", ())):
        raise BadRequest(
            f"{file}: its data must be copied first", hint=f"`tpujob create {file}` copies it"
        )
    bundle = job_file.packed(spec, file, allow_keys=allow_keys)
    if bundle is None:
        return [], None, given
    path = api.put_bundle(bundle.sha256, bundle.data, bucket=plan["bucket"])
    return [path], bundle.standing, given
