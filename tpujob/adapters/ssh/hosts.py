"""The port Hosts over SSH: carry the agent and a plan to every host of a slice, start all or none, stop all.

Connections live for one call. What an agent answers is one line of JSON: `{"ok": true, "state": ...}` or
`{"ok": false, "error": ..., "cause": ...}`.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tpujob.adapters.ssh.agent_archive import packed
from tpujob.adapters.ssh.connection import Deadline, Link, NoLogin, Output, Target
from tpujob.adapters.ssh.host_keys import Known
from tpujob.adapters.ssh.keys import FileKeys, KeyStore, host_label, public_line, write_pins
from tpujob.adapters.ssh.pool import Bounds, Crew, Fleet, Outcomes
from tpujob.adapters.ssh.transport import MAX_TUNNELS, Reach, Tunnel, address
from tpujob.api import HostAccess
from tpujob.domain.actions import HostPlan
from tpujob.domain.model import Cause, Endpoint, Slice
from tpujob.errors import Refused, TpujobError, Transient
from tpujob.ports import Guest

FOLDER = ".tpujob"  #: on a host, below the home folder
LOGIN_PATIENCE = 300.0  #: seconds of a slice in which its hosts may not know the key yet
GUESTS_TIMEOUT = 15.0

#: what a host answers when the agent must be carried to it first
_NEED = "tpujob: no agent"

#: stdin becomes the plan's file, whole or not at all; then says whether the agent is there.
#: $1 folder, $2 plan, $3 its bytes, $4 agent, $5 its bytes
_CARRY = f"""umask 077; cd && {{ [ -d "$1" ] || mkdir -p "$1"; }} && cd "$1" || exit 1
new="$2.$$.tmp"
if cat > "$new" && [ "$(wc -c < "$new")" -eq "$3" ] && mv -f "$new" "$2"
then [ -f "$4" ] && [ "$(wc -c < "$4")" -eq "$5" ] || echo "{_NEED}"
else rm -f "$new"; echo "the plan did not arrive whole"; exit 1; fi"""

#: runs the agent, if it is there. $1 agent, $2 its bytes; the rest are words for it
_CALL = f"""cd && if [ -f "$1" ] && [ "$(wc -c < "$1")" -eq "$2" ]
then agent="$1"; shift 2; exec python3 "$agent" "$@"
else echo "{_NEED}"; fi"""


class SshHosts:
    """Threads may share it. What it takes at most, whatever the number of hosts, is in `Bounds`."""

    def __init__(
        self,
        keys: Path | KeyStore,
        *,
        port: int = 22,
        user: str = "tpujob",
        agent: Path | None = None,
        reach: Reach = "external",
        project: str = "",
        tunnel: Sequence[str] = ("gcloud",),
        guests: Callable[[Slice, float], Sequence[Guest]] | None = None,
        obstacle: Callable[[Slice, float], str] | None = None,
        bounds: Bounds | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`keys`: a folder, or another store. `agent` is carried to the hosts instead of the real one. `project` and
        `tunnel`, the program, are for IAP. `guests`: what the hosts of a slice have published through the cloud, by
        host; `obstacle`: what the cloud says that keeps our key out, empty: nothing that it knows of. Both are given
        the seconds that they may take, and raise Transient."""
        self._keys = FileKeys(keys) if isinstance(keys, Path) else keys
        self._port = port
        self._user = user
        self._agent = agent
        self._reach: Reach = reach
        self._project = project
        self._tunnel = tuple(tunnel)
        self._guests = guests
        self._obstacle = obstacle
        self._now = now
        most = MAX_TUNNELS
        usual = Bounds(most, most, most) if reach == "iap" else Bounds()
        self._crew = Crew(bounds or usual)

    def public_key(self, slice: Slice) -> str:
        return public_line(self._keys.private_key(slice.name))

    def start(self, slice: Slice, plans: Sequence[HostPlan], *, timeout: float) -> None:
        reserve = min(15.0, timeout / 3)  # to undo a half-done start and still answer in time
        everything, doing = Deadline(timeout), Deadline(timeout - reserve)
        plan_of = {plan.host: plan.document for plan in plans}
        with self._fleet(slice, list(plan_of), doing) as fleet:
            ready = fleet.each(lambda host, link: self._carry(link, plan_of[host], doing), doing)
            fleet.insist(self._judged(slice, ready, doing))  # nothing has been started up to here
            answers = fleet.each(lambda host, link: self._start(link, plan_of[host], doing), doing)
            if any(isinstance(answer, TpujobError) for answer in answers.values()):
                undone = self._undo(slice, answers, reserve, everything)
                fleet.insist(answers, afterword=undone)

    def stop(self, slice: Slice, *, grace: float, timeout: float) -> None:
        deadline = Deadline(timeout)
        hosts = [endpoint.host for endpoint in slice.endpoints]
        with self._fleet(slice, hosts, deadline) as fleet:
            answers = self._halt_all(fleet, hosts, grace, deadline)
            fleet.insist({host: _not_yet(answer) for host, answer in answers.items()})

    def alive(self, slice: Slice, *, timeout: float) -> frozenset[int]:
        deadline = Deadline(timeout)
        hosts = [e.host for e in slice.endpoints if address(e, self._reach)]
        try:
            with self._fleet(slice, hosts, deadline) as fleet:
                answers = fleet.each(lambda _, link: _answers(link, deadline), deadline)
        except Exception:  # our own disk, the cloud, whatever it is: it is no sign of life
            return frozenset()
        return frozenset(host for host, answer in answers.items() if answer is True)

    def forget(self, slice: Slice) -> None:
        self._keys.forget(slice.name)

    def kept(self) -> list[str]:
        return self._keys.names()

    def access(self, slice: Slice, host: int) -> HostAccess:
        """What `tpujob ssh` needs. Raises Transient while the host has no address."""
        guests = self._ask(slice, GUESTS_TIMEOUT) if self._reach == "iap" else ()
        target = self._target(slice, host, guests, key="")
        label = host_label(target.address, target.port)
        pins = {k: v for k, v in self._keys.pinned(slice.name).items() if k == label}
        return HostAccess(
            host=host,
            address=target.address,
            port=target.port,
            user=target.user,
            key_file=self._keys.key_file(slice.name),
            key_secret=self._keys.secret(slice.name),
            host_keys=write_pins(pins).splitlines(),
            instance=target.tunnel.instance if target.tunnel else "",
            zone=slice.zone,
            project=self._project,
        )

    def close(self) -> None:
        """Let go of the threads; calls under way end by their own deadlines."""
        self._crew.pool.shutdown(wait=False, cancel_futures=True)

    # With one host

    def _carry(self, link: Link, document: Mapping[str, Any], deadline: Deadline) -> None:
        """Agent and plan are on the host afterwards. One round trip, unless the agent is new to the host."""
        plan = json.dumps(dict(document)).encode()
        words = [FOLDER, plan_name(document), str(len(plan)), self._agent_name, self._agent_size]
        output = link.run(_script(_CARRY, words), deadline, stdin=plan)
        if output.code != 0:
            said = _printable(output.text[-300:]) or f"exit code {output.code}"
            raise Refused(f"cannot write to the host: {said}", cause="SETUP")
        if _NEED in output.text:
            self._carry_agent(link, deadline)

    def _carry_agent(self, link: Link, deadline: Deadline) -> None:
        link.put(f"{FOLDER}/{self._agent_name}", self._agent_bytes, deadline)

    def _start(
        self, link: Link, document: Mapping[str, Any], deadline: Deadline
    ) -> Mapping[str, Any]:
        return _parsed(self._call(link, ["start", f"{FOLDER}/{plan_name(document)}"], deadline))

    def _halt(self, link: Link, grace: float, deadline: Deadline, *more: str) -> Mapping[str, Any]:
        words = ["stop", "--grace", f"{grace:g}", *more]
        output = self._call(link, words, deadline)
        if _NEED in output.text:
            made = link.run(_script('umask 077; cd && mkdir -p "$1"', [FOLDER]), deadline)
            if made.code != 0:
                raise Refused(f"cannot write to the host: {_printable(made.text)}", cause="SETUP")
            self._carry_agent(link, deadline)
            output = self._call(link, words, deadline)
        return _parsed(output)

    def _call(self, link: Link, words: Sequence[str], deadline: Deadline) -> Output:
        agent = f"{FOLDER}/{self._agent_name}"
        return link.run(_script(_CALL, [agent, self._agent_size, *words]), deadline)

    # With all of them

    def _undo(
        self, slice: Slice, answers: Outcomes[Mapping[str, Any]], reserve: float, deadline: Deadline
    ) -> str:
        """Stop what this start has, or may have, begun. What ran before it is left alone: a host that cannot be
        reached for a moment must not end a healthy program. Returns what could not be stopped, for the message."""
        begun = [host for host, answer in answers.items() if _may_have_begun(answer)]
        with self._fleet(slice, begun, deadline) as fleet:
            stopped = self._halt_all(fleet, begun, reserve / 3, deadline)
        left = [str(host) for host, answer in stopped.items() if isinstance(answer, TpujobError)]
        return f"; it may still run on host {', '.join(left)}" if left else ""

    def _halt_all(
        self, fleet: Fleet, hosts: Sequence[int], grace: float, deadline: Deadline
    ) -> Outcomes[Mapping[str, Any]]:
        """Where hosts are worked on in turns, all are asked first: none waits for the grace of those before it."""
        if len(hosts) > self._crew.bounds.share:
            fleet.each(lambda _, link: self._halt(link, grace, deadline, "--ask"), deadline)
        return fleet.each(lambda _, link: self._halt(link, grace, deadline), deadline)

    def _fleet(self, slice: Slice, hosts: Sequence[int], deadline: Deadline) -> Fleet:
        name = slice.name
        key, pinned = self._keys.private_key(name), self._keys.pinned(name)
        labels = (host_label(address(e, self._reach), self._port) for e in slice.endpoints)
        guests: Sequence[Guest] = ()
        if self._reach == "iap" or any(label not in pinned for label in labels):
            guests = self._ask(slice, deadline.at_most(GUESTS_TIMEOUT))
        targets = {host: self._target(slice, host, guests, key) for host in hosts}
        known = Known(pinned, guests, hosts=len(slice.endpoints))

        def pin(met: Mapping[str, tuple[str, str]]) -> None:
            if met:
                self._keys.pin(name, met)

        return Fleet(self._crew, targets, known, pin)

    def _ask(self, slice: Slice, timeout: float) -> Sequence[Guest]:
        return self._guests(slice, timeout) if self._guests is not None else ()

    def _target(self, slice: Slice, host: int, guests: Sequence[Guest], key: str) -> Target:
        where = address(_endpoint(slice, host), self._reach)
        if not where:
            raise Transient(f"host {host} of {slice.name} has no {self._reach} address yet")
        tunnel = None
        if self._reach == "iap":
            name = guests[host].name if host < len(guests) else ""
            if not name:
                raise Transient(
                    f"host {host} of {slice.name} has not published its name, by which IAP reaches it",
                    hint="Guest attributes may be off for the project: the policy constraint "
                    "compute.disableGuestAttributesAccess must not be enforced.",
                )
            tunnel = Tunnel(name, slice.zone, self._project, self._tunnel)
        return Target(where, self._port, self._user, key, tunnel)

    def _judged(self, slice: Slice, outcomes: Outcomes[None], deadline: Deadline) -> Outcomes[None]:
        """A key that is not accepted is waited for while a slice is young, as the guest agent makes the user after
        boot; later it is a clear no, with what the cloud knows of it."""
        shut = [host for host, outcome in outcomes.items() if isinstance(outcome, NoLogin)]
        age = self._now() - slice.ready_at if slice.ready_at is not None else 0.0
        if not shut or age < LOGIN_PATIENCE:
            return outcomes
        seconds = deadline.at_most(GUESTS_TIMEOUT)
        why = self._obstacle(slice, seconds) if self._obstacle is not None else ""
        return {**outcomes, **dict.fromkeys(shut, _shut_out(self._user, age, why))}

    @property
    def _agent_name(self) -> str:
        return f"agent-{self._agent_hash}"

    @property
    def _agent_size(self) -> str:
        return str(len(self._agent_bytes))

    @cached_property
    def _agent_bytes(self) -> bytes:
        return packed() if self._agent is None else self._agent.read_bytes()

    @cached_property
    def _agent_hash(self) -> str:
        return hashlib.sha256(self._agent_bytes).hexdigest()[:8]


