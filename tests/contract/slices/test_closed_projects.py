"""Projects that cannot have a slice: one clear line each, and nothing is left behind. The texts are Google's."""

from __future__ import annotations

import pytest

from tests.contract.slices.tpu_slices import ask, fail
from tests.support.tpu_rig import ZONE, Cloud
from tpujob.adapters.cloud_tpu import CloudTpuSlices
from tpujob.domain.model import Cause
from tpujob.errors import Refused

CONSOLE = "https://console.developers.google.com"
CASES = {
    "no billing": (
        "PERMISSION_DENIED",
        "This API method requires billing to be enabled. Please enable billing on project #471147114711 by visiting "
        f"{CONSOLE}/billing/enable?project=471147114711 then retry. If you enabled billing for this project recently, "
        "wait a few minutes for the action to propagate to our systems and retry.",
        Cause.PERMISSION,
        "link a billing account to the project",
    ),
    "API disabled": (
        "PERMISSION_DENIED",
        "Cloud TPU API has not been used in project 471147114711 before or it is disabled. Enable it by visiting "
        f"{CONSOLE}/apis/api/tpu.googleapis.com/overview?project=471147114711 then retry.",
        Cause.PERMISSION,
        "run `gcloud services enable tpu.googleapis.com`",
    ),
    "no quota at all": (
        "RESOURCE_EXHAUSTED",
        "Quota limit 'TPUV4sPreemptiblePodPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 0 in zone "
        f"{ZONE}.",
        Cause.QUOTA,
        "the project's quota is 0; ask for some, or name another place",
    ),
    "a closed zone": (
        "PERMISSION_DENIED",
        f"Location {ZONE} is not found or access is unauthorized.",
        Cause.PERMISSION,
        "this zone is not open to the project: name others in tpu.zones",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_project_that_cannot_have_a_slice_gets_one_clear_line_and_keeps_nothing(
    cloud: Cloud, slices: CloudTpuSlices, case: str
) -> None:
    code, text, cause, cure = CASES[case]
    fail(cloud, "CreateQueuedResource", code, message=text)
    with pytest.raises(Refused) as refused:
        ask(slices)
    said = f"{refused.value.message} {refused.value.hint}"
    assert refused.value.cause == cause
    assert cure in said, said
    assert "\n" not in said
    assert not cloud.world.queued
    assert not cloud.world.nodes
    assert not slices.list_all([ZONE], timeout=10), "nothing is billed"
