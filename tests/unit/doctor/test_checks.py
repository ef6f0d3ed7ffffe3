"""Each check alone: what was seen, and the finding that it makes. A cure is one line, for whatever is not well."""

from dataclasses import fields, replace
from typing import Any

import pytest

from tests.support.golden import golden
from tpujob.config.context import Context
from tpujob.config.queue import ChipsSetting
from tpujob.doctor import access, machine, network, policies, zones
from tpujob.doctor.access import Database, Identity, NoIdentity, Project
from tpujob.doctor.cloud import ProjectSeen, examine
from tpujob.doctor.findings import Finding, NotSeen, Severity, fail, ok, unknown, warn, worst
from tpujob.doctor.machine import Laptop, Software
from tpujob.doctor.network import FirewallRule, Network, Subnetwork
from tpujob.doctor.policies import CHECKED, Policy
from tpujob.doctor.zones import Addresses
from tpujob.domain.hardware import accelerators
from tpujob.errors import BackendGone, Refused, Transient, Unauthorized
from tpujob.ports import BucketFacts, Limit, QuotaKind


def changed(context: Context, **fields: Any) -> Context:
    return context.model_copy(update=fields)


ZONE, REGION = "us-central2-b", "us-central2"
LAB = Context.model_construct(
    name="lab",
    project="lab",
    zones=(ZONE,),
    buckets={REGION: "gs://lab"},
    service_account="vm@lab.iam.gserviceaccount.com",
    ssh="external",
)
#: a file of before `init` wrote how hosts are reached
SILENT = Context.model_construct(name="lab", project="lab", zones=(ZONE,))
IAP = changed(LAB, ssh="iap", external_ips=False)
UNSEEN = NotSeen("it did not answer", "look again")
ALL = frozenset((*access.TPU_PERMISSIONS, *access.FIRESTORE_PERMISSIONS, access.IAP_PERMISSION))
V4 = QuotaKind("v4", "spot")
GOOD = BucketFacts("lab", REGION, "region", True, "enforced", 0, False, None, ours=True)


def limit(scope: Any, amount: int | None, place: str = "", kind: QuotaKind = V4) -> Limit:
    return Limit("m", kind, scope, place, amount, "cores" if kind is V4 else "chips")


def granted(chips: int, generation: str = "v4") -> Context:
    return changed(
        LAB, grants=(ChipsSetting(type=generation, zone=ZONE, pricing="spot", chips=chips),)
    )


def rule(sources: str, priority: int = 1000, **fields: Any) -> FirewallRule:
    usual: dict[str, Any] = {"name": "r", "allows": True, "ports": ((22, 22),)}
    return FirewallRule(
        **(usual | {"sources": tuple(sources.split()), "priority": priority} | fields)
    )


def subnet(private: bool = True, nat: bool | NotSeen = True) -> Subnetwork:
    return Subnetwork("10.128.0.0/20", private, nat)


def between(*rules: FirewallRule, context: Context = LAB) -> Finding:
    return network.check_between_hosts(context, subnet(), rules)


EVERY: dict[str, Any] = {"ports": ((0, 65535),)}
ANY, TUNNEL = "0.0.0.0/0", "35.235.240.0/20"
OK, WARN, FAIL = Severity.OK, Severity.WARN, Severity.FAIL