def plan_name(document: Mapping[str, Any]) -> str:
    """The name of a plan's file, whatever the plan says."""
    parts = (str(document.get(key, "0")) for key in ("job", "attempt"))
    return f"plan-{'-'.join(re.sub(r'[^A-Za-z0-9]', '_', part)[:40] for part in parts)}.json"


def _script(text: str, words: Sequence[str]) -> str:
    """A line for any login shell that runs this in a plain one; every word arrives as it is."""
    return "exec " + shlex.join(["sh", "-c", text, "sh", *words])


def _shut_out(user: str, age: float, why: str) -> Refused:
    said = f"the host does not accept the key of the slice, {age / 60:.0f} min after it was ready"
    if why:
        hint = "Turn OS Login off for the nodes of this project, or ask who manages its policies."
        return Refused(f"{said}: {why}", cause=Cause.PERMISSION, hint=hint)
    hint = (
        f"Its guest agent should have made the user {user}; another slice is tried. If it goes on, look whether the "
        "policy constraint compute.requireOsLogin is enforced: then keys in metadata are ignored."
    )
    return Refused(said, cause=Cause.BAD_HOST, hint=hint)


def _endpoint(slice: Slice, host: int) -> Endpoint:
    for endpoint in slice.endpoints:
        if endpoint.host == host:
            return endpoint
    raise Transient(f"host {host} of {slice.name} has no address yet")


