"""Probes of the one host: what it publishes, how it is met, what it has, what it can reach."""

from collections.abc import Mapping, Sequence
from typing import Any

from tpujob.doctor.probe.cloud import Answer, Contact
from tpujob.doctor.probe.probing import Probing
from tpujob.doctor.probe.spend import PROBE_JOB
from tpujob.doctor.probe.verdicts import Judged, UntriedError, judged
from tpujob.domain.actions import HostPlan
from tpujob.domain.host.plan import plans
from tpujob.domain.model import Attempt, Job, State, Wish
from tpujob.domain.spec import parse
from tpujob.errors import HostKeyChanged, Refused, TpujobError, Transient
from tpujob.protocol.paths import HOST_FOLDER

#: the oldest Python that the agent runs on
AGENT_PYTHON = (3, 8)
#: seconds that the first login may take, after the slice is ready; seconds for its set-up and its check
FIRST_LOGIN, ATTEMPT = 300.0, 420.0
POLLS = 5


def guest_attributes(probing: Probing) -> Judged:
    probing.insist_on_slice()
    return judge_guests(probing.ask("get_guest_attributes", {"name": probing.node_name}))


def judge_guests(answer: Answer) -> Judged:
    expected = "its SSH host keys and the name of its machine are published"
    if not answer.ok:
        return judged(expected, answer.said, as_expected=False)
    hosts = answer.body.get("guestAttributes", [])
    keys = {
        str(item.get("key"))
        for host in hosts
        for item in host.get("queryValue", {}).get("items", ())
    }
    there = any(key.startswith(("ssh-", "ecdsa-")) for key in keys)
    seen = f"of {len(hosts)} hosts: {', '.join(sorted(keys)) or 'nothing'}"
    return judged(expected, seen, as_expected=there and "hostname" in keys)


def ssh(probing: Probing) -> Judged:
    """Log in, again and again until the guest agent has made the user."""
    probing.insist_on_host()
    said = ""
    for passed in probing.waiting(FIRST_LOGIN):
        try:
            met = probing.cloud.meet(probing.slice, timeout=probing.left(30))
        except Transient as error:
            said = error.message
            continue
        except (HostKeyChanged, Refused) as error:
            return judged("logged in", error.message, as_expected=False)
        probing.answers.append({"key_type": met.key_type, "published": met.published})
        return judge_contact(met, passed)
    raise UntriedError(f"no login within {FIRST_LOGIN / 60:.0f} min: {said}")


def judge_contact(met: Contact, seconds: float) -> Judged:
    which = "a published key" if met.published else "a key that was not published"
    return judged(
        "the host shows a host key that the cloud has published",
        f"logged in {seconds:.0f} s after READY; {which}, {met.key_type}",
        as_expected=met.published,
    )


def image(probing: Probing) -> Judged:
    return judge_image(probing.on_host("image"))


def judge_image(found: Mapping[str, Any]) -> Judged:
    python = tuple(int(part) for part in str(found["python"]).split(".")[:2])
    has = [name for name, there in {**found["modules"], **found["programs"]}.items() if there]
    held = ", ".join(f"{who} holds {path}" for path, who in found["locks"].items())
    locks = held or "no package lock is held"
    return judged(
        f"python3 of {AGENT_PYTHON[0]}.{AGENT_PYTHON[1]} or later",
        f"Python {found['python']}, {'sudo' if found['sudo'] else 'no sudo'}; {', '.join(has)}; groups "
        f"{' '.join(found['groups'])}; {locks}, {found['uptime_s']} s after boot",
        as_expected=python >= AGENT_PYTHON,
    )


def metadata(probing: Probing) -> Judged:
    return judge_metadata(probing.on_host("metadata")["keys"])


#: what each key must be answered with: a status, and one of these contents (empty: any)
WANTED: Mapping[str, tuple[int, Sequence[str]]] = {
    "instance/preempted": (200, ("FALSE", "TRUE")),
    "instance/maintenance-event": (200, ("NONE",)),
    "instance/attributes/agent-worker-number": (200, ("0",)),
    "instance/attributes/worker-network-endpoints": (200, ()),
    "instance/attributes/accelerator-type": (200, ()),
    "instance/attributes/tpujob": (200, ("1",)),
    "instance/no-such-key": (404, ()),
    "instance/attributes/no-such-key": (404, ()),
}