CASES: dict[str, Finding] = {
    "a user": access.check_identity(Identity("ada@example.org", "user")),
    "a key file": access.check_identity(
        Identity("a@b.iam.gserviceaccount.com", "service account", True)
    ),
    "no credentials": access.check_identity(NoIdentity("this machine has none")),
    "a project": access.check_project(LAB, Project("lab", "7", True)),
    "no project": access.check_project(LAB, None),
    "a deleted project": access.check_project(LAB, Project("lab", "7", False)),
    "no APIs": access.check_services(LAB, frozenset()),
    "all permissions": access.check_permissions(LAB, ALL),
    "no role for TPUs": access.check_permissions(LAB, frozenset(), "ada@example.org"),
    "no role for the tunnel": access.check_permissions(
        IAP, ALL - {access.IAP_PERMISSION}, "x@y.gserviceaccount.com"
    ),
    "no role for Firestore": access.check_permissions(
        changed(LAB, store="firestore"), frozenset(access.TPU_PERMISSIONS)
    ),
    "no account for hosts": access.check_service_account(
        changed(LAB, service_account=""), frozenset()
    ),
    "an account that is not there": access.check_service_account(LAB, None),
    "an account that may not be used": access.check_service_account(
        LAB, frozenset(), "ada@example.org"
    ),
    "an account that may": access.check_service_account(LAB, frozenset([access.ACT_AS])),
    "objects": access.check_bucket_permissions("gs://b", frozenset(access.BUCKET_PERMISSIONS)),
    "objects that may only be read": access.check_bucket_permissions(
        "gs://b", frozenset(["storage.objects.get"]), "a@b.org"
    ),
    "no database": access.check_database(LAB, None),
    "no database in Europe": access.check_database(changed(LAB, zones=("europe-west4-a",)), None),
    "a database of the other mode": access.check_database(
        LAB, Database(False, "DATASTORE_MODE", "nam5")
    ),
    "types": zones.check_types(granted(32), ZONE, frozenset(["v4-8", "v6e-1"])),
    "no types": zones.check_types(LAB, ZONE, frozenset()),
    "not the granted type": zones.check_types(granted(64, "v6e"), ZONE, frozenset(["v4-8"])),
    "quota for the grant": zones.check_quota(granted(32), ZONE, [limit("zone", 64, ZONE)]),
    "quota without a limit": zones.check_quota(granted(32), ZONE, [limit("zone", None)]),
    "a grant and no quota": zones.check_quota(
        granted(32), ZONE, [limit("zone", 64, "europe-west4-a"), limit("zone", 0)]
    ),
    "a grant of something that has no quota at all": zones.check_quota(granted(32), ZONE, []),
    "the region allows less than the zone": zones.check_quota(
        granted(32), ZONE, [limit("zone", 64, ZONE), limit("region", 16, REGION)]
    ),
    "chips or cores": zones.check_quota(granted(32), ZONE, [limit("zone", 32, ZONE)]),
    "no grant, some quota": zones.check_quota(LAB, ZONE, [limit("zone", 16, ZONE)]),
    "no grant, no quota": zones.check_quota(LAB, ZONE, [limit("zone", 0)]),
    "addresses": zones.check_addresses(LAB, REGION, Addresses(8, 2)),
    "no address": zones.check_addresses(LAB, REGION, Addresses(8, 8)),
    "fewer addresses than hosts": zones.check_addresses(granted(64), REGION, Addresses(8, 0)),
    "a network": network.check_network(LAB, Network(True)),
    "no network": network.check_network(LAB, None),
    "no subnetwork": network.check_way_out(LAB, REGION, None),
    "addresses lead out": network.check_way_out(LAB, REGION, subnet(False, False)),
    "no way out": network.check_way_out(IAP, REGION, subnet(False, True)),
    "out to Google alone": network.check_way_out(IAP, REGION, subnet(True, False)),
    "out": network.check_way_out(IAP, REGION, subnet(True, True)),
    "SSH from everywhere": network.check_ssh(LAB, [rule(ANY)]),
    "SSH in a context that does not say how": network.check_ssh(SILENT, [rule(ANY)]),
    "host keys that were published": network.check_host_keys({"tj-000001-1": "published"}),
    "a host key that was believed": network.check_host_keys(
        {"tj-000001-1": "published", "tj-000002-1": "first-contact"}
    ),
    "SSH from one place": network.check_ssh(LAB, [rule("8.8.8.8/32")]),
    "SSH from inside only": network.check_ssh(LAB, [rule("10.0.0.0/8"), rule(TUNNEL)]),
    "another port": network.check_ssh(LAB, [rule(ANY, ports=((80, 443),))]),
    "the tunnel": network.check_ssh(IAP, [rule(TUNNEL)]),
    "the tunnel in a wider range": network.check_ssh(IAP, [rule(ANY)]),
    "half of the tunnel": network.check_ssh(IAP, [rule("35.235.240.0/21")]),
    "denied first": network.check_ssh(IAP, [rule(TUNNEL), rule(ANY, 999, allows=False)]),
    "denied after": network.check_ssh(IAP, [rule(TUNNEL), rule(ANY, 1001, allows=False)]),
    "denied elsewhere": network.check_ssh(IAP, [rule(TUNNEL), rule("10.0.0.0/8", 1, allows=False)]),
    "a rule for other tags": network.check_ssh(LAB, [rule(ANY, tags=("web",))]),
    "a rule for our tag": network.check_ssh(
        changed(LAB, tags=("web",)), [rule(ANY, tags=("web",))]
    ),
    "a rule for our account": network.check_ssh(LAB, [rule(ANY, accounts=(LAB.service_account,))]),
    "hosts of the default network": between(rule("10.128.0.0/9", **EVERY)),
    "hosts without a rule": between(rule(ANY), rule("10.128.0.0/20", ports=((8476, 8476),))),
    "hosts of another range": between(rule("10.0.0.0/9", **EVERY)),
    "hosts that a rule denies": between(
        rule(ANY, **EVERY), rule("10.0.0.0/8", 900, allows=False, **EVERY)
    ),
    "hosts by their tag": between(
        rule("", source_tags=("tpu",), tags=("tpu",), **EVERY), context=changed(LAB, tags=("tpu",))
    ),
    "hosts by a tag that they lack": between(rule("", source_tags=("tpu",), **EVERY)),
    "hosts by their account": between(rule("", source_accounts=(LAB.service_account,), **EVERY)),
    "the tunnel by a tag": network.check_ssh(
        changed(IAP, tags=("tpu",)), [rule("", source_tags=("tpu",), tags=("tpu",))]
    ),
    "a range that is none": network.check_ssh(IAP, [rule("nonsense ::/0")]),
    "inside the network": network.check_ssh(changed(LAB, ssh="internal"), []),
    "inside the network, deployed": network.check_ssh(
        changed(LAB, ssh="internal", store="firestore"), []
    ),
    "outside without an address": network.check_ssh(changed(LAB, external_ips=False), [rule(ANY)]),
    "a clock": machine.check_clock(-3.2),
    "a clock that is off": machine.check_clock(-31),
    "a clock that is far off": machine.check_clock(7200),
    "an old Python": machine.check_python(Software((3, 9, 1), [], {})),
    "packages": machine.check_packages(
        Software(
            (3, 11, 0),
            ["google-cloud-tpu>=1.28", "typer<1,>=0.28"],
            {"google-cloud-tpu": "1.28.0", "typer": "0.28.1"},
        )
    ),
    "an old package": machine.check_packages(
        Software((3, 11, 0), ["a<2,>=1.28", "b>=2"], {"a": "1.9.3rc1"})
    ),
    "not installed": machine.check_packages(Software((3, 11, 0), [], {})),
    "a backend": machine.check_backend("https://b", None),
    "a backend that says no": machine.check_backend(
        "https://b", Unauthorized("the token is wrong")
    ),
    "a backend that refuses": machine.check_backend("https://b", Refused("no", cause="PERMISSION")),
    "a backend that is away": machine.check_backend(
        "https://b", BackendGone("nothing answers", hint="wait")
    ),
}


