"""Cloud TPU's words in ours: every state, health and error of the API has a row, and the rows are right."""

from collections.abc import Mapping
from typing import Any

import grpc
import pytest
from google.cloud import tpu_v2, tpu_v2alpha1

from tpujob.adapters.cloud_tpu.errors import CALL_CODES, Scope, meaning_of_call, meaning_of_state
from tpujob.adapters.cloud_tpu.messages import node_seen, queued_seen
from tpujob.adapters.cloud_tpu.slice_state import (
    INITIATORS,
    NODE_HEALTH,
    NODE_STATES,
    QUEUED_STATES,
    NodeSeen,
    QueuedSeen,
    slice_state,
)
from tpujob.domain.model import Cause, Endpoint
from tpujob.domain.observations import Absent, Present, SliceState, Unknown

HERE = (Endpoint(0, "10.0.0.1"),)

# States --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", [tpu_v2, tpu_v2alpha1], ids=["v2", "v2alpha1"])
@pytest.mark.parametrize(
    ("table", "enum"),
    [
        (NODE_STATES, "Node.State"),
        (NODE_HEALTH, "Node.Health"),
        (QUEUED_STATES, "QueuedResourceState.State"),
        (INITIATORS, "QueuedResourceState.StateInitiator"),
    ],
    ids=["node", "health", "queued", "initiator"],
)
def test_each_state_of_the_library_has_a_row(api: Any, table: Mapping[str, Any], enum: str) -> None:
    """Fail when the library has a new state: add its meaning to the table."""
    message, _, name = enum.partition(".")
    assert set(table) == set(getattr(getattr(api, message), name).__members__)


def test_every_status_of_a_call_has_a_row_in_the_table() -> None:
    assert set(CALL_CODES) == {code.name for code in grpc.StatusCode}


@pytest.mark.parametrize(
    ("queued_", "node_", "state"),
    [
        (QueuedSeen("ACCEPTED"), None, SliceState.WAITING),
        (QueuedSeen("PROVISIONING"), NodeSeen("READY", HERE), SliceState.CREATING),
        (QueuedSeen("ACTIVE"), NodeSeen("READY", HERE), SliceState.READY),
        (QueuedSeen("ACTIVE"), NodeSeen("READY"), SliceState.CREATING),
        (QueuedSeen("ACTIVE"), NodeSeen("REPAIRING", HERE), SliceState.REPAIRING),
        (QueuedSeen("ACTIVE"), NodeSeen("PREEMPTED"), SliceState.PREEMPTED),
        (QueuedSeen("SUSPENDING", "SERVICE"), NodeSeen("PREEMPTED"), SliceState.PREEMPTED),
        (QueuedSeen("SUSPENDED", "SERVICE"), None, SliceState.PREEMPTED),
        (QueuedSeen("SUSPENDED", "USER"), None, SliceState.STOPPED),
        (QueuedSeen("SUSPENDED", "USER"), NodeSeen("PREEMPTED"), SliceState.PREEMPTED),
        (QueuedSeen("SUSPENDED", "3"), None, None),
        (QueuedSeen("FAILED", error_code=8), None, SliceState.FAILED),
        (QueuedSeen("DELETING"), NodeSeen("PREEMPTED"), SliceState.DELETING),
        (QueuedSeen("ACTIVE"), None, None),
        (QueuedSeen("17"), NodeSeen("READY", HERE), None),
        (QueuedSeen("ACTIVE"), NodeSeen("99"), None),
        (None, NodeSeen("READY", HERE, "TIMEOUT"), SliceState.READY),
        (None, NodeSeen("READY", HERE, "17"), None),
        (None, NodeSeen("PREEMPTED", HERE, "17"), SliceState.PREEMPTED),
    ],
)
def test_a_request_and_its_node_are_judged_together(
    queued_: QueuedSeen | None, node_: NodeSeen | None, state: SliceState | None
) -> None:
    seen = slice_state(queued_, [node_])
    if state is None:
        assert isinstance(seen, Unknown)
    else:
        assert isinstance(seen, Present)
        assert seen.state is state


@pytest.mark.parametrize("initiator", ["SERVICE", "USER", "STATE_INITIATOR_UNSPECIFIED"])
@pytest.mark.parametrize("node", [None, NodeSeen("PREEMPTED"), NodeSeen("DELETING")])
def test_suspending_is_lost_and_not_yet_suspended(initiator: str, node: NodeSeen | None) -> None:
    for word, suspending in (("SUSPENDING", True), ("SUSPENDED", False)):
        seen = slice_state(QueuedSeen(word, initiator), [node])
        assert isinstance(seen, Present)
        assert (seen.state.lost, seen.suspending) == (True, suspending)


