"""`JobsApi` over HTTP, for the command line. Standard library only: every command pays for its imports."""

from __future__ import annotations

import time
import zlib
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from tpujob.adapters.backend_calls import Calls
from tpujob.domain.pages import EVENTS, PAGE, all_of
from tpujob.domain.secrets import checked_name
from tpujob.errors import BackendGone, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpujob.adapters.backend_calls import Answer
    from tpujob.api import (
        BrokenView,
        CallerView,
        CapacityReport,
        ChannelView,
        CodeGiven,
        CompareAsked,
        CompareView,
        CostView,
        DeliveryView,
        DiffView,
        EstimateSaid,
        EstimateView,
        EventsPage,
        EventView,
        HealthView,
        HostAccess,
        JobPage,
        JobView,
        LedgerView,
        ListAsked,
        LogBlock,
        LogMatches,
        LogPage,
        LogWindow,
        MemberView,
        MetricsView,
        PatchView,
        PlanView,
        SearchAsked,
        SecretView,
        SpendingView,
        SuspectView,
        SweptView,
        WindowAsked,
    )

#: seconds to store a bundle of 100 MiB
BUNDLE_TIMEOUT = 600.0
#: seconds for calls that read every record with its history
LONG = 300.0
#: the longest wait that the backend grants to one poll
POLL = 30.0