BUCKETS: dict[str, BucketFacts | NotSeen | None] = {
    "a bucket": GOOD,
    "no bucket": None,
    "a bucket in another region": replace(GOOD, location="us-east1"),
    "a bucket in several regions": replace(GOOD, location="us", location_type="multi-region"),
    "soft delete": replace(GOOD, soft_delete_s=604800),
    "rights for each object": replace(GOOD, uniform_access=False),
    "public objects": replace(GOOD, public_access="inherited"),
    "a bucket that was not seen": UNSEEN,
}


#: a context, and a policy in force for it
IN = changed(LAB, ssh="internal", external_ips=False)
SHARED = changed(IN, store="firestore", secret_region="")
SHIELDED, LOCATIONS = "compute.requireShieldedVm", "gcp.resourceLocations"
POLICIES: dict[str, tuple[Context, str, Policy | NotSeen]] = {
    "no addresses": (LAB, "compute.vmExternalIpAccess", Policy(allowed=())),
    "addresses of some machines": (LAB, "compute.vmExternalIpAccess", Policy(allowed=("vm",))),
    "no addresses, and none needed": (IN, "compute.vmExternalIpAccess", Policy(allowed=())),
    "every address": (LAB, "compute.vmExternalIpAccess", Policy()),
    "OS Login": (IN, "compute.requireOsLogin", Policy(enforced=True)),
    "shielded": (IN, SHIELDED, Policy(enforced=True)),
    "shielded, and secure": (changed(IN, secure_boot=True), SHIELDED, Policy(enforced=True)),
    "shielded under a condition": (IN, SHIELDED, Policy(enforced=True, conditional=True)),
    "no guest attributes": (IN, "compute.disableGuestAttributesAccess", Policy(enforced=True)),
    "another region": (IN, LOCATIONS, Policy(allowed=("in:us-east5-locations",))),
    "this region": (IN, LOCATIONS, Policy(allowed=("in:us-central2-locations",))),
    "the continent": (IN, LOCATIONS, Policy(allowed=("in:us-locations",))),
    "this zone": (IN, LOCATIONS, Policy(allowed=("is:us-central2-b",))),
    "this zone denied": (IN, LOCATIONS, Policy(denied=("us-central2-b",))),
    "nowhere": (IN, LOCATIONS, Policy(allowed=())),
    "an unknown group": (IN, LOCATIONS, Policy(allowed=("in:low-carbon-locations",))),
    "this region, with secrets": (SHARED, LOCATIONS, Policy(allowed=("in:us-central2-locations",))),
    "members of the organization": (SHARED, "iam.allowedPolicyMemberDomains", Policy(allowed=("C0",))),
    "a policy that may not be read": (IN, SHIELDED, NotSeen("permission denied", "grant it")),
}  # fmt: skip