def _answers(link: Link, deadline: Deadline) -> bool:
    """Whether the host does what it is told: one whose kernel still talks while nothing can be started is not alive.
    The connection is new, as an old one may look open long after its host is gone."""
    return link.run("true", deadline).code == 0


def _not_yet(answer: Mapping[str, Any] | TpujobError) -> Mapping[str, Any] | TpujobError:
    """There is no refusing a stop: what could not be stopped is tried again."""
    return Transient(answer.message) if isinstance(answer, Refused) else answer


def _may_have_begun(answer: Mapping[str, Any] | TpujobError) -> bool:
    """Also when the answer was lost."""
    if isinstance(answer, TpujobError):
        return isinstance(answer, Transient)
    return answer.get("state") != "already"


def _parsed(output: Output) -> Mapping[str, Any]:
    """The agent's answer: the last line that is a JSON object with `ok`, as a login shell may print before it."""
    for line in reversed(output.text.splitlines()):
        answer = _answer(line)
        if answer is None:
            continue
        if answer["ok"] is True:
            return answer
        cause = str(answer.get("cause") or "")
        known = cause if cause in Cause.__members__ else "SETUP"
        raise Refused(_printable(str(answer.get("error") or "the agent said no")), cause=known)
    if output.code > 128:
        raise Transient(f"the agent was killed (exit code {output.code})")
    said = _printable(output.text[-300:]) or "nothing"
    raise Refused(f"the agent gave no answer (exit code {output.code}): {said}", cause="SETUP")


def _answer(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) and "ok" in value else None  # pyright: ignore[reportUnknownVariableType]


def _printable(text: str) -> str:
    """Remote text on one line, without control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:500]
