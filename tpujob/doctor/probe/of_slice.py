"""Probes of the life of a slice, as the API shows it: how it comes, what of it is echoed, how it goes."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpujob.doctor.probe.cloud import Answer
from tpujob.doctor.probe.of_project import figures_of_use
from tpujob.doctor.probe.probing import ASKING, Probing
from tpujob.doctor.probe.verdicts import Judged, UntriedError, judged
from tpujob.domain.model import Cause
from tpujob.domain.observations import Absent, Present, SliceState

#: seconds for a deletion to be seen
GOING = 300.0
#: the marks that are looked for in answers
MARKS = ("tpujob", "tpujob-job", "tpujob-owner")
#: what a request may go through on its way to ACTIVE, in this order; each may be too short to be seen
ON_THE_WAY = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE")


@dataclass(frozen=True, slots=True)
class Step:
    """What was new at a look."""

    seconds: float  #: since the request
    queued: str  #: the API's word; empty: not found
    node: str

    @property
    def said(self) -> str:
        return f"{self.seconds:.0f} s {self.queued or 'no request'}/{self.node or 'no node'}"


def create(probing: Probing) -> Judged:
    """Ask for the slice, and look until it is ready."""
    answer = probing.create()
    if not answer.ok:
        probing.asked_at = None
        probing.problem = f"it was refused: {answer.said}"
        if answer.read_as in (Cause.BAD_SPEC, ""):
            return judged("accepted", answer.said, as_expected=False)
        raise UntriedError(f"{answer.said} (read as {answer.read_as})")
    probing.problem = "it was never ready"
    steps: list[Step] = []
    for passed in probing.waiting(probing.wait):
        _note(steps, probing, passed)
        seen = probing.cloud.look(probing.slice, timeout=probing.left(ASKING))
        if not isinstance(seen, Present):
            continue
        if seen.state in (SliceState.WAITING, SliceState.CREATING):
            probing.not_ready_yet()
        if seen.state is SliceState.WAITING and passed and probing.usage_waiting is None:
            with contextlib.suppress(UntriedError):
                probing.usage_waiting = figures_of_use(probing)
        if seen.state is SliceState.READY:
            probing.ready(seen.endpoints)
            _note(steps, probing, passed)
            return judge_coming(steps)
        if seen.state.lost:
            probing.problem = f"it is {seen.state}: {seen.detail}"
            raise UntriedError(f"{seen.detail} (read as {seen.cause}); {_all(steps)}")
    probing.problem = "it was not ready in time"
    raise UntriedError(f"no capacity within {probing.wait / 60:.0f} min; {_all(steps)}")


def judge_coming(steps: Sequence[Step]) -> Judged:
    words = [step.queued for step in steps if step.queued]
    known = all(word in ON_THE_WAY for word in words)
    places = [ON_THE_WAY.index(word) for word in words] if known else []
    nodes = {step.node for step in steps} - {"", "CREATING", "READY"}
    return judged(
        f"{' > '.join(ON_THE_WAY)} in this order, and a node CREATING, then READY",
        _all(steps),
        as_expected=known and places == sorted(places) and not nodes,
    )


def name_taken(probing: Probing) -> Judged:
    """Ask for the name that is in use, as somebody else would."""
    probing.insist_on_slice()
    answer = probing.ask_for(probing.slice.name, probing.choice.zone, probing.choice.type)
    seen = "accepted" if answer.ok else answer.said
    return judged("refused: ALREADY_EXISTS", seen, as_expected=answer.code == "ALREADY_EXISTS")


def create_operation(probing: Probing) -> Judged:
    """How the operation of the request ended, which nobody else looks at."""
    probing.insist_on_slice()
    answer = probing.ask("list_operations", {"name": probing.parent})
    if not answer.ok:
        raise UntriedError(answer.said)
    return judge_operation(answer.body, probing.slice.name)


def judge_operation(body: Mapping[str, Any], name: str) -> Judged:
    """Raises UntriedError when none is listed for that name."""
    ours = [
        one
        for one in body.get("operations", ())
        if str(one.get("metadata", {}).get("target", "")).endswith(f"/{name}")
    ]
    if not ours:
        raise UntriedError("no operation is listed for the request")
    errors = [one["error"] for one in ours if "error" in one]
    seen = ", ".join(f"{error.get('code')}: {error.get('message')}" for error in errors)
    return judged(
        "the operation of the request ends without an error",
        seen or f"{len(ours)} listed, none with an error",
        as_expected=not errors,
    )


def marks_echoed(probing: Probing) -> Judged:
    queued, node = _both(probing)
    return judge_echo(_inner(queued), node.body)


def judge_echo(inner: Mapping[str, Any], node: Mapping[str, Any]) -> Judged:
    lacking = [
        f"{place}.{field}"
        for place, holder in (("queued resource's node", inner), ("node", node))
        for field in ("labels", "metadata")
        if not set(MARKS) <= set(holder.get(field, {}))
    ]
    return judged(
        "labels and metadata in the node and in the queued resource's node",
        f"without ours: {', '.join(lacking)}" if lacking else "all four have ours",
        as_expected=not lacking,
    )


def node_fields(probing: Probing) -> Judged:
    _, node = _both(probing)
    return judge_node(node.body, probing.slice.type, probing.slice.name)


def judge_node(node: Mapping[str, Any], type: str, name: str) -> Judged:
    ends = node.get("networkEndpoints", [])
    held = {
        "acceleratorType": node.get("acceleratorType") == type,
        "queuedResource": str(node.get("queuedResource", "")).endswith(f"/{name}"),
        "one networkEndpoint": len(ends) == 1 and bool(ends[0].get("ipAddress")),
        "createTime": "createTime" in node,
        "spot": bool(node.get("schedulingConfig", {}).get("spot"))
        or bool(node.get("schedulingConfig", {}).get("preemptible")),
    }
    lacking = [field for field, holds in held.items() if not holds]
    return judged(
        f"it says {', '.join(held)}",
        f"not as expected: {', '.join(lacking)}" if lacking else "all of them",
        as_expected=not lacking,
    )


def wait_bound(probing: Probing) -> Judged:
    queued, _ = _both(probing)
    policy = queued.body.get("queueingPolicy", {})
    return judged(
        "the bound on its wait is answered as a time",
        f"queueingPolicy has {', '.join(policy) or 'nothing'}",
        as_expected="validUntilTime" in policy,
    )


def delete_unforced(probing: Probing) -> Judged:
    probing.insist_on_slice()
    answer = probing.ask("delete_queued_resource", {"name": probing.queued_name, "force": False})
    if answer.ok:
        probing.ended("it was deleted without force")
    return judged(
        "a request with a node is not deleted without force: FAILED_PRECONDITION",
        answer.said if not answer.ok else "accepted",
        as_expected=answer.code == "FAILED_PRECONDITION",
    )


def delete_forced(probing: Probing) -> Judged:
    """Delete it as the backend does, and look until the lists agree that it is gone."""
    if probing.asked_at is None or probing.ready_at is None:
        raise UntriedError(f"there is no slice: {probing.problem}")
    answer = probing.delete()
    if not answer.ok:
        return judged("accepted", answer.said, as_expected=False)
    steps: list[Step] = []
    for passed in probing.waiting(GOING):
        _note(steps, probing, passed)
        if isinstance(probing.cloud.look(probing.slice, timeout=ASKING), Absent):
            return judge_going(steps, passed)
    return judged(f"gone within {GOING:.0f} s", _all(steps), as_expected=False)


def judge_going(steps: Sequence[Step], gone_after: float) -> Judged:
    """`gone_after`: seconds until neither a look nor a list had it."""
    not_found = next((s.seconds for s in steps if not s.queued and not s.node), gone_after)
    odd = {s.queued for s in steps} - {"", "ACTIVE", "DELETING", "SUSPENDING", "SUSPENDED"}
    odd |= {s.node for s in steps} - {"", "READY", "DELETING", "STOPPING", "STOPPED"}
    return judged(
        "SUSPENDING, SUSPENDED or DELETING, then not found; the lists agree",
        f"{_all(steps)}; not found after {not_found:.0f} s, unlisted after {gone_after:.0f} s",
        as_expected=not odd,
    )


def name_reused(probing: Probing) -> Judged:
    """Ask for the same name as soon as it is free; it is deleted again before there is a slice."""
    if probing.deleted_at is None:
        raise UntriedError("nothing was deleted before")
    answer = probing.create()
    expected = "the name is free as soon as the slice is gone"
    if not answer.ok:
        return judged(expected, answer.said, as_expected=False)
    there = False
    for _ in probing.waiting(GOING / 10):
        there = there or probing.ask("get_queued_resource", {"name": probing.queued_name}).ok
        if there:
            break
    probing.delete()
    seen = "a new request is there" if there else "accepted, and never seen"
    return judged(expected, seen, as_expected=there)


# Looks ---------------------------------------------------------------------------------------------------------------


def _both(probing: Probing) -> tuple[Answer, Answer]:
    """The queued resource and its node. Raises UntriedError unless both are there."""
    probing.insist_on_slice()
    queued = probing.ask("get_queued_resource", {"name": probing.queued_name})
    node = probing.ask("get_node", {"name": probing.node_name})
    for answer in (queued, node):
        if not answer.ok:
            raise UntriedError(answer.said)
    return queued, node


def _inner(queued: Answer) -> Mapping[str, Any]:
    specs = queued.body.get("tpu", {}).get("nodeSpec", [])
    return specs[0].get("node", {}) if specs else {}


def _note(steps: list[Step], probing: Probing, seconds: float) -> None:
    """Look at both, and keep what is new."""
    kept = len(probing.answers)
    queued = probing.ask("get_queued_resource", {"name": probing.queued_name})
    node = probing.ask("get_node", {"name": probing.node_name})
    state = str(queued.body.get("state", {}).get("state", ""))
    step = Step(seconds, state, str(node.body.get("state", "")))
    if steps and (steps[-1].queued, steps[-1].node) == (step.queued, step.node):
        del probing.answers[kept:]  # nothing new: not in the file
    else:
        steps.append(step)
        probing.say(f"  {step.said}")


def _all(steps: Sequence[Step]) -> str:
    return ", ".join(step.said for step in steps) or "nothing was seen"