def check_policy(context: Context, name: str, policy: Policy | NotSeen) -> Finding:
    (finding,) = policies.check_policies(context, {name: policy})
    return finding


def test_one_policy_that_may_not_be_read_hides_no_other() -> None:
    seen = {SHIELDED: Policy(enforced=True), LOCATIONS: NotSeen("denied", "grant it")}
    assert policies.check_policies(IN, seen) == [
        fail(
            f"{SHIELDED} prevents slices of this context", "set `secure_boot: true` in the context"
        ),
        unknown(NotSeen(f"{LOCATIONS}: denied", "grant it")),
    ]


def test_every_check() -> None:
    buckets = {name: zones.check_buckets(LAB, {"gs://lab": b})[0] for name, b in BUCKETS.items()}
    of_organization = {f"policy, {case}": check_policy(*row) for case, row in POLICIES.items()}
    cases = CASES | buckets | of_organization
    for finding in cases.values():
        assert bool(finding.cure) == (finding.verdict is not OK), finding
        assert "\n" not in finding.what + finding.cure
        assert not finding.what.endswith("."), finding
    pages = {case: f"{b.verdict}: {b.what}\n{b.cure}" for case, b in cases.items()}
    golden("doctor-checks", {case: page.rstrip() for case, page in pages.items()})


def test_every_region_needs_a_bucket() -> None:
    wants = changed(LAB, zones=(ZONE, "europe-west4-a"))
    good, missing = zones.check_buckets(wants, {"gs://lab": GOOD})
    assert good.verdict is OK
    assert missing.verdict is FAIL
    assert missing.cure == "tpujob bucket create --region europe-west4"


def unseen(**but: Any) -> ProjectSeen:
    """Nothing was seen, but that."""
    maps = ("types", "addresses", "subnetworks", "buckets", "objects", "policies")
    names = [field.name for field in fields(ProjectSeen)]
    seen: dict[str, Any] = {name: {} if name in maps else UNSEEN for name in names}
    return ProjectSeen(**seen | but)


