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

from tpujob.api import Checkout, EventView, JobRow, JobView, ListQuery, LogLine
from tpujob.domain.final_states import FINAL
from tpujob.domain.paging import PAGE, newest
from tpujob.errors import BackendGone, BadRequest, Busy, Transient

if TYPE_CHECKING:
    from tpujob.adapters.http.client import RemoteJobs
    from tpujob.wiring.retrying import RetryingClient

TAIL = 1000  #: default number of lines of a log
POLL = 30.0  #: seconds for which one request waits for a change
HIGH = 640  #: pixels of a page in a notebook


class Client:
    """Access to the backend of a context, as the commands have it. Starts the backend of this machine if it is down.

    Every method raises the errors of `JobsApi` (`tpujob.errors`), each with a hint."""

    def __init__(self, context: str = "", *, api: RemoteJobs | None = None) -> None:
        """Connect to a context of `tpujob use`, default the current one, or to `api`. Raise BackendGone, NotFound."""
        from tpujob.config import settings
        from tpujob.wiring import client

        #: all methods of the backend, with their own shapes (`tpujob.api.JobsApi`)
        self._settings = settings.load(context=context)
        self.api = api or client.client(self._settings)
        self._given = api is not None

    def create(
        self, spec: Mapping[str, Any] | str | Path, *, key: str = "", allow_keys: bool = False
    ) -> Job:
        """Submit a job file, with its folder of code, or a mapping with the content of a job file, without code. A
        repeat with the same `key` makes no second job."""
        key = key or secrets.token_hex(12)
        if isinstance(spec, Mapping):
            if spec.get("code"):
                raise BadRequest(
                    "a mapping has no folder that `code` could be in",
                    hint="Write the job file, and pass its path.",
                )
            bundles, code, content = [], None, spec
        else:
            bundles, code, content = _read(self.api, Path(spec), allow_keys=allow_keys)
        try:
            view = self.api.create(content, bundles=bundles, code=code, idempotency_key=key)
        except (BackendGone, Transient) as error:
            if not isinstance(error, Busy):  # it says that nothing was submitted
                error.hint = f"The job may have been submitted. With key={key!r} a repeat makes no second job."
            raise
        return Job(self, view)

    def job(self, job: str | int) -> Job:
        """Return a job by its id, or one of the caller's jobs by its name."""
        return Job(self, self.api.get(str(job)))

    def jobs(self, **filters: Unpack[ListQuery]) -> Rows:
        """Return a row for each matching job, the newest first: `jobs(mine=True, recent=True, order="spent")`."""
        return Rows(self.api.list(ListQuery(**filters))["rows"])

    def events(self, *kinds: str, limit: int = PAGE) -> list[dict[str, Any]]:
        """Return the newest events of all jobs, the oldest first; without `kinds`, events of every kind."""

        def page(count: int, before: str) -> tuple[list[dict[str, Any]], str]:
            answer = self.api.happened(before=before, kinds=kinds, limit=count)
            return [*map(dict, answer["events"])], answer["next"]

        return newest(page, limit)

    def retrying(self) -> RetryingClient:
        """Return a client that waits for half a minute while the backend is being replaced. Pass only requests that
        change nothing."""
        from tpujob.wiring import client
        from tpujob.wiring.retrying import RetryingClient

        def reconnect() -> RemoteJobs | None:
            if not self._given:
                self.api = client.running_client(self._settings) or self.api
            return self.api

        return RetryingClient(self.api, reconnect)

    def __reduce__(self) -> tuple[type[Client], tuple[str]]:
        """Connect again to the same context where it is unpickled, as another process cannot use this connection."""
        if self._given:
            raise TypeError("a Client that was made with `api` cannot be pickled: make one there")
        return Client, (self._settings.context,)

    def __repr__(self) -> str:
        return f"<tpujob.Client of {self.api.url}>"


class Job:
    """A job, as of the last request. `refresh()` and every other method make a new request."""

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
        """The reason for the job's state, and what happens next."""
        following = self.view.get("next")
        reasons = (self.view["trouble"], self.view["waiting"], self.view["message"])
        parts = [next(filter(None, reasons), ""), following["text"] if following else ""]
        return "; next: ".join(filter(None, parts))

    def refresh(self) -> Job:
        self.view = self._client.api.get(self.id)
        return self

    def wait(self, timeout: float | None = None) -> Job:
        """Wait until the job has ended, in any final state, also while the backend is restarted. Raise Transient after
        `timeout` seconds, BackendGone if no backend answers for half a minute."""
        deadline = None if timeout is None else time.monotonic() + timeout
        retrying = self._client.retrying()

        def ended() -> bool:
            self.view = retrying.ask(lambda api: api.get(self.id))
            return self.state in FINAL

        while not ended():
            left = POLL if deadline is None else min(POLL, deadline - time.monotonic())
            if left <= 0:
                raise Transient(f"job {self.id} is {self.state} after {timeout:g} s", hint=self.why)
            hints = retrying.follow(self.id, timeout=left)
            next(hints)
            if not ended():
                next(hints)
        return self

    def events(self) -> list[EventView]:
        """Return the job's events, the oldest first."""
        return self._client.api.events(self.id)

    def logs(
        self, *, host: int | None = None, attempt: int | None = None, tail: int = TAIL
    ) -> list[LogLine]:
        """Return the last lines of an attempt, of one host or of all merged; `tail=0`: every line."""
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
        """Return a row for each number that the program reported: `attempt`, `step`, `name`, `value`, `least`,
        `greatest`, `time` (seconds since the attempt's first) and `kept` (False: the step was lost, and repeated)."""
        answer = self._client.api.metrics(self.id, attempt=attempt)
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
            for chart in answer["charts"]
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
        """Return the job's page."""
        return _framed(self._client.api.html(f"/jobs/{self.id}"), f"Job {self.id}")


class Rows(list[JobRow]):
    """Rows of a list of jobs, ready for a DataFrame."""

    def __repr__(self) -> str:
        return "\n".join(f"{r['id']}  {r['state']:12}  {r['name']}" for r in self) or "no jobs"


def _framed(page: str, title: str) -> str:
    """Return a frame with the page: its styles stay separate, and it cannot run scripts or send forms."""
    content = html.escape(page, quote=True)
    return f'<iframe srcdoc="{content}" title="{html.escape(title)}" sandbox="" width="100%" height="{HIGH}"></iframe>'


def _read(
    api: RemoteJobs, file: Path, *, allow_keys: bool
) -> tuple[list[str], Checkout | None, dict[str, Any]]:
    """Ship the code of a job file; return the paths of its bundles, its checkout, and the spec as a mapping."""
    from tpujob.domain.spec import dump
    from tpujob.submit import job_file

    spec = job_file.read(file, "", cross_region=False)
    content = dump(spec)
    plan = job_file.naming_file(file, lambda: api.plan(content))
    if any(entry["to_bring"] for entry in plan.get("data", ())):
        raise BadRequest(
            f"{file}: its data must be copied first", hint=f"`tpujob create {file}` copies it"
        )
    bundle = job_file.pack_code(spec, file, allow_keys=allow_keys)
    if bundle is None:
        return [], None, content
    path = api.put_bundle(bundle.sha256, bundle.data, bucket=plan["bucket"])
    return [path], bundle.standing, content
