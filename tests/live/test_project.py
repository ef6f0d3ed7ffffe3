"""Assumptions that cost nothing: permissions, quotas, lists, and the errors of refused requests."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.live.project import Meter, Project
from tests.support.paths import ROOT
from tpujob.adapters.cloud_tpu.calls import ZoneClosed
from tpujob.adapters.google import quota
from tpujob.adapters.google.quota import kind_of_metric
from tpujob.config.context import CREATES_PER_MINUTE
from tpujob.doctor.access import TPU_PERMISSIONS
from tpujob.doctor.policies import CHECKED
from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Cause
from tpujob.errors import Refused

MANAGER, USAGE = "cloudresourcemanager.googleapis.com", "serviceusage.googleapis.com"
MONITORING, TPU = "monitoring.googleapis.com", "tpu.googleapis.com"
#: a permission of queued resources, if they had any of their own
OWN_PERMISSION = "tpu.queuedResources.create"


def test_reads(project: Project) -> None:
    """A viewer may read what doctor asks, and a project is found by its id."""
    project.google.get(MANAGER, f"v3/projects/{project.id}")
    names = f"projects/{project.id}/services/{TPU}"
    project.google.get(USAGE, f"v1/projects/{project.id}/services:batchGet", names=names)
    assert quotas(project)


def test_policies(project: Project) -> None:
    """The policies in force can be read, also those that nobody has set."""
    for name in CHECKED:
        path = f"v2/projects/{project.id}/policies/{name}:getEffectivePolicy"
        assert project.google.get("orgpolicy.googleapis.com", path)["spec"]["rules"]


def test_permissions(project: Project) -> None:
    """Queued resources have no permissions of their own: `tpu.nodes.*` covers them."""
    path = f"v3/projects/{project.id}:testIamPermissions"
    granted = project.google.post(MANAGER, path, {"permissions": list(TPU_PERMISSIONS)})
    assert set(granted["permissions"]) == set(TPU_PERMISSIONS), "this account lacks some"
    with pytest.raises(Refused):
        project.google.post(MANAGER, path, {"permissions": [OWN_PERMISSION]})


def test_quota_names(project: Project) -> None:
    """Generation and pricing of every TPU quota can be read from its name."""
    names = [name for name in quotas(project) if "tpu" in name.rpartition("/")[2].lower()]
    assert [name for name in names if kind_of_metric(name) is None] == []
    generation = accelerators.find(project.slice.type).generation
    assert generation in {kind.generation for name in names if (kind := kind_of_metric(name))}


def test_create_rate(project: Project) -> None:
    """A context asks for no more slices in a minute than the project may create. Whether the API counts queued
    resources there takes more of them than a test may pay for."""
    limits = [
        q for q in quota.limits(project.google, project.id) if q.metric == f"{TPU}/qps/create"
    ]
    assert limits
    assert min(limit.limit or 0 for limit in limits) >= CREATES_PER_MINUTE


def test_lists(project: Project) -> None:
    """Both lists of a zone are complete, and both take every zone at once."""
    client = project.client
    for parent in (project.parent, f"projects/{project.id}/locations/-"):
        for pager in (
            client.list_nodes(parent=parent),
            client.list_queued_resources(parent=parent),
        ):
            assert not any(page.unreachable for page in pager.pages)


def test_catalog(project: Project) -> None:
    """The tables of types, zones and runtimes are right for this zone."""
    client, parent = project.client, project.parent
    types = {t.name.rpartition("/")[2] for t in client.list_accelerator_types(parent=parent)}
    runtimes = {r.name.rpartition("/")[2] for r in client.list_runtime_versions(parent=parent)}
    assert project.slice.type in types
    assert project.slice.system_image in runtimes
    unknown = {type for type in types if type not in accelerators.ALL}
    assert not unknown, f"the table of types lacks {sorted(unknown)}"


@pytest.mark.parametrize(
    ("change", "kind", "cause"),
    [
        ({"type": "v2-7"}, Refused, Cause.BAD_SPEC),
        ({"zone": "us-central9-z"}, ZoneClosed, Cause.PERMISSION),
    ],
    ids=["unknown-type", "closed-zone"],
)
def test_refusals(
    project: Project, change: dict[str, str], kind: type[Refused], cause: Cause
) -> None:
    with pytest.raises(kind) as refused:
        project.ask(replace(project.slice, **change))
    assert refused.value.cause == cause


def quotas(project: Project) -> list[str]:
    path = f"v1beta1/projects/{project.id}/services/{TPU}/consumerQuotaMetrics"
    pages = project.google.pages(USAGE, path, "metrics", view="FULL", pageSize="200")
    return [str(metric["metric"]) for metric in pages]


def test_a_cap_that_is_too_small_asks_for_nothing() -> None:
    meter = Meter(usd_per_hour=12.0, cap=1.0)
    with pytest.raises(pytest.fail.Exception, match=r"10 min cost \$2.00, over the cap of \$1.00"):
        meter.start()
    assert meter.began is None


def test_every_inference_names_its_test() -> None:
    """Each inference that the product names has a test here."""
    tests = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    names = {name.replace("_", "-") for name in re.findall(r"def test_(\w+)\(", tests)}
    files = [
        *(ROOT / "tpujob").rglob("*.py"),
        *(ROOT / "workloads").rglob("*.py"),
        *(ROOT / "deploy").glob("*.*"),
    ]
    places = 0
    for file in files:
        text = file.read_text()
        for hit in re.finditer("inferred", text, re.IGNORECASE):
            line = text.count("\n", 0, hit.start()) + 1
            named = re.search(
                r"\(live:\s+(?:#:?\s+)?([a-z-]+)\)", text[hit.start() : hit.end() + 160]
            )
            assert named, f"{file.relative_to(ROOT)}:{line} infers something without `(live: NAME)`"
            assert named[1] in names, (
                f"{file.relative_to(ROOT)}:{line} names {named[1]}, which is no test in tests/live"
            )
            places += 1
    assert places > 10