def test_what_was_not_seen_is_unknown_in_every_check() -> None:
    seen = unseen(
        types={ZONE: UNSEEN},
        addresses={REGION: UNSEEN},
        buckets={"gs://lab": UNSEEN},
        objects={"gs://lab": UNSEEN},
        policies=dict.fromkeys(CHECKED, UNSEEN),
        subnetworks={REGION: subnet()},
    )
    for context in (changed(LAB, store="firestore"), IAP):
        findings = {finding.name: finding for finding in examine(context, seen)}
        out = findings.pop(f"way out {REGION}")
        for name, finding in findings.items():
            assert finding == unknown(UNSEEN).named(name)
        assert len(findings) >= 13
        assert out.verdict is OK
        dark = replace(seen, subnetworks={REGION: UNSEEN})
        assert unknown(UNSEEN).named(out.name) in examine(context, dark)
    assert network.check_way_out(IAP, REGION, subnet(True, UNSEEN)) == unknown(UNSEEN)
    away = Transient("it did not answer", hint="look again")
    assert machine.check_backend("https://b", away) == unknown(UNSEEN)


def test_a_project_that_may_not_be_seen_may_be_misspelled() -> None:
    """Google denies permission for both."""
    seen = unseen(project=NotSeen("permission denied"))
    findings = {f.name: f for f in examine(changed(LAB, zones=()), seen)}["project"]
    assert (findings.verdict, findings.cure) == (Severity.UNKNOWN, "gcloud projects list")


def test_only_what_a_context_needs_is_asked_for() -> None:
    def services(context: Context) -> set[str]:
        return {service.partition(".")[0] for service in access.needed_services(context)}

    deployed = changed(IAP, store="firestore", backend="https://tpujob.run.app")
    assert services(LAB) == {"tpu", "compute", "storage"}
    assert {"firestore", "iap", "run", "iamcredentials"} < services(deployed)
    assert access.needed_permissions(LAB) == access.TPU_PERMISSIONS
    assert set(access.needed_permissions(deployed)) == ALL


def test_the_worst_finding_counts() -> None:
    good, odd = ok("x"), warn("x", "y")
    dark, bad = unknown(UNSEEN), fail("x", "y")
    assert [worst(f) for f in ([], [good], [good, odd], [odd, dark], [dark, bad, good])] == [
        OK, OK, WARN, Severity.UNKNOWN, FAIL,
    ]  # fmt: skip


LAPTOP = Laptop("", 10**11, "/s", False, False, "/usr/bin/ssh", {"farm": True, "backend": True})
LAPTOPS: list[tuple[dict[str, Any], str, Severity, str]] = [
    ({}, "loopback", OK, ""),
    ({"loopback": "no 127.3.1.1"}, "loopback", FAIL, "no 127.3.1.1"),
    ({"disk_free": 3 * 10**9}, "disk", WARN, "3.0 GB free"),
    ({"disk_free": 10**6}, "disk", FAIL, "0.0 GB free"),
    ({"state_open": True}, "state", FAIL, "other users can read"),
    ({"state_foreign": True}, "state", FAIL, "another user"),
    ({"ssh": ""}, "SSH", WARN, "no ssh program"),
    ({"running": {"farm": False, "backend": False}}, "local stack", OK, "starts them"),
    ({"running": {"farm": False, "backend": True}}, "local stack", WARN, "not running: farm"),
]


@pytest.mark.parametrize(("change", "name", "verdict", "text"), LAPTOPS)
def test_the_laptop(change: dict[str, Any], name: str, verdict: Severity, text: str) -> None:
    findings = {f.name: f for f in machine.check_laptop(replace(LAPTOP, **change))}
    assert findings[name].verdict is verdict
    assert text in findings[name].what
    others = [f for f in findings.values() if f.name != name]
    assert {f.verdict for f in others} == {OK}, others


def test_every_generation_is_found_in_what_a_zone_offers() -> None:
    for generation in accelerators.GENERATIONS.values():
        types = frozenset(t for t in accelerators.ALL if t.startswith(f"{generation.prefix}-"))
        finding = zones.check_types(granted(8, generation.name), ZONE, types)
        assert finding.what == f"offers {generation.name}"
