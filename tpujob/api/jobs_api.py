"""Everything that a user can ask of jobs, for command line, pages and HTTP alike. No rule is here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, Protocol

from tpujob.api.admin_shapes import BrokenView, CallerView, MemberView, SuspectView, SweptView
from tpujob.api.cost_shapes import CostView, EstimateSaid, EstimateView, LedgerView, SpendingView
from tpujob.api.forecast_shapes import CompareAsked, CompareView
from tpujob.api.shapes import (
    CodeGiven,
    DiffView,
    EventView,
    HostAccess,
    JobView,
    LogPage,
    PlanView,
    SecretView,
)


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

    def list(
        self, *, user: str = "", all: bool = False, before: str = "", limit: int = 0
    ) -> list[JobView]:
        """Jobs, newest first, final ones only with `all`: those that were submitted before the job of the id `before`,
        and at most `limit` of them; 0: every one. `attempts`, `slices`, `budgets`, `capacity`, `waiting` and
        `spec` are empty."""
        ...

    def get(self, job: str) -> JobView: ...

    def events(self, job: str, *, after: int = 0, limit: int = 0) -> list[EventView]:
        """What happened to it, oldest first, with `seq > after`; at most `limit`, 0: all."""
        ...

    def logs(
        self,
        job: str,
        *,
        host: int | None = None,
        attempt: int | None = None,
        cursor: str = "",
        tail: int | None = None,
    ) -> LogPage: ...

    def diff(self, a: str, b: str) -> DiffView:
        """What differs between two jobs: spec, outcome, and the files of their bundles."""
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