class RemoteJobs(Calls):
    """Implements `jobsapi.JobsApi` against a backend."""

    # JobsApi ---------------------------------------------------------------------------------------------------------

    def whoami(self) -> CallerView:
        return self._get("/whoami")

    def plan(self, spec: Mapping[str, Any]) -> PlanView:
        return self._call("POST", "/plan", body={"spec": spec})

    def put_bundle(self, sha256: str, data: bytes | IO[bytes], *, bucket: str) -> str:
        data = data if isinstance(data, bytes) else data.read()
        path, query = f"/bundles/{quote(sha256, safe='')}", {"bucket": bucket}
        return self._call("PUT", path, query, body=data, timeout=BUNDLE_TIMEOUT)["path"]

    def create(
        self,
        spec: Mapping[str, Any],
        *,
        bundles: Sequence[str] = (),
        code: CodeGiven | None = None,
        idempotency_key: str = "",
    ) -> JobView:
        body = {"spec": spec, "bundles": list(bundles), "code": code}
        return self._call(
            "POST", "/jobs", body=body, key=idempotency_key, repeat=bool(idempotency_key)
        )

    def secrets(self) -> Sequence[SecretView]:
        return self._get("/secrets")

    def set_secret(self, name: str, value: str) -> None:
        self._call("PUT", _secret_path(name), body={"value": value})

    def remove_secret(self, name: str) -> None:
        # never sent twice: the second would fail with NotFound
        self._call("DELETE", _secret_path(name), repeat=False)

    def list(self, asked: ListAsked | None = None) -> JobPage:
        query: dict[str, Any] = {**(asked or {})}
        wanted = query.pop("limit", 0)
        if query.get("active") is False:  # which is not the same as nothing
            query["active"] = "false"
        found: JobPage = self._get("/jobs", **query, limit=min(wanted or PAGE, PAGE))
        while found["next"] and len(found["rows"]) != wanted:
            most = min(wanted - len(found["rows"]), PAGE) if wanted else PAGE
            query.update(after=found["next"], limit=most)
            page: JobPage = self._get("/jobs", **query)
            found = {**found, "rows": found["rows"] + page["rows"], "next": page["next"]}
        return found

    def get(self, job: str) -> JobView:
        return self._get(_path(job))

    def events(self, job: str, *, after: int = 0, limit: int = 0) -> list[EventView]:
        def page(most: int, last: EventView | None) -> list[EventView]:
            newer = last["seq"] if last else after
            return self._get(_path(job, "events"), after=newer, limit=most)

        return all_of(page, limit)

    def happened(
        self, *, before: str = "", kinds: Sequence[str] = (), limit: int = EVENTS
    ) -> EventsPage:
        return self._get("/events", before=before, kinds=list(kinds), limit=limit)

    def capacity(self) -> CapacityReport:
        return self._get("/capacity", within=LONG)

    def health(self) -> HealthView:
        return self._get("/health")

    def backend_metrics(self) -> str:
        return self._call("GET", "/metrics", timeout=LONG, read=_text)

    def metrics(self, job: str, *, attempt: int | None = None) -> MetricsView:
        return self._get(_path(job, "metrics"), attempt=attempt)

    def diff(self, a: str, b: str) -> DiffView:
        return self._get("/diff", within=LONG, a=a, b=b)

    def patch(self, job: str) -> PatchView:
        return self._get(_path(job, "patch"), within=LONG)

    def cost(self, *, by: str = "job", user: str = "", job: str = "") -> CostView:
        return self._get("/cost", within=LONG, by=by, user=user, job=job)

    def ledger(self) -> LedgerView:
        return self._get("/ledger", within=LONG)

    def estimate(self, spec: Mapping[str, Any], said: EstimateSaid | None = None) -> EstimateView:
        return self._call("POST", "/estimate", body={"spec": spec, "said": said or {}})

    def compare(
        self,
        spec: Mapping[str, Any],
        said: EstimateSaid | None = None,
        asked: CompareAsked | None = None,
    ) -> CompareView:
        body = {"spec": spec, "said": said or {}, "asked": asked or {}}
        return self._call("POST", "/compare", body=body, timeout=LONG)

    def budgets(self) -> Sequence[SpendingView]:
        return self._get("/budgets", within=LONG)

    def logs(
        self,
        job: str,
        *,
        host: int | None = None,
        attempt: int | None = None,
        cursor: str = "",
        tail: int | None = None,
    ) -> LogPage:
        return self._get(_path(job, "logs"), host=host, attempt=attempt, cursor=cursor, tail=tail)

    def log_block(
        self, job: str, *, host: int | None = None, attempt: int | None = None, cursor: str = ""
    ) -> LogBlock:
        query = {"host": host, "attempt": attempt, "cursor": cursor}
        return self._call("GET", _path(job, "logs/block"), query, read=_block)

    def log_window(self, job: str, asked: WindowAsked | None = None) -> LogWindow:
        return self._get(_path(job, "logs/window"), **(asked or {}))

    def log_search(self, job: str, asked: SearchAsked) -> LogMatches:
        return self._get(_path(job, "logs/search"), **asked)

    def cancel(self, job: str, *, release: bool = False) -> JobView:
        return self._call("POST", _path(job, "cancel"), {"release": release})

    def resume(self, job: str, *, budget: float | None = None) -> JobView:
        return self._call("POST", _path(job, "resume"), {"budget": budget})

    def delete(self, job: str) -> JobView:
        return self._call("POST", _path(job, "delete"))

    def clean(self, job: str, *, checkpoints: bool = False) -> JobView:
        return self._call("POST", _path(job, "clean"), {"checkpoints": checkpoints})

    def access(self, job: str, *, host: int = 0, key: str) -> HostAccess:
        return self._call("POST", _path(job, "access"), body={"host": host, "key": key})

    def hosts(self) -> list[SuspectView]:
        return self._get("/hosts")

    def pin_host(self, physical: str, verdict: str) -> SuspectView:
        return self._call("POST", "/hosts/pin", body={"physical": physical, "verdict": verdict})

    def clear_host(self, physical: str) -> None:
        # never sent twice: the second would fail with NotFound
        self._call("POST", "/hosts/clear", body={"physical": physical}, repeat=False)

    def channels(self) -> Sequence[ChannelView]:
        return self._get("/channels")

    def deliveries(self, *, channel: str = "", limit: int = 50) -> Sequence[DeliveryView]:
        return self._get("/deliveries", channel=channel, limit=limit)

    def test_channel(self, channel: str) -> DeliveryView:
        return self._call("POST", f"/channels/{quote(channel, safe='')}/test", repeat=False)

    def set_channel_secret(self, name: str, value: str) -> None:
        path = f"/channel-secrets/{checked_name(name)}"
        self._call("PUT", path, body={"value": value})

    def members(self) -> Sequence[MemberView]:
        return self._get("/members")

    def give_role(self, name: str, role: str) -> MemberView:
        return self._call("PUT", "/members", body={"name": name, "role": role})

    def remove_member(self, name: str) -> None:
        self._call("DELETE", "/members", {"name": name})

    def leaks(self) -> SweptView:
        found = self._get("/leaks", within=LONG)
        # an older backend sends a list, of what a sweep would delete
        older: SweptView = {"deleted": found, "kept": [], "failed": [], "keys": []}
        return found if "deleted" in found else older

    def sweep(self, *, dry_run: bool = False) -> SweptView:
        return self._call("POST", "/sweep", {"dry_run": dry_run}, timeout=LONG)

    def fsck(self) -> list[BrokenView]:
        return self._get("/fsck", within=LONG)

    def follow(self, job: str | None = None, *, timeout: float = 30.0) -> Iterator[None]:
        wait = min(timeout, POLL)
        cursor = ""
        while True:
            within = wait + self._timeout
            hint = self._get("/follow", within=within, job=job, cursor=cursor, timeout=wait)
            if cursor:
                time.sleep(hint["again_in"])
            cursor = hint["cursor"]
            yield

    # Also ------------------------------------------------------------------------------------------------------------

    def page_code(self) -> str:
        """A code that opens the backend's page on this machine in one browser, within a minute."""
        return self._call("POST", "/page/code")["code"]

    def html(self, path: str) -> str:
        """The page at that address below its top, such as `/jobs/000042`, whole in itself: it needs no other file."""
        return self._call("GET", path, root="", read=lambda answer: answer.body.decode())


def _text(answer: Answer) -> str:
    packed = answer.headers["Content-Encoding"] == "gzip"
    return (zlib.decompress(answer.body, wbits=31) if packed else answer.body).decode()


def _block(answer: Answer) -> LogBlock:
    """Raises BackendGone for what no backend sends."""
    from tpujob.api import LogBlock

    said = answer.headers
    if said["X-Tpujob-Done"] is None:
        raise BackendGone("what answers is not a tpujob backend", hint="check the address")
    packed = said["Content-Encoding"] == "gzip"
    data = zlib.decompress(answer.body, wbits=31) if packed else answer.body
    cursor, done, more = (said[f"X-Tpujob-{name}"] for name in ("Cursor", "Done", "More"))
    note = unquote(said["X-Tpujob-Note"] or "")
    return LogBlock(data, cursor or "", done == "1", more == "1", note)


def _path(job: str, part: str = "") -> str:
    if not job or "/" in job or job in (".", ".."):
        raise NotFound(f"no job is called {job!r}", hint="`tpujob list --all` shows every job.")
    return f"/jobs/{quote(job, safe='')}" + (f"/{part}" if part else "")


def _secret_path(name: str) -> str:
    return f"/secrets/{quote(checked_name(name), safe='')}"
