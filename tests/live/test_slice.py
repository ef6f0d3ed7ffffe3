"""The life of one slice, and of its host, in the order in which it happens. It costs money in a real project."""

import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.api_core.exceptions import AlreadyExists, FailedPrecondition, NotFound

from tests.live.project import CALL, JOB, Project
from tests.support import google_server as g
from tpujob.doctor.quota import unit_of
from tpujob.domain.hardware import accelerators
from tpujob.domain.host.plan import plans
from tpujob.domain.model import Attempt, DesiredState, Job, State
from tpujob.domain.observations import Absent, Present, SliceState
from tpujob.domain.spec import parse
from tpujob.errors import Transient
from tpujob.protocol import JOB_LABEL, LABEL, OWNER_LABEL
from tpujob.protocol.paths import HOST_FOLDER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

#: what a request may go through on its way to ACTIVE, in this order; each may be too short to be seen
ON_THE_WAY = ["CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"]
#: seconds for a deletion, for the first login after READY, and for the set-up and the check of a host
GOING, FIRST_LOGIN, ATTEMPT = 300.0, 300.0, 420.0


@pytest.fixture(scope="module")
def held(project: Project) -> Project:
    """Return the project while it holds the slice. Skip where there is no capacity for it."""
    project.used_before = usage(project)
    project.meter.start()
    project.ask(project.slice)
    seen: list[tuple[str, str]] = []

    def ready() -> Present | None:
        states = project.states(project.slice.name)
        seen.extend([states] * (states not in seen[-1:]))
        now = project.slices.look(project.slice, timeout=CALL)
        if isinstance(now, Present) and now.state.lost:
            pytest.skip(f"no slice: {now.detail} (read as {now.cause})")
        return now if isinstance(now, Present) and now.state is SliceState.READY else None

    present = project.until(ready, f"{project.slice.name} READY", project.wait)
    project.slice = replace(project.slice, endpoints=present.endpoints)
    project.seen = seen
    return project


@pytest.fixture(autouse=True)
def _within_the_cap(project: Project) -> None:
    project.meter.check()


def test_create(held: Project) -> None:
    """The states of a request and of its node, and their order."""
    words = [queued for queued, _ in held.seen if queued]
    assert [ON_THE_WAY.index(word) for word in words] == sorted(
        ON_THE_WAY.index(word) for word in words
    )
    assert {node for _, node in held.seen} <= {"", "CREATING", "READY"}


def test_name_taken(held: Project) -> None:
    """A second request of the same name is refused at once."""
    node = {"accelerator_type": held.slice.type, "runtime_version": held.slice.system_image}
    spec = {"parent": held.parent, "node_id": held.slice.name, "node": node}
    request = {"parent": held.parent, "queued_resource_id": held.slice.name}
    with pytest.raises(AlreadyExists):
        held.client.create_queued_resource(
            request | {"queued_resource": {"spot": {}, "tpu": {"node_spec": [spec]}}}
        )


def test_create_operation(held: Project) -> None:
    """The operation of a request that took effect ends without an error."""
    listed = held.client.list_operations({"name": held.parent}).operations
    ours = [o for o in listed if held.slice.name.encode() in o.metadata.value]
    assert [o.error for o in ours if o.HasField("error")] == []


def test_marks_echoed(held: Project) -> None:
    """Answers repeat labels and metadata of the node and of the queued resource's node."""
    queued = held.client.get_queued_resource(
        name=f"{held.parent}/queuedResources/{held.slice.name}"
    )
    node = held.client.get_node(name=f"{held.parent}/nodes/{held.slice.name}")
    for echo in (queued.tpu.node_spec[0].node, node):
        assert {LABEL, JOB_LABEL, OWNER_LABEL} <= set(echo.labels)
        assert {LABEL, JOB_LABEL, OWNER_LABEL} <= set(echo.metadata)


