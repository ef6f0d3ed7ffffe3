"""Everything that a user can ask of jobs, for command line, pages and HTTP alike. No rule is here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, Protocol

from tpujob.api.admin_shapes import BrokenView, CallerView, MemberView, SuspectView, SweptView
from tpujob.api.backend_shapes import HealthView
from tpujob.api.cost_shapes import CostView, EstimateSaid, EstimateView, LedgerView, SpendingView
from tpujob.api.forecast_shapes import CompareAsked, CompareView
from tpujob.api.job_shapes import MetricsView
from tpujob.api.list_shapes import JobPage, ListAsked
from tpujob.api.log_shapes import (
    LogBlock,
    LogMatches,
    LogPage,
    LogWindow,
    SearchAsked,
    WindowAsked,
)
from tpujob.api.notify_shapes import ChannelView, DeliveryView
from tpujob.api.overview_shapes import CapacityReport, EventsPage
from tpujob.api.shapes import (
    CodeGiven,
    DiffView,
    EventView,
    HostAccess,
    JobView,
    PatchView,
    PlanView,
    SecretView,
)
from tpujob.domain.pages import EVENTS


class JobsApi(Protocol):
    """Behaves alike in process (`service/jobs.py`) and over HTTP (`adapters/remote.py`).

    Who calls is known by the way in: each caller has a `JobsApi` of their own. `job` is an id (`000042` or `42`), or
    the name of a job of the caller's; a name must be unique among their jobs that are not final, or else among all of
    them. Raises Forbidden (`domain/access.py` has the table), NotFound, BadSpec, BadRequest, IllegalInState."""

    def whoami(self) -> CallerView:
        """Who the caller is, and what role they have."""
        ...

    def plan(self, spec: Mapping[str, Any]) -> PlanView:
        """What `create` would do, resolved; nothing is stored."""
        ...

    def put_bundle(self, sha256: str, data: bytes | IO[bytes], *, bucket: str) -> str:
        """Store an archive by its hash, once; returns its object path. Raises BadRequest when the hash differs."""
        ...

    def create(
        self,
        spec: Mapping[str, Any],
        *,
        bundles: Sequence[str] = (),
        code: CodeGiven | None = None,
        idempotency_key: str = "",
    ) -> JobView:
        """Submit a job of the caller's. The same key of the same caller gives back the job of the first call; raises
        Conflict when that was of another spec, BadSpec when it names a secret that is not set, NotFound when a bundle
        is not in the bucket any more: send it again, and repeat the call with the same key."""
        ...

    def secrets(self) -> Sequence[SecretView]:
        """The caller's own, by name, without their values."""
        ...

    def set_secret(self, name: str, value: str) -> None:
        """Keep a value for the caller's jobs that name it, over an older one. A program that runs already keeps what it
        was told. Raises BadRequest."""
        ...

    def remove_secret(self, name: str) -> None:
        """Raises NotFound; IllegalInState while a job that goes on names it."""
        ...

    def list(self, asked: ListAsked | None = None) -> JobPage:
        """A page of rows out of all jobs, those that `asked` wants in its order; left out: all, the newest first. From
        page to page (`after`) each job that matches comes once, also when jobs change meanwhile; after a restart of the
        backend, one whose place has changed may come twice or not. Jobs without a value in the column of the order
        come last, whichever way round. Raises BadRequest."""
        ...

    def get(self, job: str) -> JobView: ...

    def events(self, job: str, *, after: int = 0, limit: int = 0) -> list[EventView]:
        """What happened to it, oldest first, with `seq > after`; at most `limit`, 0: all."""
        ...

    def happened(
        self, *, before: str = "", kinds: Sequence[str] = (), limit: int = EVENTS
    ) -> EventsPage:
        """What happened to all jobs, the newest first: events of these kinds (none: of all), those that come after
        `before`, which is the `next` of another page. A page may have fewer than `limit` and yet a `next`: where few
        match, so much is read at once and no more. Raises BadRequest."""
        ...

    def capacity(self) -> CapacityReport:
        """The hardware that all jobs hold and ask for, how requests fared within the last day, and what the cloud
        refuses just now. Asks the cloud nothing; but whoever comes when quota was read some minutes ago begins
        another reading, and gets the one before."""
        ...

    def health(self) -> HealthView:
        """How the backend that answers is doing, and what of it is not as it should be. Never raises for an error of
        the store: that is one of the things it says."""
        ...

    def backend_metrics(self) -> str:
        """What Prometheus reads of a backend, in its text format: jobs, recovery, goodput, money, calls, errors. The
        counters are of the process that answers."""
        ...

    def metrics(self, job: str, *, attempt: int | None = None) -> MetricsView:
        """The curves of what its program told of its steps, in one attempt or in the newest ones; also after the slice
        is gone. What could not be read just now is named, and why."""
        ...

    def logs(
        self,
        job: str,
        *,
        host: int | None = None,
        attempt: int | None = None,
        cursor: str = "",
        tail: int | None = None,
    ) -> LogPage:
        """The output after the cursor, all hosts merged by time, each line once. Without a cursor: from the beginning
        of the newest attempt, or its last `tail` lines. Without `attempt`, later pages go on to later attempts."""
        ...

    def log_block(
        self, job: str, *, host: int | None = None, attempt: int | None = None, cursor: str = ""
    ) -> LogBlock:
        """As `logs`, some mebibytes in one piece, as the program wrote them: not made harmless for a terminal."""
        ...

    def log_window(self, job: str, asked: WindowAsked | None = None) -> LogWindow:
        """Some lines at any place of an attempt's output: as many as there is room for in 48 KiB, one at least. Raises
        BadRequest, NotFound."""
        ...

    def log_search(self, job: str, asked: SearchAsked) -> LogMatches:
        """Where an attempt's output has a text, matches a pattern or shows a traceback; how often, exactly. Raises
        BadRequest, also for a pattern that takes too long."""
        ...

    def diff(self, a: str, b: str) -> DiffView:
        """What differs between two jobs: spec, outcome, and the files of their bundles."""
        ...

    def patch(self, job: str) -> PatchView:
        """What was shipped with it beside its commit. Raises NotFound when there is no such thing."""
        ...

    def cost(self, *, by: str = "job", user: str = "", job: str = "") -> CostView:
        """Chip-hours, money and goodput of all jobs, or only those of one user, or of the one with this id, in rows by
        job, user, day, type or zone. Raises BadRequest."""
        ...

    def ledger(self) -> LedgerView:
        """Every slice of every job that was ever billed: when, and at which rate."""
        ...

    def estimate(self, spec: Mapping[str, Any], said: EstimateSaid | None = None) -> EstimateView:
        """What a job will cost, line by line, for its first offer; nothing is stored. For how long: as `said`, else as
        earlier jobs tell; if nobody knows, the amounts are of one hour. Raises BadSpec, BadRequest."""
        ...

    def compare(
        self,
        spec: Mapping[str, Any],
        said: EstimateSaid | None = None,
        asked: CompareAsked | None = None,
    ) -> CompareView:
        """How long so much of the job's work takes on several types and in several zones, and what it costs; nothing is
        stored. How fast it goes is as `asked`, else as earlier jobs measured. Raises BadSpec, BadRequest."""
        ...

    def budgets(self) -> Sequence[SpendingView]:
        """Budgets of money: those that are shared, then those of jobs that go on."""
        ...

    def cancel(self, job: str, *, release: bool = False) -> JobView: ...

    def resume(self, job: str, *, budget: float | None = None) -> JobView:
        """Go on; with `budget`, it may cost that many US dollars in all, also if it goes on already. Raises
        IllegalInState with the arithmetic when its budgets do not let it; then nothing has changed."""
        ...

    def delete(self, job: str) -> JobView: ...

    def clean(self, job: str, *, checkpoints: bool = False) -> JobView: ...

    def access(self, job: str, *, host: int = 0, key: str) -> HostAccess:
        """Lets the holder of a key in at a host for some minutes; `key` is its public half, as a line of
        `authorized_keys`, of type ssh-ed25519. Raises IllegalInState when the job has no slice that can be reached."""
        ...

    def hosts(self) -> list[SuspectView]:
        """Machines that are suspected of wrong numbers, or pinned, the worst first."""
        ...

    def pin_host(self, physical: str, verdict: str) -> SuspectView:
        """Call a machine `good` (never refused) or `bad` (always refused) whatever its score; empty undoes that.
        Raises BadRequest."""
        ...

    def clear_host(self, physical: str) -> None:
        """Forget a machine's score, pin and reasons. Raises NotFound."""
        ...

    def channels(self) -> Sequence[ChannelView]:
        """Return the channels of notifications, in the order of the context, with rules and without secrets."""
        ...

    def deliveries(self, *, channel: str = "", limit: int = 50) -> Sequence[DeliveryView]:
        """Return the newest messages of one channel or all, at most `limit`, up to 1,000. Raises NotFound."""
        ...

    def test_channel(self, channel: str) -> DeliveryView:
        """Send a message that says it is a test, at once, and return what came of it. Raises NotFound."""
        ...

    def set_channel_secret(self, name: str, value: str) -> None:
        """Keep a value that channels name, over an older one; the next try uses it. Raises BadRequest."""
        ...

    def members(self) -> Sequence[MemberView]:
        """Who may use this backend beside the account that runs it, by name."""
        ...

    def give_role(self, name: str, role: str) -> MemberView:
        """Afterwards whoever has that login or address has that role, from their next request on. Raises BadRequest."""
        ...

    def remove_member(self, name: str) -> None:
        """Afterwards their requests are refused; their jobs go on. Raises NotFound, BadRequest."""
        ...

    def leaks(self) -> SweptView:
        """What `sweep` would do now: what no job claims, in every zone that a job of ours ever used."""
        ...

    def sweep(self, *, dry_run: bool = False) -> SweptView:
        """Delete everything that `leaks` lists and that is older than some minutes, and the keys of slices that are
        gone. `dry_run`: only say so. Safe to repeat. Raises Transient or Refused when no zone can be
        listed."""
        ...

    def fsck(self) -> list[BrokenView]:
        """Every rule that does not hold of a record or its history; an empty list means that all do."""
        ...

    def follow(self, job: str | None = None, *, timeout: float = 30.0) -> Iterator[None]:
        """Yields at once, then whenever that job (or any) may have changed, at the latest after `timeout`."""
        ...