def judged(state: SliceState | None) -> tuple[set[str], set[str]]:
    """The words for a queued resource, and those for a node, that mean this; None: nothing is known."""
    requests = {
        word: slice_state(QueuedSeen(word), [NodeSeen("READY", HERE)]) for word in QUEUED_STATES
    }
    nodes = {word: slice_state(None, [NodeSeen(word, HERE)]) for word in NODE_STATES}
    return (
        {word for word, seen in requests.items() if getattr(seen, "state", None) is state},
        {word for word, seen in nodes.items() if getattr(seen, "state", None) is state},
    )


def test_each_word_of_the_cloud_means_what_the_rules_need() -> None:
    """Programs start only on what is ready. Another slice is asked for only when the cloud calls one lost: repairs and
    restarts are waited out."""
    suspended, preempted = {"SUSPENDING", "SUSPENDED"}, {"PREEMPTED", "TERMINATED"}
    assert judged(SliceState.READY) == ({"ACTIVE"}, {"READY"})
    assert judged(SliceState.PREEMPTED) == (suspended, preempted)
    assert judged(SliceState.STOPPED) == (set(), {"STOPPING", "STOPPED"})
    assert judged(SliceState.FAILED) == ({"FAILED"}, set())
    assert judged(None) == ({"STATE_UNSPECIFIED"}, {"STATE_UNSPECIFIED", "UNKNOWN"})
    for word in QUEUED_STATES:
        assert slice_state(QueuedSeen(word), [None]) != Absent(), word


def test_bad_health_changes_only_the_message() -> None:
    raw = tpu_v2.Node.pb()(state="READY", health="UNHEALTHY_MAINTENANCE", health_description="soon")
    raw.network_endpoints.add(ip_address="10.0.0.1")
    raw.symptoms.add(symptom_type="LOW_MEMORY", create_time={"seconds": 5}, worker_id="w0")
    raw.symptoms.add(symptom_type="MESH_BUILD_FAIL", create_time={"seconds": 9}, worker_id="w1")
    seen = slice_state(None, [node_seen(tpu_v2.Node.wrap(raw))])
    assert seen == Present(
        SliceState.READY,
        HERE,
        "UNHEALTHY_MAINTENANCE: maintenance is under way: soon, MESH_BUILD_FAIL on w1",
    )


def test_a_state_newer_than_the_library_is_unknown() -> None:
    """Through the messages themselves: an enum field keeps numbers that it has no name for."""
    node, queued = tpu_v2.Node.pb(), tpu_v2.QueuedResource.pb()
    future = node_seen(tpu_v2.Node.wrap(node(state=99)))
    assert slice_state(None, [future]) == Unknown("the node is in state 99")
    unwell = node(state="READY", health=99)
    unwell.network_endpoints.add(ip_address="10.0.0.1")
    state = slice_state(None, [node_seen(tpu_v2.Node.wrap(unwell))])
    assert state == Unknown("the node is READY, and its health is 99")
    waiting = queued_seen(tpu_v2.QueuedResource.wrap(queued(state={"state": 99})))
    assert slice_state(waiting, [None]) == Unknown("the queued resource is in state 99")


def test_a_failed_request_says_why_and_what_to_do() -> None:
    raw = tpu_v2.QueuedResource.pb()(state={"state": "FAILED"})
    raw.state.failed_data.error.code = 8
    metric = "TPUV4sPreemptiblePodPerProjectPerRegionForTPUAPI"
    raw.state.failed_data.error.message = f"Quota '{metric}' exhausted. Limit: 0"
    seen = slice_state(queued_seen(tpu_v2.QueuedResource.wrap(raw)), [None])
    assert isinstance(seen, Present)
    assert (seen.state, seen.cause, seen.scope) == (SliceState.FAILED, Cause.QUOTA, "region")
    assert "no access to this type here" in seen.detail


# Errors --------------------------------------------------------------------------------------------------------------

STOCKOUT, QUOTA, PERMISSION = Cause.STOCKOUT, Cause.QUOTA, Cause.PERMISSION
NONE = "no access to this type here"
ACT_AS = "needs roles/iam.serviceAccountUser"
POLICY = "Constraint constraints/{} violated for project 471147114711."
METRIC = "TPUV2sPreemptiblePodPerProjectPer{}ForTPUAPI"


