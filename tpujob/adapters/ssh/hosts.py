"""The hosts of slices over SSH: starts programs on all hosts of a slice or on none, stops them, wipes hosts.

Connections last for one call. `agent_calls.py` calls the agent on one host.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpujob.adapters.ssh.agent_calls import AgentCalls
from tpujob.adapters.ssh.host_keys import HostKeys, Unpublished
from tpujob.adapters.ssh.keys import (
    LIFETIME,
    ROOT,
    FileKeys,
    HostKey,
    KeyStore,
    authority_line,
    host_label,
    public_line,
    sign,
    trust,
    write_pins,
)
from tpujob.adapters.ssh.pool import Bounds, Outcomes, Pool, SliceSession
from tpujob.adapters.ssh.transport import MAX_TUNNELS, Login, NoLogin, Reach, Tunnel, address
from tpujob.api import HostAccess
from tpujob.domain.actions import HostPlan
from tpujob.domain.model import Cause, Slice
from tpujob.domain.text import duration, rfc3339
from tpujob.errors import Refused, TpujobError, Transient
from tpujob.lib.tries import Deadline
from tpujob.ports import Guests, Listening, PublishedHost
from tpujob.protocol import signing

if TYPE_CHECKING:
    from tpujob.adapters.ssh.connection import Connection

USER = "tpujob"  #: login name on hosts
#: seconds, after a slice is ready, in which its hosts may lack our key or not have published theirs
LOGIN_PATIENCE = 300.0
GUESTS_TIMEOUT = 15.0  #: seconds for one call of `ports.Guests`


class SshHosts:
    """Implements `ports.Hosts`. `Bounds` limits threads and connections, whatever the number of hosts. Thread-safe."""

    def __init__(
        self,
        keys: Path | KeyStore,
        *,
        port: int = 22,
        agent: Path | None = None,
        reach: Reach = "external",
        project: str = "",
        tunnel: Sequence[str] = ("gcloud",),
        guests: Mapping[str, Guests] | None = None,
        bounds: Bounds | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`keys`: a folder, or another store. `agent`: archive to upload in place of the real agent. `project`,
        `tunnel`: project and program for connections through IAP. `guests`: by provider; without its own, no
        published keys of a slice are read."""
        self._keys = FileKeys(keys) if isinstance(keys, Path) else keys
        self._port = port
        self._agent = AgentCalls(agent)
        self._reach: Reach = reach
        self._project = project
        self._tunnel = tuple(tunnel)
        self._guests = guests or {}
        self._now = now
        if bounds is None:
            bounds = Bounds(MAX_TUNNELS, MAX_TUNNELS, MAX_TUNNELS) if reach == "iap" else Bounds()
        self._pool = Pool(bounds)

    def public_key(self, slice: Slice) -> str:
        return public_line(self._keys.private_key(slice.name))

    def key(self, purpose: Sequence[str]) -> str:
        return signing.derive(self._keys.private_key(ROOT).encode(), *purpose)

    def start(self, slice: Slice, plans: Sequence[HostPlan], *, timeout: float) -> None:
        reserve = min(15.0, timeout / 3)  # time to undo a start on some hosts
        deadline, start_by = Deadline(timeout), Deadline(timeout - reserve)
        plan_of = {plan.host: plan for plan in plans}
        authority = authority_line(public_line(self._key(slice)), slice.epoch)
        agent = self._agent
        with self._session(slice, list(plan_of), start_by) as session:
            uploads = session.each(
                lambda host, connection: agent.upload_plan(
                    connection, plan_of[host], start_by, authority
                ),
                start_by,
            )
            # raises before any program is started
            session.raise_worst(self._refuse_late_logins(slice, uploads, start_by))
            answers = session.each(
                lambda host, connection: agent.start(connection, plan_of[host], start_by), start_by
            )
            if any(isinstance(answer, TpujobError) for answer in answers.values()):
                still_running = self._undo(slice, answers, reserve, deadline)
                session.raise_worst(answers, afterword=still_running)

    def stop(self, slice: Slice, *, grace: float, discard: bool = False, timeout: float) -> None:
        deadline = Deadline(timeout)
        hosts = [endpoint.host for endpoint in slice.endpoints]
        with self._session(slice, hosts, deadline) as session:
            answers = self._stop_all(session, hosts, grace, deadline, discard=discard)
            # a stop is retried whatever its error
            refused = {h: a for h, a in answers.items() if isinstance(a, Refused)}
            retried = {host: Transient(answer.message) for host, answer in refused.items()}
            session.raise_worst({**answers, **retried})

    def wipe(self, slice: Slice, *, others: bool, timeout: float) -> None:
        deadline = Deadline(timeout)
        key = public_line(self._key(slice)) if others else ""
        hosts = [endpoint.host for endpoint in slice.endpoints]
        with self._session(slice, hosts, deadline) as session:
            wipe = partial(self._agent.wipe, epoch=slice.epoch, key=key, deadline=deadline)
            session.raise_worst(session.each(lambda _, connection: wipe(connection), deadline))

    def alive(self, slice: Slice, *, timeout: float) -> frozenset[int]:
        deadline = Deadline(timeout)
        hosts = [e.host for e in slice.endpoints if address(e, self._reach)]
        # log in and run a command: on a dead host the kernel may answer, and an old connection look open
        return self._hosts_where(
            slice, hosts, lambda connection: connection.run("true", deadline).code == 0, deadline
        )

    def without_agent(
        self, slice: Slice, hosts: Collection[int], *, job: str, attempt: int, timeout: float
    ) -> frozenset[int]:
        deadline = Deadline(timeout)
        has_died = partial(self._agent.has_died, job=job, attempt=attempt, deadline=deadline)
        return self._hosts_where(slice, hosts, has_died, deadline)

    def listen(
        self, slice: Slice, host: int, *, job: str, attempt: int, timeout: float
    ) -> Listening:
        deadline = Deadline(timeout)
        session = self._session(slice, [host], deadline)
        try:
            connection = session.open(host, deadline)
        except BaseException:
            session.close()
            raise
        return _Stream(session, self._agent.listen(connection, job, attempt, deadline))

    def trust(self, slice: Slice) -> str:
        """Return why the slice's host keys are trusted (`keys.trust`); empty also when the store does not answer."""
        try:
            return trust(self._keys.pinned(slice.name))
        except TpujobError:
            return ""

    def forget(self, slice: Slice) -> None:
        self._keys.forget(slice.name)

    def kept(self) -> list[str]:
        return [name for name in self._keys.names() if name != ROOT]

    def access(self, slice: Slice, host: int, key: str, holder: str) -> HostAccess:
        """Return what `tpujob ssh` needs to reach a host, with a certificate for the public key `key`. `holder`: the
        user, for the host's log. Makes no connection. Raises BadRequest for an invalid key, Transient while the host
        has no address."""
        now = self._now()
        authority = self._key(slice)
        certificate = sign(authority, key, user=USER, epoch=slice.epoch, holder=holder, now=now)
        guests = self._read_guests(slice, GUESTS_TIMEOUT) if self._reach == "iap" else ()
        login = self._login(slice, host, guests, key="")
        label = host_label(login.address, login.port)
        pins = {name: pin for name, pin in self._keys.pinned(slice.name).items() if name == label}
        return HostAccess(
            host=host,
            address=login.address,
            port=login.port,
            user=login.user,
            certificate=certificate,
            expires_at=rfc3339(now + LIFETIME),
            host_keys=write_pins(pins).splitlines(),
            instance=login.tunnel.instance if login.tunnel else "",
            zone=slice.zone,
            project=self._project,
        )

    def close(self) -> None:
        """Release the threads; calls in progress end by their own deadlines."""
        self._pool.threads.shutdown(wait=False, cancel_futures=True)

    # All hosts of a slice

    def _hosts_where(
        self,
        slice: Slice,
        hosts: Collection[int],
        condition: Callable[[Connection], bool],
        deadline: Deadline,
    ) -> frozenset[int]:
        """Return the hosts on whose connection the condition is true; without those that do not answer."""
        if not hosts:  # a session may call the cloud
            return frozenset()
        try:
            with self._session(slice, [*hosts], deadline) as session:
                answers = session.each(lambda _, connection: condition(connection), deadline)
        except Exception:  # no answer counts
            return frozenset()
        return frozenset(host for host, answer in answers.items() if answer is True)

    def _undo(
        self, slice: Slice, answers: Outcomes[Mapping[str, Any]], reserve: float, deadline: Deadline
    ) -> str:
        """Stop the programs that this start has started, or may have. Returns an afterword for the error message, with
        the hosts where that failed. Programs that ran before continue: a host that cannot be reached for a moment must
        not end a healthy program."""
        started = [host for host, answer in answers.items() if _may_have_started(answer)]
        with self._session(slice, started, deadline) as session:
            stopped = self._stop_all(session, started, reserve / 3, deadline)
        failed = [str(host) for host, answer in stopped.items() if isinstance(answer, TpujobError)]
        return f"; it may still run on host {', '.join(failed)}" if failed else ""

    def _stop_all(
        self,
        session: SliceSession,
        hosts: Sequence[int],
        grace: float,
        deadline: Deadline,
        *,
        discard: bool = False,
    ) -> Outcomes[Mapping[str, Any]]:
        """Stop the programs of all hosts. If not all are served at once, signal all first, so that their times of grace
        run in parallel."""

        def stop(connection: Connection, *, ask: bool = False) -> Mapping[str, Any]:
            return self._agent.stop(connection, grace, deadline, discard=discard, ask=ask)

        if len(hosts) > self._pool.bounds.share:
            session.each(lambda _, connection: stop(connection, ask=True), deadline)
        return session.each(lambda _, connection: stop(connection), deadline)

    def _key(self, slice: Slice) -> str:
        """Return the slice's private key, which exists since its request. Raises NotFound when it was forgotten."""
        return self._keys.private_key(slice.name, make=False)

    def _session(self, slice: Slice, hosts: Sequence[int], deadline: Deadline) -> SliceSession:
        """Return the connections to some hosts, with all host keys that are pinned or published."""
        key, pinned = self._key(slice), self._keys.pinned(slice.name)
        labels = (host_label(address(e, self._reach), self._port) for e in slice.endpoints)
        guests: Sequence[PublishedHost] = ()
        if self._reach == "iap" or any(label not in pinned for label in labels):
            guests = self._read_guests(slice, deadline.left(GUESTS_TIMEOUT))
        logins = {host: self._login(slice, host, guests, key) for host in hosts}
        host_keys = HostKeys(pinned, guests, hosts=len(slice.endpoints))

        def pin(new: Mapping[str, HostKey]) -> None:
            if new:
                self._keys.pin(slice.name, new)

        return SliceSession(self._pool, logins, host_keys, pin)

    def _read_guests(self, slice: Slice, timeout: float) -> Sequence[PublishedHost]:
        guests = self._guests.get(slice.provider)
        return guests.look(slice, timeout) if guests else ()

    def _login(self, slice: Slice, host: int, guests: Sequence[PublishedHost], key: str) -> Login:
        addresses = [address(e, self._reach) for e in slice.endpoints if e.host == host]
        if addresses in ([], [""]):
            raise Transient(f"host {host} of {slice.name} has no {self._reach} address yet")
        tunnel = None
        if self._reach == "iap":
            name = guests[host].name if host < len(guests) else ""
            if not name:
                raise Transient(
                    f"host {host} of {slice.name} has not published its name, which IAP needs",
                    hint="Guest attributes may be off for the project: the policy constraint "
                    "compute.disableGuestAttributesAccess must not be enforced.",
                )
            tunnel = Tunnel(name, slice.zone, self._project, self._tunnel)
        return Login(addresses[0], self._port, USER, key, tunnel)

    def _refuse_late_logins(
        self, slice: Slice, outcomes: Outcomes[None], deadline: Deadline
    ) -> Outcomes[None]:
        """Return the outcomes; once the slice is old, with Refused in place of NoLogin and Unpublished. On a young
        slice these may pass: after boot the guest agent creates the user and publishes the host key."""
        no_login = [host for host, outcome in outcomes.items() if isinstance(outcome, NoLogin)]
        silent = [host for host, outcome in outcomes.items() if isinstance(outcome, Unpublished)]
        age = self._now() - slice.ready_at if slice.ready_at is not None else 0.0
        if not (no_login or silent) or age < LOGIN_PATIENCE:
            return outcomes
        refused = dict.fromkeys(silent, _no_host_key_error(age))
        if no_login:
            seconds = deadline.left(GUESTS_TIMEOUT)
            guests = self._guests.get(slice.provider)
            reason = guests.obstacle(slice, seconds) if guests else ""
            refused |= dict.fromkeys(no_login, _no_login_error(age, reason))
        return {**outcomes, **refused}


