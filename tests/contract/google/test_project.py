"""Looks at a project over real HTTP and gRPC: what healthy answers become, and that a look that fails is no finding."""

import re
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from tests.support import google_server as g
from tests.support.google_server import WANTS, GoogleServer, changed
from tests.support.tpu_rig import Cloud
from tpujob.adapters.cloud_tpu import Api, CloudTpuCatalog
from tpujob.adapters.google import project, rest
from tpujob.adapters.google.quota import GoogleQuota
from tpujob.config.context import Context
from tpujob.doctor.access import Database, Project
from tpujob.doctor.cloud import ProjectSeen, examine
from tpujob.doctor.findings import Finding, NotSeen, Severity
from tpujob.doctor.network import Network, Subnetwork
from tpujob.doctor.policies import CHECKED, Policy
from tpujob.doctor.zones import Addresses
from tpujob.ports import BucketFacts


@pytest.fixture(name="look")
def _look(google: GoogleServer, cloud: Cloud) -> Any:
    return partial(looked, google.url, cloud)


def looked(url: str, cloud: Cloud, wants: Context = WANTS) -> ProjectSeen:
    with closing(Api(wants.project, endpoint=cloud.tpu.address)) as api:
        quota = GoogleQuota(wants.project, endpoint=url, tpu_endpoint=cloud.tpu.address)
        return project.look(wants, CloudTpuCatalog(api), quota, endpoint=url)


def finding(wants: Context, seen: ProjectSeen, name: str) -> Finding:
    findings = {entry.name: entry for entry in examine(wants, seen)}
    assert name in findings, f"no finding {name} in {list(findings)}"
    return findings[name]


def test_a_healthy_project_has_nothing_wrong(look: Any) -> None:
    seen = look()
    assert seen.project == Project(g.PROJECT, g.NUMBER, active=True)
    assert "firestore.googleapis.com" in seen.services
    assert {"tpu.nodes.create", "datastore.entities.get"} <= seen.permissions
    assert seen.service_account == {"iam.serviceAccounts.actAs"}
    assert seen.network == Network(auto=True)
    assert seen.addresses == {g.REGION: Addresses(16, 3)}
    assert seen.subnetworks == {g.REGION: Subnetwork("10.128.0.0/20", True, nat=False)}, "no NAT"
    assert seen.buckets == {
        f"gs://{g.BUCKET}": BucketFacts(
            g.BUCKET, "us-central2", "region", True, "enforced", 0, False, None, ours=False
        )
    }
    assert seen.database == Database(True, "FIRESTORE_NATIVE", "nam5")
    assert isinstance(seen.ahead_s, float)
    assert "v4-16" in seen.types[g.ZONE]
    bad = [entry for entry in examine(WANTS, seen) if entry.verdict is not Severity.OK]
    assert not bad, "\n".join(map(str, bad))


#: the path that answers so, and the check without a result
LOOKS = [
    (g.PROJECT_PATH, "project"),
    (f"{g.PROJECT_PATH}:testIamPermissions", "permissions"),
    (
        f"iam.googleapis.com/v1/projects/-/serviceAccounts/{g.ACCOUNT}:testIamPermissions",
        "hosts' account",
    ),
    (g.SERVICES, "APIs"),
    (g.QUOTAS, f"quota {g.ZONE}"),
    (g.NETWORK, "network"),
    (g.FIREWALLS, "SSH"),
    (g.IN_REGION, f"addresses {g.REGION}"),
    (f"{g.IN_REGION}/subnetworks", f"way out {g.REGION}"),
    (g.BUCKET_PATH, f"bucket {g.REGION}"),
    (f"{g.BUCKET_PATH}/iam/testPermissions", "objects"),
    (g.DATABASE, "Firestore"),
    *((f"{g.POLICIES}/{name}:getEffectivePolicy", "policies") for name in CHECKED),
]


