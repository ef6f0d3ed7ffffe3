"""Everything that a user can ask of jobs, for command line, pages and HTTP alike: the table of methods.

A row above each method says how it is reached over HTTP and who may call it; routes, access rules and the OpenAPI
document are made of these rows. `service/jobs.py` answers each method, `adapters/http/client.py` sends it.
"""

# pyright: reportReturnType=false
# (the methods of an interface have a docstring for a body)

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Protocol

from tpujob.api.methods import LONG, method, table
from tpujob.domain.access import ADMINS, OWN_JOBS, READ_OWN_JOBS, SEEN_JOBS, SUBMITTERS, VIEWERS
from tpujob.domain.paging import EVENTS, PAGE

if TYPE_CHECKING:
    from tpujob.api import all_shapes as shapes

BUNDLE_TIMEOUT = 600.0  #: seconds to store a bundle of 100 MiB
LIST_BOUNDS = dict.fromkeys(("states", "causes", "types", "zones", "tags", "fields"), 100) | {
    "after": 2000
}
DEFAULT_ROWS = 50  #: rows of a list over HTTP, unless more or fewer are asked for


class JobsApi(Protocol):
    """Behaves alike in process (`service/`) and over HTTP (`adapters/http/`).

    The caller is fixed by the connection: each one has a `JobsApi` of their own. `job` is an id (`000042` or `42`), or
    the name of a job of the caller's; a name must be unique among their jobs that are not final, or else among all of
    them. Raises Forbidden, NotFound, BadSpec, BadRequest, IllegalInState."""

    @method("GET", "/whoami", VIEWERS, "backend")
    def whoami(self) -> shapes.CallerView:
        """Return the caller's identity and role."""

    @method("POST", "/plan", VIEWERS, command="create --dry-run")
    def plan(self, spec: Mapping[str, Any]) -> shapes.PlanView:
        """Return what `create` would submit, resolved; nothing is stored."""

    @method(
        "PUT",
        "/bundles/{sha256}",
        SUBMITTERS,
        query=("bucket",),
        within=BUNDLE_TIMEOUT,
        command="create",
    )
    def put_bundle(self, sha256: str, data: bytes | IO[bytes], *, bucket: str) -> str:
        """Store an archive by its hash, once; returns its object path. Raises BadRequest when the hash differs."""

    @method("POST", "/jobs", SUBMITTERS, bounds={"bundles": 16, "idempotency_key": 200}, status=201)
    def create(
        self,
        spec: Mapping[str, Any],
        *,
        bundles: Sequence[str] = (),
        code: shapes.Checkout | None = None,
        idempotency_key: str = "",
    ) -> shapes.JobView:
        """Submit a job. The same key of the same caller returns the job of the first call; raises Conflict when that
        had another spec, BadSpec when it names a secret that is not set, NotFound when a bundle is not in the bucket
        any more: send it again, and repeat the call with the same key."""

    @method("GET", "/secrets", SUBMITTERS, command="secret list")
    def secrets(self) -> Sequence[shapes.SecretView]:
        """Return the caller's own secrets, by name, without their values."""

    @method("PUT", "/secrets/{name}", SUBMITTERS, command="secret set")
    def set_secret(self, name: str, value: str) -> None:
        """Store a value for the caller's jobs that name it, in place of an older one. A running program keeps the value
        that it got. Raises BadRequest."""

    @method("DELETE", "/secrets/{name}", SUBMITTERS, once=True, command="secret remove")
    def remove_secret(self, name: str) -> None:
        """Remove the secret. Raises NotFound; IllegalInState while an active job names it."""

    @method("GET", "/jobs", VIEWERS, bounds=LIST_BOUNDS, defaults={"limit": DEFAULT_ROWS})
    def list(self, query: shapes.ListQuery | None = None) -> shapes.JobPage:
        """Return a page of the jobs that match `query`, in its order; by default all, the newest first. From page to
        page (`after`) each job that matches comes once, also when jobs change meanwhile; after a restart of the
        backend, one whose place has changed may come twice or not. Jobs without a value in the column of the order come
        last in both directions. Raises BadRequest."""

    @method("GET", "/jobs/{job}", SEEN_JOBS, command="show")
    def get(self, job: str) -> shapes.JobView:
        """Return everything about one job."""

    @method(
        "GET",
        "/jobs/{job}/events",
        SEEN_JOBS,
        bounds={"after": (0, 2**53)},
        defaults={"limit": PAGE},
    )
    def events(self, job: str, *, after: int = 0, limit: int = 0) -> list[shapes.EventView]:
        """Return the job's events, oldest first, with `seq > after`; at most `limit`, 0: all."""

    @method("GET", "/events", VIEWERS, bounds={"kinds": 100}, command="events")
    def happened(
        self, *, before: str = "", kinds: Sequence[str] = (), limit: int = EVENTS
    ) -> shapes.EventsPage:
        """Return the events of all jobs, the newest first: of these kinds (none: of all), and before the page key
        `before`, which is the `next` of another page. A page may have fewer than `limit` events and still a `next`, as
        one call reads a limited number of events. Raises BadRequest."""

    @method("GET", "/capacity", VIEWERS, within=LONG)
    def capacity(self) -> shapes.CapacityReport:
        """Return the hardware that all jobs hold and request, how requests fared within the last day, and what the
        cloud refuses now. Does not ask the cloud; but if the last reading of quota is some minutes old, a call starts
        another and returns the last."""

    @method(
        "GET", "/queue", VIEWERS, bounds={"jobs": 100, "limit": (0, None)}, defaults={"limit": PAGE}
    )
    def queue(self, *, jobs: Sequence[str] = (), limit: int = 0) -> shapes.QueueView:
        """Return the jobs that wait for a slice, or those of `jobs` that do: in the order of the queue, then those that
        must wait for something else first; at most `limit`, 0: all. Raises NotFound."""

    @method("GET", "/shares", VIEWERS)
    def shares(self) -> Sequence[shapes.ShareView]:
        """Return what each share has used lately, beside the part due to its weight, and its owners."""

    @method("GET", "/health", VIEWERS, "backend", command="status")
    def health(self) -> shapes.HealthView:
        """Return the health of the backend that answers, with what is wrong. Never raises for an error of the store: it
        reports that too."""

    @method("GET", "/metrics", VIEWERS, "backend", within=LONG, command="status")
    def backend_metrics(self) -> str:
        """Return the metrics of the backend in Prometheus' text format: jobs, recovery, goodput, money, calls, errors.
        The counters are of the process that answers."""

    @method("GET", "/jobs/{job}/metrics", SEEN_JOBS, command="show")
    def metrics(self, job: str, *, attempt: int | None = None) -> shapes.MetricsView:
        """Return the curves of the numbers that the job's program reported, in one attempt or in the newest ones; also
        after the slice is gone. Names the attempts that could not be read now, and why."""

    @method("GET", "/curves", SEEN_JOBS, bounds={"jobs": 100}, within=LONG, command="show")
    def curves(self, jobs: Sequence[str]) -> shapes.CurvesView:
        """Return the curves of several jobs, each chart with those of all jobs that have it, and what differs between
        the jobs, as far as the caller may see it. An array or a sweep stands for its elements. The first 24 are shown.
        Raises BadRequest without a job."""

    @method("GET", "/jobs/{job}/logs", READ_OWN_JOBS, bounds={"since": (0, 10**11)})
    def logs(
        self,
        job: str,
        *,
        host: int | None = None,
        attempt: int | None = None,
        cursor: str = "",
        tail: int | None = None,
        since: float | None = None,
    ) -> shapes.LogPage:
        """Return the output after the cursor, all hosts merged by time, each line once. Without a cursor: the newest
        attempt from its beginning, or its last `tail` lines; with `since`, in seconds since the epoch, the lines from
        then on, by the clocks of the hosts, also of the attempt that ran then. Without `attempt`, pages continue with
        later attempts."""

    @method("GET", "/jobs/{job}/logs/block", READ_OWN_JOBS, command="logs")
    def log_block(
        self, job: str, *, host: int | None = None, attempt: int | None = None, cursor: str = ""
    ) -> shapes.LogBlock:
        """Return the output like `logs`, but as one piece of some mebibytes with its escape sequences."""

    @method(
        "GET",
        "/jobs/{job}/logs/window",
        READ_OWN_JOBS,
        bounds={"part": (0, 1), "text": 4000},
        command="logs",
    )
    def log_window(self, job: str, query: shapes.WindowQuery | None = None) -> shapes.LogWindow:
        """Return lines at any place of an attempt's output: as many as fit into 48 KiB, at least one. Raises
        BadRequest, NotFound."""

    @method(
        "GET",
        "/jobs/{job}/logs/search",
        READ_OWN_JOBS,
        bounds={"limit": (1, None), "text": 4000},
        command="logs --grep",
    )
    def log_search(self, job: str, query: shapes.SearchQuery) -> shapes.LogMatches:
        """Return the lines of an attempt that contain a text, match a pattern or begin a traceback, and their number.
        Raises BadRequest, also for an invalid pattern; NotFound, Busy, Transient."""

    @method("GET", "/diff", READ_OWN_JOBS, "one job", within=LONG)
    def diff(self, a: str, b: str) -> shapes.DiffView:
        """Return what differs between two jobs: spec, outcome, and the files of their bundles."""

    @method("GET", "/jobs/{job}/patch", READ_OWN_JOBS, within=LONG, command="diff")
    def patch(self, job: str) -> shapes.PatchView:
        """Return the diff from the job's commit to its shipped code. Raises NotFound when the code has no commit, or
        the diff was removed."""

    @method("GET", "/cost", VIEWERS, within=LONG, command="cost report")
    def cost(
        self,
        *,
        by: str = "job",
        then: str = "",
        user: str = "",
        job: str = "",
        since: str = "",
        until: str = "",
    ) -> shapes.CostView:
        """Return chip-hours, money and goodput of all jobs, or of one user's, or of the job with this id, in rows by
        job, user, share, day, type or zone; with `then`, each row divided by another of these. `since`, `until`: the
        first and the last day that count, such as 2026-11-01, UTC; empty: without that bound. Raises BadRequest."""

    @method("GET", "/ledger", VIEWERS, within=LONG, command="cost reconcile")
    def ledger(self) -> shapes.LedgerView:
        """Return every slice of every job that was ever billed: when, and at which rate."""

    @method("POST", "/estimate", VIEWERS, command="cost estimate")
    def estimate(
        self, spec: Mapping[str, Any], inputs: shapes.EstimateInputs | None = None
    ) -> shapes.EstimateView:
        """Return the estimated cost of a job, line by line, for its first offer; nothing is stored. Its duration is
        from `inputs`, else from earlier jobs; if it is unknown, the amounts are for one hour. Raises BadSpec,
        BadRequest."""

    @method("POST", "/compare", VIEWERS, within=LONG, command="cost estimate")
    def compare(
        self,
        spec: Mapping[str, Any],
        inputs: shapes.EstimateInputs | None = None,
        options: shapes.CompareOptions | None = None,
    ) -> shapes.CompareView:
        """Return the duration and the cost of the same work on several types and in several zones; nothing is stored.
        Speeds are from `options`, else from measurements of earlier jobs. Raises BadSpec, BadRequest."""

    @method("GET", "/reached", VIEWERS, within=LONG, command="fit")
    def reached(self) -> Sequence[shapes.ReachedView]:
        """Return the part of the peak of their chips that earlier jobs reached, by generation. A generation with fewer
        than three jobs that reported it is left out."""

    @method("GET", "/budgets", VIEWERS, within=LONG, command="cost budgets")
    def budgets(self) -> Sequence[shapes.SpendingView]:
        """Return the budgets of money: the shared ones, then those of active jobs."""

    @method("POST", "/jobs/{job}/cancel", OWN_JOBS, query=("release",))
    def cancel(self, job: str, *, release: bool = False) -> shapes.JobView:
        """Stop the program and keep the slice for a while, or release it with `release`."""

    @method("POST", "/jobs/{job}/resume", OWN_JOBS, query=("budget",))
    def resume(self, job: str, *, budget: float | None = None) -> shapes.JobView:
        """Continue the job, and all jobs that ended because they waited for it; `budget` sets its total budget in US
        dollars, also while it is active. Raises IllegalInState with the arithmetic when its budgets do not allow it;
        then nothing has changed."""

    @method("POST", "/jobs/{job}/delete", OWN_JOBS)
    def delete(self, job: str) -> shapes.JobView:
        """Stop the job and release its slice; record and logs are kept."""

    @method("POST", "/jobs/{job}/clean", OWN_JOBS, query=("checkpoints",))
    def clean(self, job: str, *, checkpoints: bool = False) -> shapes.JobView:
        """Delete the job like `delete`, then remove its logs, bundle and record, and with `checkpoints` its
        checkpoints. Raises IllegalInState while jobs depend on it that the caller may delete."""

    @method("POST", "/jobs/{job}/hold", OWN_JOBS, command="queue hold")
    def hold(self, job: str) -> shapes.JobView:
        """Request no slice for the job, nor for the elements of a group, until it is released; a slice that it has is
        kept. Raises IllegalInState when it has ended."""

    @method("POST", "/jobs/{job}/release", OWN_JOBS, command="queue release")
    def release(self, job: str) -> shapes.JobView:
        """Undo `hold`: the job waits for a slice again. Raises Forbidden for a job that an admin holds, unless an admin
        calls; IllegalInState for an element whose group is held."""

    @method("POST", "/jobs/{job}/top", OWN_JOBS, command="queue top")
    def top(self, job: str) -> shapes.JobView:
        """Move the job before all other jobs of its owner that have the same priority and share."""

    @method("POST", "/jobs/{job}/requeue", OWN_JOBS, command="queue requeue")
    def requeue(self, job: str) -> shapes.JobView:
        """Stop the job's program, which saves; its slice is handed on to another job of its owner or released, and
        the job is queued again. Raises IllegalInState unless its program runs."""

    @method(
        "POST",
        "/jobs/{job}/annotate",
        OWN_JOBS,
        bounds={"note": 4000, "add": 100, "remove": 100},
        command="tag",
    )
    def annotate(
        self,
        job: str,
        *,
        note: str | None = None,
        add: Sequence[str] = (),
        remove: Sequence[str] = (),
    ) -> shapes.JobView:
        """Set the job's note, one line (None: keep it; empty: remove it), add tags and remove others. Raises
        BadRequest."""

    @method(
        "POST",
        "/jobs/{job}/access",
        OWN_JOBS,
        bounds={"host": (0, None), "key": 1000},
        command="ssh",
    )
    def access(self, job: str, *, host: int = 0, key: str) -> shapes.HostAccess:
        """Allow the holder of a key to log in at a host for some minutes; `key` is its public half, as a line of
        `authorized_keys`, of type ssh-ed25519. Raises IllegalInState when the job has no slice that can be reached."""

    @method("GET", "/jobs/{job}/outputs", READ_OWN_JOBS, within=LONG)
    def outputs(self, job: str) -> shapes.OutputsView:
        """Return the checkpoints and outputs that the job's program saved in the bucket, by step and by path."""

    @method("POST", "/jobs/{job}/files/read", READ_OWN_JOBS, command="cp")
    def read_files(self, job: str) -> shapes.FilesAccess:
        """Return a token that may list and read the objects of the job's folder, and nothing else, for an hour at
        most. Raises Refused, Transient."""

    @method("POST", "/jobs/{job}/files/write", OWN_JOBS, command="cp")
    def write_files(self, job: str) -> shapes.FilesAccess:
        """Return a token as `read_files` does, which may also write and replace the job's checkpoints and outputs."""

    @method("GET", "/hosts", ADMINS, "upkeep")
    def hosts(self) -> list[shapes.SuspectView]:
        """Return the machines that are accused or pinned, the worst first."""

    @method("POST", "/hosts/pin", ADMINS, "upkeep", bounds={"verdict": 16}, command="hosts pin")
    def pin_host(self, physical: str, verdict: str) -> shapes.SuspectView:
        """Mark a machine `good` (never refused) or `bad` (always refused) whatever its score; empty removes the mark.
        Raises BadRequest."""

    @method("POST", "/hosts/clear", ADMINS, "upkeep", once=True, command="hosts clear")
    def clear_host(self, physical: str) -> None:
        """Forget a machine's score, pin and reasons. Raises NotFound."""

    @method("GET", "/channels", VIEWERS, "notifications", command="notifications")
    def channels(self) -> Sequence[shapes.ChannelView]:
        """Return the channels of notifications, in the order of the context, with rules and without secrets."""

    @method(
        "GET",
        "/deliveries",
        VIEWERS,
        "notifications",
        bounds={"channel": 64},
        command="notifications list",
    )
    def deliveries(self, *, channel: str = "", limit: int = 50) -> Sequence[shapes.DeliveryView]:
        """Return the newest messages of one channel or all, at most `limit`, up to 1,000. Raises NotFound."""

    @method(
        "POST",
        "/channels/{channel}/test",
        ADMINS,
        "notifications",
        once=True,
        command="notifications test",
    )
    def test_channel(self, channel: str) -> shapes.DeliveryView:
        """Send a test message at once and return its delivery. Raises NotFound."""

    @method(
        "PUT", "/channel-secrets/{name}", ADMINS, "notifications", command="notifications secret"
    )
    def set_channel_secret(self, name: str, value: str) -> None:
        """Store a secret that channels name, in place of an older value; the next try uses it. Raises BadRequest."""

    @method("GET", "/members", ADMINS, "upkeep")
    def members(self) -> Sequence[shapes.MemberView]:
        """Return the members who may use this backend besides the account that runs it, by name; those who have left
        and own jobs or secrets; and the names in settings that are no member's."""

    @method(
        "PUT", "/members", ADMINS, "upkeep", bounds={"name": 200, "role": 16}, command="members add"
    )
    def give_role(self, name: str, role: str) -> shapes.MemberView:
        """Give that login or address that role, from its next request on. Raises BadRequest."""

    @method(
        "DELETE",
        "/members",
        ADMINS,
        "upkeep",
        bounds={"name": 200, "to": 200},
        once=True,
        command="members remove",
    )
    def remove_member(self, name: str, *, to: str = "", secrets: bool = False) -> shapes.MemberView:
        """Remove a member: their requests are refused, their jobs continue. `to`: the member, or the caller, who owns
        their jobs and secrets from now on; one's own secrets are kept. `secrets`: their secrets are removed. Both are
        possible later, too. Raises NotFound, BadRequest; IllegalInState while an active job names such a secret."""

    @method("GET", "/leaks", ADMINS, "upkeep", within=LONG)
    def leaks(self) -> shapes.SweptView:
        """Return what `sweep` would do now: slices that no job claims, in every zone that a job of ours ever used."""

    @method("POST", "/sweep", ADMINS, "upkeep", query=("dry_run", "slice"), within=LONG)
    def sweep(self, *, dry_run: bool = False, slice: str = "") -> shapes.SweptView:
        """Delete everything that `leaks` lists and that is older than some minutes, and the keys of slices that are
        gone. `dry_run`: only say so. `slice`: delete this one alone, at any age and also if its job's record cannot
        be read; raises NotFound if a job claims it. Safe to repeat. Raises Transient or Refused when no zone can be
        listed."""

    @method("GET", "/fsck", ADMINS, "upkeep", within=LONG)
    def fsck(self) -> list[shapes.BrokenView]:
        """Return every rule that does not hold of a record or its history; empty: all hold."""

    @method("GET", "/follow", SEEN_JOBS, "follow", command="wait")
    def follow(self, job: str | None = None, *, timeout: float = 30.0) -> Iterator[None]:
        """Yield at once, then whenever that job (or any) may have changed, at the latest after `timeout`."""


#: every method, by its name
METHODS = table(JobsApi)