class _Stream:
    """Implements `ports.Listening`."""

    def __init__(self, session: SliceSession, reports: Iterator[Mapping[str, Any]]) -> None:
        self._session, self._reports = session, reports

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return self._reports

    def close(self) -> None:
        self._session.close()


def _no_login_error(age: float, reason: str) -> Refused:
    message = f"the host does not accept the key of the slice, {duration(age)} after it was ready"
    if reason:
        hint = "Turn OS Login off for the nodes of this project, or ask who manages its policies."
        return Refused(f"{message}: {reason}", cause=Cause.PERMISSION, hint=hint)
    hint = (
        f"Its guest agent should have created the user {USER}; another slice is tried. If that happens again, check "
        "whether the policy constraint compute.requireOsLogin is enforced: it makes hosts ignore keys in metadata."
    )
    return Refused(message, cause=Cause.BAD_HOST, hint=hint)


def _no_host_key_error(age: float) -> Refused:
    return Refused(
        f"the host has not published its host key, {duration(age)} after the slice was ready, and others have",
        cause=Cause.BAD_HOST,
        hint="Its guest agent should have done it, or another machine answers at its address; another slice is tried.",
    )


def _may_have_started(answer: Mapping[str, Any] | TpujobError) -> bool:
    """Return whether this start may have started the program; true also when the answer was lost."""
    if isinstance(answer, TpujobError):
        return isinstance(answer, Transient)
    return answer.get("state") != "already"