#: text, cause, scope, a part of the hint
ERRORS: tuple[tuple[str, Cause | None, Scope, str], ...] = (
    ('There is no more capacity in the zone "us-central2-b"; you can try in', STOCKOUT, "zone", ""),
    ("ZONE_RESOURCE_POOL_EXHAUSTED", STOCKOUT, "zone", ""),
    ("insufficientCapacity", STOCKOUT, "", ""),
    ("Insufficient reserved capacity. Contact customer support to", STOCKOUT, "", "reservation"),
    ("cannot be created due to lack of capacity", STOCKOUT, "", ""),
    ("Requested resource is exhausted", STOCKOUT, "", ""),
    (
        "The zone 'projects/p/zones/a-b1-d' does not have enough resources available to fulfill the request.",
        STOCKOUT,
        "zone",
        "",
    ),
    ("update is not supported while in state PREEMPTED", Cause.PREEMPTED, "", ""),
    ("type.googleapis.com/google.rpc.QuotaFailure", QUOTA, "", ""),
    (f"Quota '{METRIC.format('Region')}' exhausted. Limit 32 in region a-b4", QUOTA, "region", ""),
    (f"Quota '{METRIC.format('Zone')}' exhausted. Limit 32 in zone a-b4-c", QUOTA, "zone", ""),
    (f"Quota limit '{METRIC.format('Region')}' has been exceeded. Limit: 0", QUOTA, "region", NONE),
    (f"Quota '{METRIC.format('Zone')}' exhausted. Limit 0 in zone us-east1-d", QUOTA, "zone", NONE),
    ("Quota 'CPUS' exceeded. Limit: 0.0 in region a-b1", QUOTA, "region", NONE),
    ("QUOTA_EXCEEDED", QUOTA, "", ""),
    ("quotaExceeded", QUOTA, "", ""),
    ("Quota 'IN_USE_ADDRESSES' exceeded. Limit: 8.0 in region a-b1", QUOTA, "region", "external"),
    ("... reservation for request queue ...", QUOTA, "", "queued resources"),  # all that is public
    ("SUBNET_NOT_FOUND_FOR_VPC", QUOTA, "", "no quota of this type"),
    (
        "IP space of 'projects/p/regions/a-b1/subnetworks/default' is exhausted. Insufficient free IP addresses",
        QUOTA,
        "region",
        "expand-ip-range",
    ),
    # Rate: the code of a quota, and it passes by itself
    ("Maximum number of CreateNode requests per minute", None, "", ""),
    ("Too many requests", None, "", ""),
    ("Quota exceeded for 'Requests' per minute", None, "", ""),
    ("Quota exceeded for metric 'Read requests' per day", None, "", ""),
    ("RATE_LIMIT_EXCEEDED", None, "", ""),
    ("rateLimitExceeded", None, "", ""),
    ("RESOURCE_OPERATION_RATE_EXCEEDED", None, "", ""),
    # The organization forbids it
    (POLICY.format("compute.vmExternalIpAccess"), PERMISSION, "", "`ssh: internal`"),
    (POLICY.format("compute.managed.vmExternalIpAccess"), PERMISSION, "", "`ssh: internal`"),
    (POLICY.format("compute.requireShieldedVm"), PERMISSION, "", "`secure_boot: true`"),
    (POLICY.format("compute.requireOsLogin"), PERMISSION, "", "exception"),
    (POLICY.format("compute.restrictSharedVpcSubnetworks"), PERMISSION, "", "`subnetwork`"),
    (POLICY.format("compute.trustedImageProjects"), PERMISSION, "", "exception"),
    (
        "Location ZONE:a-b1-d violates constraint constraints/gcp.resourceLocations on the resource p",
        PERMISSION,
        "zone",
        "name zones",
    ),
    (
        "'a-b1' violates constraint 'constraints/gcp.resourceLocations' on the resource p",
        PERMISSION,
        "",
        "name zones",
    ),
    (
        'Operation denied by custom org policies: ["customConstraints/custom.noTpu": "no TPUs"]',
        PERMISSION,
        "",
        "exception",
    ),
    (
        "Cloud TPU got permissions denied when trying to access customer project.",
        PERMISSION,
        "",
        "roles/cloudtpu.serviceAgent",
    ),
    # No access
    ("Location a-b1-d is not found or access is unauthorized.", PERMISSION, "zone", "tpu.zones"),
    (
        "Permission denied on 'locations/a-b1-d' (or it may not exist).",
        PERMISSION,
        "zone",
        "tpu.zones",
    ),
    ("IAM_PERMISSION_DENIED", PERMISSION, "", "roles/tpu.admin"),
    ("Permission 'tpu.nodes.create' denied on 'p'", PERMISSION, "", "roles/"),
    (
        "Permission 'iam.serviceAccounts.actAs' denied on service account v@p",
        PERMISSION,
        "",
        ACT_AS,
    ),
    ("The user does not have access to service account 'v@p'.", PERMISSION, "", ACT_AS),
    ("Policy update access denied.", PERMISSION, "", ""),
    ("Cloud TPU API has not been used in project 12 before", PERMISSION, "", "services enable"),
    ("Permission denied on resource project nope.", PERMISSION, "", "id"),
    ("BILLING_DISABLED", PERMISSION, "", "billing account"),
    ("This API method requires billing to be enabled.", PERMISSION, "", "billing account"),
    ("Getting metadata from plugin failed: Reauthentication is needed.", None, "", "gcloud auth"),
    # The rest
    ('CloudTpu received an invalid AcceleratorType, "v9-8"', Cause.BAD_SPEC, "", "type"),
    (
        'The requested accelerator configuration for accelerator type, "v6e-1", could not be found in the zonal '
        'accelerator configurations for "a-b1-d".; the accelerator v6e-1 was not found in zone a-b1-d',
        Cause.BAD_SPEC,
        "zone",
        "does not offer that type",
    ),
    (
        'The requested zone "a-b1-d" is not supported. [EID: 0x1]',
        Cause.BAD_SPEC,
        "zone",
        "tpu.zones",
    ),
    ("RESOURCE_NOT_READY", None, "", ""),
    ("UNSUPPORTED_OPERATION", None, "", ""),
)