def judge_metadata(keys: Mapping[str, Mapping[str, Any]]) -> Judged:
    odd = [
        f"{key} is {keys.get(key, {}).get('status')} {str(keys.get(key, {}).get('said', ''))[:40]}"
        for key, (status, contents) in WANTED.items()
        if keys.get(key, {}).get("status") != status
        or (contents and keys[key]["said"] not in contents)
    ]
    more = [
        f"{key.rpartition('/')[2]} is {one['status']}"
        for key, one in keys.items()
        if key not in WANTED
    ]
    return judged(
        "preempted, maintenance-event and the place of the worker are told; 404 for unknown keys",
        "; ".join((*odd, *more)),
        as_expected=not odd,
    )


def preflight(probing: Probing) -> Judged:
    """Run `true` as a job of one host would, with the check before it."""
    probing.insist_on_host()
    if not probing.workdir:
        raise UntriedError("the context has no bucket in the region of the slice")
    try:
        probing.cloud.make_bucket(probing.workdir, probing.choice.zone, timeout=probing.left(30))
        plan = _plan(probing)
        probing.cloud.start(probing.slice, plan, timeout=probing.left(120))
    except TpujobError as error:
        return judged("the agent starts", error.message, as_expected=False)
    found: Mapping[str, Any] = {}
    for passed in probing.waiting(ATTEMPT):
        found = probing.on_host("attempt", job=PROBE_JOB, folder=HOST_FOLDER)
        if found["state"].get("phase") == "exited":
            order = plan.document.get("preflight")
            return judge_attempt(found, passed, order["seconds"] if order else 0.0)
        probing.answers.pop()
    return judged("it ends", f"after {ATTEMPT:.0f} s: {found.get('state')}", as_expected=False)


def judge_attempt(found: Mapping[str, Any], seconds: float, allowed: float) -> Judged:
    state: Mapping[str, Any] = found["state"]
    checks: Mapping[str, str] = found["preflight"].get("checks") or {}
    said = "; ".join(f"{name}: {text}" for name, text in checks.items()) or "no check was made"
    ended = state.get("exit_code") == 0
    trouble = "" if ended else f"{state.get('cause')}: {state.get('error')}; "
    return judged(
        f"the check passes within {allowed:.0f} s, and the program ends with 0",
        f"{trouble}{seconds:.0f} s in all; {said}",
        as_expected=ended and seconds <= allowed,
    )


def storage(probing: Probing) -> Judged:
    if not probing.workdir:
        raise UntriedError("the context has no bucket in the region of the slice")
    return judge_storage(probing.on_host("storage", workdir=probing.workdir))


def judge_storage(found: Mapping[str, Any]) -> Judged:
    steps: Mapping[str, Mapping[str, Any]] = found["steps"]
    said = {name: str(one["said"]) for name, one in steps.items()}
    if found["emulated"]:
        del said["renewed"]
    failed = [f"{name}: {text}" for name, text in said.items() if text != "ok"]
    tried = f"{', '.join(said)} work{'; an emulator takes no token' if found['emulated'] else ''}"
    return judged(
        "multipart and resumable uploads, and a new token after a refused one",
        "; ".join(failed) or tried,
        as_expected=not failed,
    )


def notices(probing: Probing) -> Judged:
    return judge_notices(probing.on_host("notices", polls=POLLS, pause=min(1.0, probing.poll)))


def judge_notices(found: Mapping[str, Any]) -> Judged:
    silent = sum(said is None for said in found["said"])
    heard = [said for said in found["said"] if said]
    slowest = max(found["seconds"], default=0.0)
    what = ", ".join(map(str, heard)) or "no notice"
    return judged(
        "the metadata server answers every second, and gives no notice",
        f"{len(found['said']) - silent} of {len(found['said'])} polls answered, {what}, the slowest {slowest:.2f} s",
        as_expected=not silent and not heard and slowest < 1,
    )


def _plan(probing: Probing) -> HostPlan:
    """Of a job whose program is `true`."""
    now, choice = probing.clock.now(), probing.choice
    said = {"name": PROBE_JOB, "tpu": {"type": choice.type}, "run": {"command": "true"}}
    job = Job(
        id=PROBE_JOB,
        name=PROBE_JOB,
        user=PROBE_JOB,
        spec=parse(said),
        state=State.PREPARING,
        wish=Wish.RUN,
        created_at=now,
        state_since=now,
        bucket=probing.workdir,
        slices=(probing.slice,),
        attempts=(Attempt(1, probing.slice.name, now),),
    )
    return plans(job)[0]
