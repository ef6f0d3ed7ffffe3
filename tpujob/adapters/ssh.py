"""The port Hosts over SSH: carry the agent and a plan to every host of a slice, start all or none, stop all.

A connection lives for one call. What an agent answers is one line of JSON: `{"ok": true, "state": ...}` or
`{"ok": false, "error": ..., "cause": ...}`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from tpujob.adapters.ssh_agent import packed
from tpujob.adapters.ssh_connection import Deadline, Link, Output, Target
from tpujob.adapters.ssh_keys import SliceKeys
from tpujob.domain.model import Cause, HostPlan, Slice
from tpujob.errors import HostKeyChanged, Refused, TpujobError, Transient
from tpujob.ports import HostAccess

FOLDER = ".tpujob"  #: on a host, below the home folder

T = TypeVar("T")
#: what one host gave: a value, or why there is none
Outcomes = dict[int, T | TpujobError]


class SshHosts:
    """`keys` holds a folder per slice: its key pair and its pinned host keys. `agent` is carried to the hosts instead
    of the real one."""

    def __init__(
        self,
        keys: Path,
        *,
        port: int = 22,
        user: str = "tpujob",
        agent: Path | None = None,
        max_parallel: int = 64,
    ) -> None:
        self._keys = keys
        self._port = port
        self._user = user
        self._agent = agent
        self._pool = ThreadPoolExecutor(max_parallel, thread_name_prefix="ssh")

    def public_key(self, slice: Slice) -> str:
        return self._slice_keys(slice).public_key()

    def start(self, slice: Slice, plans: Sequence[HostPlan], *, timeout: float) -> None:
        reserve = min(15.0, timeout / 3)  # to undo a half-done start and still answer in time
        everything, doing = Deadline(timeout), Deadline(timeout - reserve)
        plan_of = {plan.host: plan for plan in plans}
        fleet = self._fleet(slice, list(plan_of))
        try:
            ready = fleet.each(lambda host, link: self._carry(link, plan_of[host], doing), doing)
            fleet.insist(ready)  # nothing has been started up to here
            commands = {
                host: command for host, command in ready.items() if isinstance(command, list)
            }
            answers = fleet.each(
                lambda host, link: _parsed(link.run([*commands[host]], doing)), doing
            )
            if any(isinstance(answer, TpujobError) for answer in answers.values()):
                undone = self._undo(slice, answers, reserve, everything)
                fleet.insist(answers, afterword=undone)
        finally:
            fleet.close()

    def stop(self, slice: Slice, *, grace: float, timeout: float) -> None:
        deadline = Deadline(timeout)
        fleet = self._fleet(slice, [endpoint.host for endpoint in slice.endpoints])
        try:
            answers = fleet.each(lambda _, link: self._halt(link, grace, deadline), deadline)
            fleet.insist({host: _not_yet(answer) for host, answer in answers.items()})
        finally:
            fleet.close()

    def alive(self, slice: Slice, *, timeout: float) -> frozenset[int]:
        deadline = Deadline(timeout)
        reachable = [endpoint.host for endpoint in slice.endpoints if endpoint.address]
        try:
            fleet = self._fleet(slice, reachable)
        except OSError:  # our own disk: nothing can be said of the hosts
            return frozenset()
        try:
            answers = fleet.each(lambda _, link: _answers(link, deadline), deadline)
        finally:
            fleet.close()
        return frozenset(host for host, answer in answers.items() if answer is True)

    def forget(self, slice: Slice) -> None:
        self._slice_keys(slice).forget()

    def access(self, slice: Slice, host: int) -> HostAccess:
        """What `tpujob ssh` needs. Raises Transient while the host has no address."""
        keys = self._slice_keys(slice)
        return HostAccess(
            host=host,
            address=_address(slice, host),
            port=self._port,
            user=self._user,
            key_file=str(keys.key_file),
            known_hosts_file=str(keys.known_hosts_file),
        )

    def close(self) -> None:
        """Let go of the threads; calls under way end by their own deadlines."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _carry(self, link: Link, plan: HostPlan, deadline: Deadline) -> list[str]:
        """Agent and plan are on the host afterwards; returns the command that starts it."""
        agent = self._carry_agent(link, deadline)
        path = f"{agent.rpartition('/')[0]}/{plan_name(plan.document)}"
        with link.files(deadline) as files:
            files.put(path, json.dumps(dict(plan.document)).encode())
        return ["python3", agent, "start", path]

    def _carry_agent(self, link: Link, deadline: Deadline) -> str:
        link.open(deadline)
        with link.files(deadline) as files:
            home = f"{files.home()}/{FOLDER}"
            path = f"{home}/agent-{self._agent_hash}"
            files.folder(home)
            if files.size(path) != len(self._agent_bytes):
                files.put(path, self._agent_bytes)
        return path

    def _halt(self, link: Link, grace: float, deadline: Deadline) -> Mapping[str, Any]:
        agent = self._carry_agent(link, deadline)
        return _parsed(link.run(["python3", agent, "stop", "--grace", f"{grace:g}"], deadline))

    def _undo(
        self, slice: Slice, answers: Outcomes[Mapping[str, Any]], reserve: float, deadline: Deadline
    ) -> str:
        """Stop what this start has, or may have, begun. What ran before it is left alone: a host that cannot be
        reached for a moment must not end a healthy program. Returns what could not be stopped, for the message."""
        begun = [host for host, answer in answers.items() if _may_have_begun(answer)]
        fleet = self._fleet(slice, begun)
        try:
            stopped = fleet.each(lambda _, link: self._halt(link, reserve / 3, deadline), deadline)
        finally:
            fleet.close()
        left = [str(host) for host, answer in stopped.items() if isinstance(answer, TpujobError)]
        return f"; it may still run on host {', '.join(left)}" if left else ""

    def _fleet(self, slice: Slice, hosts: Sequence[int]) -> _Fleet:
        keys = self._slice_keys(slice)
        keys.ensure()
        targets = {
            host: Target(
                address=_address(slice, host),
                port=self._port,
                user=self._user,
                key_file=keys.key_file,
                known_hosts_file=keys.known_hosts_file,
            )
            for host in hosts
        }
        return _Fleet(self._pool, targets)

    def _slice_keys(self, slice: Slice) -> SliceKeys:
        return SliceKeys(self._keys, slice.name)

    @cached_property
    def _agent_bytes(self) -> bytes:
        return packed() if self._agent is None else self._agent.read_bytes()

    @cached_property
    def _agent_hash(self) -> str:
        return hashlib.sha256(self._agent_bytes).hexdigest()[:8]


