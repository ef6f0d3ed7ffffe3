"""The port Hosts over SSH: bring every host of a slice to its plan, all or none; stop all.

Connections last for one call. What is sent to the agent on one host is in `agent_calls.py`.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tpujob.adapters.calling import Deadline
from tpujob.adapters.ssh.agent_calls import AgentCalls, launch_secrets
from tpujob.adapters.ssh.connection import Connection, Login, NoLogin
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
from tpujob.adapters.ssh.transport import MAX_TUNNELS, Reach, Tunnel, address
from tpujob.api import HostAccess
from tpujob.domain.actions import HostPlan
from tpujob.domain.model import Cause, Slice
from tpujob.domain.text import duration, rfc3339
from tpujob.errors import Refused, TpujobError, Transient
from tpujob.ports import Listening, PublishedHost
from tpujob.protocol import signing

USER = "tpujob"  #: whom hosts know by the key
LOGIN_PATIENCE = 300.0  #: seconds of a slice in which its hosts may lack our key, or may not have published theirs
GUESTS_TIMEOUT = 15.0


class GuestReader(Protocol):
    """Reads what the cloud reports of a slice's hosts. Raises Transient, and returns within `timeout`."""

    def look(self, slice: Slice, timeout: float) -> Sequence[PublishedHost]:
        """Return what the hosts have published, by host."""
        ...

    def obstacle(self, slice: Slice, timeout: float) -> str:
        """Return why the cloud makes a host refuse our key; empty: no reason is known."""
        ...