#: whose answers leave everything out when nothing is granted
MAY_LACK = ("permissions", "hosts' account", "objects", "network", "policies")
NONSENSE: dict[str, Any] = {
    "quotas": 5,
    "items": [7],
    "metrics": "x",
    "services": None,
    "location": [],
    "type": None,
}


@pytest.mark.parametrize(
    "answer",
    [g.DENIED, g.OLD_DENIED, g.EXPIRED, g.UNAVAILABLE, g.TOO_MANY, g.NOT_JSON, [], NONSENSE],
)
def test_a_check_that_could_not_look_is_none(google: GoogleServer, look: Any, answer: Any) -> None:
    for path, _ in LOOKS:
        google.answers[path] = answer
    seen = look()
    for path, name in LOOKS:
        check = finding(WANTS, seen, name)
        if answer is NONSENSE and name in MAY_LACK:
            continue
        assert check.verdict is Severity.UNKNOWN, f"{path} answered {answer}: {check}"
        assert check.what.startswith("could not be checked: "), check


def test_missing_is_distinguished_from_unreadable(google: GoogleServer, look: Any) -> None:
    for path in (g.PROJECT_PATH, g.NETWORK, g.BUCKET_PATH, g.DATABASE):
        del google.answers[path]
    google.answers[f"{g.IN_REGION}/subnetworks"] = {"items": []}
    seen = look()
    assert seen.project is None
    assert seen.network is None
    assert seen.buckets == {f"gs://{g.BUCKET}": None}
    assert seen.database is None
    assert seen.subnetworks == {g.REGION: None}
    for name in ("project", "network", f"bucket {g.REGION}", "Firestore"):
        check = finding(WANTS, seen, name)
        assert check.verdict is Severity.FAIL, check
        assert check.cure.startswith(("gcloud ", "tpujob bucket create ")), check


@pytest.mark.parametrize(
    ("path", "answer", "name", "cure"),
    [
        (g.QUOTAS, g.disabled("serviceusage.googleapis.com"), f"quota {g.ZONE}",
         f"gcloud services enable serviceusage.googleapis.com --project {g.PROJECT}"),
        (g.FIREWALLS, g.disabled("compute.googleapis.com"), "SSH",
         f"gcloud services enable compute.googleapis.com --project {g.PROJECT}"),
        (g.QUOTAS, g.DENIED, f"quota {g.ZONE}", "--role=roles/viewer"),
        (g.PROJECT_PATH, g.EXPIRED, "project", "gcloud auth application-default login"),
        (g.SERVICES, g.enabled("firestore", "tpu"), "APIs",
         "gcloud services enable tpu.googleapis.com firestore."),
    ],
)  # fmt: skip
def test_what_google_refuses_comes_with_what_to_do(
    google: GoogleServer, look: Any, path: str, answer: Any, name: str, cure: str
) -> None:
    google.answers[path] = answer
    assert cure in finding(WANTS, look(), name).cure


def test_policies_of_the_organization_are_read(google: GoogleServer, look: Any) -> None:
    shielded, addresses, places = CHECKED[2], CHECKED[0], CHECKED[4]
    tags = {"condition": {"expression": "resource.matchTag('1/env', 'test')"}, "enforce": True}
    lists = {"allowedValues": ["in:us-locations"], "deniedValues": ["us-east5-a"]}
    for name, rule in (
        (shielded, {"enforce": True}),
        (addresses, {"denyAll": True}),
        (places, {"values": lists}),
        (CHECKED[1], tags),
    ):
        google.answers[f"{g.POLICIES}/{name}:getEffectivePolicy"] = g.policy(name, **rule)
    seen = look().policies
    assert seen[shielded] == Policy(enforced=True)
    assert seen[addresses] == Policy(allowed=())
    assert seen[places] == Policy(allowed=("in:us-locations",), denied=("us-east5-a",))
    assert seen[CHECKED[1]] == Policy(enforced=True, conditional=True)
    assert seen[CHECKED[3]] == seen[CHECKED[5]] == Policy()