def test_node_fields(held: Project) -> None:
    """A node says which queued resource it is of, and its pricing."""
    node = held.client.get_node(name=f"{held.parent}/nodes/{held.slice.name}")
    assert node.accelerator_type == held.slice.type
    assert node.queued_resource.endswith(f"/{held.slice.name}")
    assert [bool(end.ip_address) for end in node.network_endpoints] == [True]
    assert node.scheduling_config.spot or node.scheduling_config.preemptible
    assert node.create_time.timestamp() > time.time() - 7200


def test_wait_bound(held: Project) -> None:
    """A bound on the wait is sent as a duration and answered as a time."""
    queued = held.client.get_queued_resource(
        name=f"{held.parent}/queuedResources/{held.slice.name}"
    )
    assert queued.queueing_policy.valid_until_time is not None


def test_usage_held(held: Project) -> None:
    """A quota counts cores or chips. Google's figures may be hours late: then there is nothing to compare yet."""
    before = held.used_before
    grown = {
        name: n - before.get(name, 0) for name, n in usage(held).items() if n > before.get(name, 0)
    }
    if not grown:
        pytest.skip("the figures of use have not changed yet")
    tpu = accelerators.find(held.slice.type)
    expected = tpu.cores if unit_of(tpu.generation) == "cores" else tpu.chips
    assert expected in grown.values(), f"a quota of {tpu.generation} grows by {expected}: {grown}"


def test_guest_attributes(held: Project) -> None:
    """TPU images publish their host keys and the name of their machine."""
    (guest,) = held.slices.guest_attributes.look(held.slice, CALL)
    assert guest.name
    assert guest.host_keys


def test_ssh(held: Project) -> None:
    """The first login, with a client that knows only the published host keys."""

    def logged_in() -> str:
        try:
            return held.run("echo in")
        except (OSError, EOFError, Transient):
            return ""

    assert held.until(logged_in, "a login", FIRST_LOGIN) == "in"


def test_image(held: Project) -> None:
    """The image has the Python that the agent needs."""
    version = held.run("python3 -c 'import sys; print(*sys.version_info[:2])'")
    assert tuple(map(int, version.split())) >= (3, 8)


@pytest.mark.parametrize(
    ("key", "status", "contents"),
    [
        ("instance/preempted", 200, {"FALSE", "TRUE"}),
        ("instance/maintenance-event", 200, {"NONE"}),
        ("instance/attributes/agent-worker-number", 200, {"0"}),
        ("instance/attributes/worker-network-endpoints", 200, None),
        ("instance/attributes/accelerator-type", 200, None),
        ("instance/attributes/tpujob", 200, {"1"}),
        ("instance/no-such-key", 404, None),
        ("instance/attributes/no-such-key", 404, None),
    ],
)
def test_metadata(held: Project, key: str, status: int, contents: set[str] | None) -> None:
    """The metadata server of a TPU VM answers within a second."""
    base = "http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1"
    answer = held.run(
        f"curl -s -m 1 -w '\\n%{{http_code}}' -H 'Metadata-Flavor: Google' {base}/{key}"
    )
    body, _, code = answer.rpartition("\n")
    assert int(code) == status, answer
    assert contents is None or body in contents


def test_preflight(held: Project) -> None:
    """The agent runs a program that ends with 0, after its check of the host and with its reports in the bucket."""
    if not held.workdir:
        pytest.skip("no bucket: TPUJOB_LIVE_BUCKET")
    held.blobs.ensure_bucket(held.workdir, accelerators.region_of(held.zone), timeout=CALL)
    plan = plans(job(held))[0]
    held.hosts.start(held.slice, [plan], timeout=120)
    file = f"~/{HOST_FOLDER}/attempts/{JOB}-1/state.json"

    def ended() -> dict[str, object]:
        state = json.loads(held.run(f"cat {file}") or "{}")
        return state if state.get("phase") == "exited" else {}

    state = held.until(ended, "the program has ended", ATTEMPT)
    assert state["exit_code"] == 0, state
    prefix = held.workdir.rpartition("/jobs/")[0] or f"{held.workdir}/"
    assert held.blobs.list(prefix, timeout=CALL), "the agent has written to the bucket"