_ZONE = "Quota limit 'TPUV4sPreemptiblePodPerProjectPerZoneForTPUAPI' has been exceeded."
_REGION = "Quota 'TPUV5PPerProjectPerRegionForTPUAPI' exhausted."


@pytest.mark.parametrize(
    ("text", "scope", "limit"),
    [
        (f"{_ZONE} Limit: 48 in zone us-central2-b.", "zone", 48),
        (f"{_ZONE} Limit: 1,024.0 in zone us-central2-b.", "zone", 1024),
        (f"{_ZONE}", "zone", None),
        (f"{_REGION} Limit 8 in region us-central1", "region", 8),
        (f"{_REGION} Limit 8 in region us-central1 {_ZONE} Limit 4 in zone a-b1-c", "zone", 4),
        (f"{_REGION} Limit 0 in region us-central1", "region", 0),
        ("Quota 'IN_USE_ADDRESSES' exceeded. Limit: 8.0 in region us-east5", "region", None),
        ("There is no more capacity in the zone. Limit 8", "", None),
    ],
)
def test_the_limit_of_a_quota_of_tpus_is_read_with_its_place(
    text: str, scope: Scope, limit: int | None
) -> None:
    for meaning in (meaning_of_call("RESOURCE_EXHAUSTED", text), meaning_of_state(8, text)):
        assert (meaning.limit, limit is None or meaning.scope) == (limit, limit is None or scope)


@pytest.mark.parametrize(("text", "cause", "scope", "hint"), ERRORS)
def test_error_texts_are_classified_whatever_their_code(
    text: str, cause: Cause | None, scope: Scope, hint: str
) -> None:
    for code in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "FAILED_PRECONDITION"):
        meaning = meaning_of_call(code, text)
        assert (meaning.cause, meaning.scope) == (cause, scope)
        assert hint in meaning.hint
    for code in (0, 3, 8, 9, 13, 14):
        assert meaning_of_state(code, text) == meaning


def test_only_refusals_for_the_rate_of_requests_ask_for_a_pause() -> None:
    rates = {text for text, *_ in ERRORS if meaning_of_call("RESOURCE_EXHAUSTED", text).rate}
    assert len(rates) == 7
    assert all(meaning_of_call("RESOURCE_EXHAUSTED", text).cause is None for text in rates)


def test_without_such_a_text_the_code_decides() -> None:
    assert {c: meaning_of_call(c, "something else").cause for c in CALL_CODES} == CALL_CODES
    assert "gcloud auth" in meaning_of_call("UNAUTHENTICATED", "something else").hint


@pytest.mark.parametrize("limit", ["Limit 10 in zone", "Limit: 100.", "Limit 0.5", "limit 08"])
def test_a_limit_above_zero_is_not_missing_access(limit: str) -> None:
    assert NONE not in meaning_of_call("RESOURCE_EXHAUSTED", limit).hint


def test_inside_a_failed_request_the_bare_code_8_is_a_stockout() -> None:
    assert meaning_of_state(8, "something else").cause is STOCKOUT
    assert meaning_of_state(8, "Quota 'X' exhausted. Limit 8").cause is QUOTA
    assert meaning_of_state(3, "There is no reservation for request queue x").cause is QUOTA
    assert meaning_of_state(13, "something else").cause is None