class SshHosts:
    """Threads may share it. `Bounds` limits its threads and connections, whatever the number of hosts."""

    def __init__(
        self,
        keys: Path | KeyStore,
        *,
        port: int = 22,
        agent: Path | None = None,
        reach: Reach = "external",
        project: str = "",
        tunnel: Sequence[str] = ("gcloud",),
        guests: GuestReader | None = None,
        bounds: Bounds | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`keys`: a folder, or another store. `agent`: uploaded to the hosts instead of the real one. `project` and
        `tunnel`, the program, are for IAP. `guests`: None: nothing is known of the hosts but what they show."""
        self._keys = FileKeys(keys) if isinstance(keys, Path) else keys
        self._port = port
        self._agent = AgentCalls(agent)
        self._reach: Reach = reach
        self._project = project
        self._tunnel = tuple(tunnel)
        self._guests = guests
        self._now = now
        most = MAX_TUNNELS
        usual = Bounds(most, most, most) if reach == "iap" else Bounds()
        self._pool = Pool(bounds or usual)

    def public_key(self, slice: Slice) -> str:
        return public_line(self._keys.private_key(slice.name))

    def key(self, purpose: Sequence[str]) -> str:
        return signing.derive(self._keys.private_key(ROOT).encode(), *purpose)

    def start(self, slice: Slice, plans: Sequence[HostPlan], *, timeout: float) -> None:
        reserve = min(15.0, timeout / 3)  # to undo a half-done start and still answer in time
        everything, doing = Deadline(timeout), Deadline(timeout - reserve)
        plan_of = {plan.host: plan.document for plan in plans}
        authority = authority_line(public_line(self._key(slice)), slice.epoch)
        secrets = {plan.host: launch_secrets(plan) for plan in plans}
        with self._session(slice, list(plan_of), doing) as session:
            ready = session.each(
                lambda host, on: self._agent.carry(on, plan_of[host], doing, authority), doing
            )
            session.insist(self._judged(slice, ready, doing))  # nothing has been started up to here
            answers = session.each(
                lambda host, on: self._agent.start(on, plan_of[host], doing, secrets[host]),
                doing,
            )
            if any(isinstance(answer, TpujobError) for answer in answers.values()):
                undone = self._undo(slice, answers, reserve, everything)
                session.insist(answers, afterword=undone)

    def stop(self, slice: Slice, *, grace: float, discard: bool = False, timeout: float) -> None:
        deadline = Deadline(timeout)
        hosts = [endpoint.host for endpoint in slice.endpoints]
        with self._session(slice, hosts, deadline) as session:
            answers = self._halt_all(session, hosts, grace, deadline, discard=discard)
            # a stop cannot be refused: it is tried again
            again = {h: Transient(a.message) for h, a in answers.items() if isinstance(a, Refused)}
            session.insist({**answers, **again})

    def wipe(self, slice: Slice, *, others: bool, timeout: float) -> None:
        deadline, key = Deadline(timeout), public_line(self._key(slice)) if others else ""
        with self._session(slice, [one.host for one in slice.endpoints], deadline) as session:
            wipe = partial(self._agent.wipe, epoch=slice.epoch, key=key, deadline=deadline)
            session.insist(session.each(lambda _, on: wipe(on), deadline))

    def alive(self, slice: Slice, *, timeout: float) -> frozenset[int]:
        deadline = Deadline(timeout)
        hosts = [e.host for e in slice.endpoints if address(e, self._reach)]
        # a host is not alive if only its kernel answers, nor by an old connection, which may look open long after
        return self._those(slice, hosts, lambda on: on.run("true", deadline).code == 0, deadline)

    def abandoned(
        self, slice: Slice, hosts: Collection[int], *, job: str, attempt: int, timeout: float
    ) -> frozenset[int]:
        deadline = Deadline(timeout)
        ask = partial(self._agent.is_gone, job=job, attempt=attempt, deadline=deadline)
        return self._those(slice, hosts, ask, deadline)

    def listen(
        self, slice: Slice, host: int, *, job: str, attempt: int, timeout: float
    ) -> Listening:
        deadline = Deadline(timeout)
        session = self._session(slice, [host], deadline)
        try:
            connection = session.opened(host, deadline)
        except BaseException:
            session.close()
            raise
        return _Stream(session, self._agent.listen(connection, job, attempt, deadline))

    def trust(self, slice: Slice) -> str:
        """Why the slice's host keys are trusted, as `keys.trust` says it; empty, too, if the store does not answer."""
        try:
            return trust(self._keys.pinned(slice.name))
        except TpujobError:
            return ""

    def forget(self, slice: Slice) -> None:
        self._keys.forget(slice.name)

    def kept(self) -> list[str]:
        return [name for name in self._keys.names() if name != ROOT]

    def access(self, slice: Slice, host: int, key: str, holder: str) -> HostAccess:
        """What `tpujob ssh` needs to reach a host with the private half of that public key. `holder`: who has it, for
        the host's log. Nothing is asked of the host. Raises BadRequest for what is no key, Transient while the host has
        no address."""
        now, own = self._now(), self._key(slice)
        certificate = sign(own, key, user=USER, epoch=slice.epoch, holder=holder, now=now)
        guests = self._ask(slice, GUESTS_TIMEOUT) if self._reach == "iap" else ()
        login = self._login(slice, host, guests, key="")
        label = host_label(login.address, login.port)
        pins = {k: v for k, v in self._keys.pinned(slice.name).items() if k == label}
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

    def _those(
        self,
        slice: Slice,
        hosts: Collection[int],
        ask: Callable[[Connection], bool],
        deadline: Deadline,
    ) -> frozenset[int]:
        """Return the hosts for which `ask` returns True."""
        if not hosts:  # a session may ask the cloud for their keys
            return frozenset()
        try:
            with self._session(slice, [*hosts], deadline) as session:
                answers = session.each(lambda _, on: ask(on), deadline)
        except Exception:  # whatever failed, no host has shown it
            return frozenset()
        return frozenset(host for host, answer in answers.items() if answer is True)

    def _undo(
        self, slice: Slice, answers: Outcomes[Mapping[str, Any]], reserve: float, deadline: Deadline
    ) -> str:
        """Stop what this start has, or may have, begun. Programs that ran before are left alone: a host that is out of
        reach for a moment must not end a healthy program. Returns what could not be stopped, for the message."""
        begun = [host for host, answer in answers.items() if _may_have_begun(answer)]
        with self._session(slice, begun, deadline) as session:
            stopped = self._halt_all(session, begun, reserve / 3, deadline)
        left = [str(host) for host, answer in stopped.items() if isinstance(answer, TpujobError)]
        return f"; it may still run on host {', '.join(left)}" if left else ""

    def _halt_all(
        self,
        session: SliceSession,
        hosts: Sequence[int],
        grace: float,
        deadline: Deadline,
        *,
        discard: bool = False,
    ) -> Outcomes[Mapping[str, Any]]:
        """Where not all hosts are served at once, signal all first, so that none waits for the grace of others."""

        def stop(on: Connection, *, ask: bool = False) -> Mapping[str, Any]:
            return self._agent.stop(on, grace, deadline, discard=discard, ask=ask)

        if len(hosts) > self._pool.bounds.share:
            session.each(lambda _, on: stop(on, ask=True), deadline)
        return session.each(lambda _, on: stop(on), deadline)

    def _key(self, slice: Slice) -> str:
        """Return the key that was made before the slice was requested. Raises NotFound once it was forgotten."""
        return self._keys.private_key(slice.name, make=False)

    def _session(self, slice: Slice, hosts: Sequence[int], deadline: Deadline) -> SliceSession:
        name, key, pinned = slice.name, self._key(slice), self._keys.pinned(slice.name)
        labels = (host_label(address(e, self._reach), self._port) for e in slice.endpoints)
        guests: Sequence[PublishedHost] = ()
        if self._reach == "iap" or any(label not in pinned for label in labels):
            guests = self._ask(slice, deadline.left(GUESTS_TIMEOUT))
        logins = {host: self._login(slice, host, guests, key) for host in hosts}
        host_keys = HostKeys(pinned, guests, hosts=len(slice.endpoints))

        def pin(met: Mapping[str, HostKey]) -> None:
            if met:
                self._keys.pin(name, met)

        return SliceSession(self._pool, logins, host_keys, pin)

    def _ask(self, slice: Slice, timeout: float) -> Sequence[PublishedHost]:
        return self._guests.look(slice, timeout) if self._guests is not None else ()

    def _login(self, slice: Slice, host: int, guests: Sequence[PublishedHost], key: str) -> Login:
        found = [address(one, self._reach) for one in slice.endpoints if one.host == host]
        if found in ([], [""]):
            raise Transient(f"host {host} of {slice.name} has no {self._reach} address yet")
        (where,) = found
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
        return Login(where, self._port, USER, key, tunnel)

    def _judged(self, slice: Slice, outcomes: Outcomes[None], deadline: Deadline) -> Outcomes[None]:
        """While a slice is young, a refused key may be accepted later, and a host key published: the guest agent
        creates the user, and publishes, after boot. After that it is Refused, with the reason that the cloud knows."""
        shut = [host for host, outcome in outcomes.items() if isinstance(outcome, NoLogin)]
        silent = [host for host, outcome in outcomes.items() if isinstance(outcome, Unpublished)]
        age = self._now() - slice.ready_at if slice.ready_at is not None else 0.0
        if not (shut or silent) or age < LOGIN_PATIENCE:
            return outcomes
        judged = {**outcomes, **dict.fromkeys(silent, _silent(age))}
        if shut:
            seconds = deadline.left(GUESTS_TIMEOUT)
            why = self._guests.obstacle(slice, seconds) if self._guests is not None else ""
            judged |= dict.fromkeys(shut, _shut_out(age, why))
        return judged


class _Stream:
    """Implements `ports.Listening`."""

    def __init__(self, session: SliceSession, reports: Iterator[Mapping[str, Any]]) -> None:
        self._session, self._reports = session, reports

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return self._reports

    def close(self) -> None:
        self._session.close()


def _shut_out(age: float, why: str) -> Refused:
    message = f"the host does not accept the key of the slice, {duration(age)} after it was ready"
    if why:
        hint = "Turn OS Login off for the nodes of this project, or ask who manages its policies."
        return Refused(f"{message}: {why}", cause=Cause.PERMISSION, hint=hint)
    hint = (
        f"Its guest agent should have created the user {USER}; another slice is tried. If that happens again, check "
        "whether the policy constraint compute.requireOsLogin is enforced: it makes hosts ignore keys in metadata."
    )
    return Refused(message, cause=Cause.BAD_HOST, hint=hint)


def _silent(age: float) -> Refused:
    return Refused(
        f"the host has not published its host key, {duration(age)} after the slice was ready, and others have",
        cause=Cause.BAD_HOST,
        hint="Its guest agent should have done it, or another machine answers at its address; another slice is tried.",
    )


def _may_have_begun(answer: Mapping[str, Any] | TpujobError) -> bool:
    """Return whether the program may have begun; true also when the answer was lost."""
    if isinstance(answer, TpujobError):
        return isinstance(answer, Transient)
    return answer.get("state") != "already"