def test_delete_unforced(held: Project) -> None:
    """A request that has a node needs force."""
    with pytest.raises(FailedPrecondition):
        held.client.delete_queued_resource(
            {"name": f"{held.parent}/queuedResources/{held.slice.name}", "force": False}
        )


def test_delete_forced(held: Project) -> None:
    """The states on the way out; at the end neither a look nor a list has it."""
    held.slices.delete(held.slice, timeout=CALL)
    seen: set[tuple[str, str]] = set()

    def gone() -> bool:
        seen.add(held.states(held.slice.name))
        return isinstance(held.slices.look(held.slice, timeout=CALL), Absent)

    held.until(gone, "gone", GOING)
    assert {queued for queued, _ in seen} <= {"", "ACTIVE", "DELETING", "SUSPENDING", "SUSPENDED"}
    assert {node for _, node in seen} <= {"", "READY", "DELETING", "STOPPING", "STOPPED"}


def test_name_reused(held: Project) -> None:
    """A name is free once its slice is gone."""
    held.ask(held.slice)
    held.until(lambda: held.states(held.slice.name)[0], "the new request is there", GOING / 10)
    held.slices.delete(held.slice, timeout=CALL)


def test_lost_node(held: Project) -> None:
    """One lost node suspends a request for several, and the rest ends by force. Asked of a real project only with
    TPUJOB_LIVE_PAIR=1, as a request that hangs can be removed by Google alone."""
    if held.emulated is None and not os.environ.get("TPUJOB_LIVE_PAIR"):
        pytest.skip("two slices, and some risk: TPUJOB_LIVE_PAIR=1")
    pair = replace(held.slice, name=f"{held.slice.name}-2", tpu_slices=2, endpoints=())
    held.ask(pair)

    def ready() -> bool:
        now = held.slices.look(pair, timeout=CALL)
        if isinstance(now, Present) and now.state.lost:
            pytest.skip(f"no pair: {now.detail}")
        return isinstance(now, Present) and now.state is SliceState.READY

    held.until(ready, "two slices READY", held.wait)
    held.client.delete_node(name=f"{held.parent}/nodes/{pair.name}-0")
    name = f"{held.parent}/queuedResources/{pair.name}"
    held.until(lambda: held.states(pair.name)[0].startswith("SUSPEND"), "SUSPENDING", GOING)
    held.client.delete_queued_resource({"name": name, "force": True})

    def gone() -> bool:
        try:
            held.client.get_queued_resource(name=name)
        except NotFound:
            return True
        return False

    held.until(gone, "gone by force", GOING)


def job(held: Project) -> Job:
    """Return a job whose program is `true`."""
    spec = parse({"name": JOB, "tpu": {"type": held.slice.type}, "run": {"command": "true"}})
    now = time.time()
    return Job(
        id=JOB, name=JOB, user=JOB, spec=spec, state=State.PREPARING, desired=DesiredState.RUN, created_at=now,
        state_since=now, bucket=held.workdir, slices=(held.slice,),
        attempts=(Attempt(1, held.slice.name, now),),
    )  # fmt: skip


def usage(project: Project) -> dict[str, int]:
    """Return the newest figure of each quota's use, by its name and place. Google has one a day."""
    now = datetime.now(UTC)
    answer: Any = project.google.get(
        g.MONITORING,
        f"v3/projects/{project.id}/timeSeries",
        filter='metric.type="serviceruntime.googleapis.com/quota/allocation/usage" AND '
        'resource.type="consumer_quota" AND resource.labels.service="tpu.googleapis.com"',
        **{
            "interval.startTime": (now - timedelta(hours=25)).isoformat(timespec="seconds"),
            "interval.endTime": now.isoformat(timespec="seconds"),
        },
    )
    figures: dict[str, int] = {}
    for series in answer.get("timeSeries", ()):
        labels = series.get("resource", {}).get("labels", {}) | series["metric"].get("labels", {})
        place = f"{labels['quota_metric']} in {labels.get('location', '')}"
        figures[place] = int(series["points"][0]["value"]["int64Value"])
    return figures