class _Fleet:
    """The connections of one call, worked on in parallel."""

    def __init__(self, pool: ThreadPoolExecutor, targets: Mapping[int, Target]) -> None:
        self._pool = pool
        self._links = {host: Link(t, first_contact=True) for host, t in targets.items()}

    def each(self, work: Callable[[int, Link], T], deadline: Deadline) -> Outcomes[T]:
        """Do `work` with every host at once. Returns by the deadline: a host that is not done by then is cut off."""
        futures = {self._pool.submit(work, host, link): host for host, link in self._links.items()}
        wait(futures, timeout=max(0.0, deadline.left()))
        return {host: self._outcome(future, host) for future, host in futures.items()}

    def insist(self, outcomes: Outcomes[T], *, afterword: str = "") -> None:
        """Raise what stands in the way, naming every host: a changed key before a clear no before no contact."""
        errors = {h: o for h, o in sorted(outcomes.items()) if isinstance(o, TpujobError)}
        for kind in (HostKeyChanged, Refused, Transient):
            named = [f"{self._label(h)}: {e}" for h, e in errors.items() if isinstance(e, kind)]
            first = next((e for e in errors.values() if isinstance(e, kind)), None)
            text = "; ".join(named) + afterword
            if isinstance(first, Refused):
                raise Refused(text, cause=first.cause, hint=first.hint)
            if first is not None:
                raise kind(text)  # pyright: ignore[reportCallIssue]

    def close(self) -> None:
        for link in self._links.values():
            link.abort()

    def _outcome(self, future: Future[T], host: int) -> T | TpujobError:
        if not future.done():
            future.cancel()
            self._links[host].abort()  # wakes its thread
            return Transient("no answer in time")
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, TpujobError):
            return error
        raise error

    def _label(self, host: int) -> str:
        return f"host {host} ({self._links[host].target.address})"


def plan_name(document: Mapping[str, Any]) -> str:
    """The name of a plan's file, whatever the plan says."""
    parts = (str(document.get(key, "0")) for key in ("job", "attempt"))
    return f"plan-{'-'.join(re.sub(r'[^A-Za-z0-9]', '_', part)[:40] for part in parts)}.json"


def _address(slice: Slice, host: int) -> str:
    for endpoint in slice.endpoints:
        if endpoint.host == host:
            return endpoint.address
    raise Transient(f"host {host} of {slice.name} has no address yet")


def _answers(link: Link, deadline: Deadline) -> bool:
    """Whether the host does what it is told: one whose kernel still talks while nothing can be started is not alive.
    A new connection, as an old one may look open long after its host is gone."""
    try:
        link.open(deadline)
        return link.run(["true"], deadline).code == 0
    except Exception:  # whatever it is, it is no sign of life
        return False


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