def test_a_service_that_does_not_answer_is_given_up(
    google: GoogleServer, look: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "CALL_TIMEOUT", 1)
    google.silent = {g.SERVICES, g.IN_REGION}
    seen = look()
    assert seen.services == NotSeen("serviceusage.googleapis.com did not answer within 1 s")
    assert isinstance(seen.addresses[g.REGION], NotSeen)


def test_a_port_where_nothing_listens_is_reported(cloud: Cloud) -> None:
    seen = looked("http://127.0.0.1:9", cloud)
    assert isinstance(seen.project, NotSeen)
    why = "cloudresourcemanager.googleapis.com cannot be reached from this machine"
    assert seen.project.why == why
    assert isinstance(seen.ahead_s, NotSeen)


def test_a_zone_that_is_closed_to_the_project_cannot_be_told(look: Any) -> None:
    wants = changed(WANTS, zones=("us-central2-z",), grants=())
    check = finding(wants, look(wants), "types us-central2-z")
    assert check.verdict is Severity.UNKNOWN
    assert "is not found or access is unauthorized" in check.what


def test_the_clock_is_compared_with_googles(google: GoogleServer, look: Any) -> None:
    google.ahead_s = -700
    check = finding(WANTS, look(), "clock")
    assert check.verdict is Severity.FAIL
    assert re.match(r"(699|7\d\d) s ahead of Google's", check.what), check.what


def test_a_shared_network_is_looked_at_in_its_own_project(google: GoogleServer, look: Any) -> None:
    """And only rules that let something in, are in force and are of that network count."""
    host = f"{g.COMPUTE}/compute/v1/projects/net-host"
    network = "projects/net-host/global/networks/shared"
    link = f"https://www.googleapis.com/compute/v1/{network}"
    out = {"denied": [{"IPProtocol": "all"}], "direction": "EGRESS"}
    items = [
        g.rule("off", sources=["0.0.0.0/0"]) | {"network": link, "disabled": True},
        g.rule("out", sources=[]) | {"network": link} | out,
        g.rule("elsewhere", sources=["0.0.0.0/0"]),
        g.rule("tunnel", sources=["35.235.240.0/20"], ports=["20-25"]) | {"network": link},
    ]
    google.answers |= {
        f"{host}/global/networks/shared": {"name": "shared"},
        f"{host}/global/firewalls": g.paged("items", items),
        f"{host}/regions/{g.REGION}/subnetworks": {
            "items": [
                {"name": "a", "network": link, "ipCidrRange": "10.1.0.0/20"},
                {"name": "tpus", "network": link, "ipCidrRange": "10.2.0.0/20"},
            ]
        },
        f"{host}/regions/{g.REGION}/routers": {},
    }
    wants = changed(WANTS, network=network, subnetwork="tpus", ssh="iap", external_ips=False)
    seen = look(wants)
    assert seen.network == Network(auto=False)
    assert [rule.name for rule in seen.rules] == ["tunnel"]
    assert seen.rules[0].ports == ((20, 25),)
    assert seen.subnetworks == {g.REGION: Subnetwork("10.2.0.0/20", False, nat=False)}
    apart = finding(wants, seen, f"hosts {g.REGION}")
    assert apart.verdict is Severity.FAIL
    assert "--network=shared --allow=tcp --source-ranges=10.2.0.0/20" in apart.cure
    assert finding(wants, seen, "SSH").verdict is Severity.OK
    assert "enable-private-ip-google-access" in finding(wants, seen, f"way out {g.REGION}").cure


def test_the_checks_change_nothing(google: GoogleServer, look: Any) -> None:
    look()
    posts = {request.path for request in google.asked if request.verb == "POST"}
    assert {path.rpartition(":")[2] for path in posts} == {"testIamPermissions"}
    assert {request.verb for request in google.asked} == {"GET", "POST"}
