"""How tpujob sets up a bucket, and how it reads the setup of one. Makes no call."""

from collections.abc import Mapping
from typing import Any

from tpujob.domain.model import Cause
from tpujob.errors import Refused
from tpujob.ports import BucketFacts, BucketPlace
from tpujob.protocol import LABEL
from tpujob.protocol.paths import LOG_SUFFIX

#: predefined pairs of regions (documented, read 2026-11)
_PAIRS: Mapping[str, frozenset[str]] = {
    "asia1": frozenset({"asia-northeast1", "asia-northeast2"}),
    "eur4": frozenset({"europe-north1", "europe-west4"}),
    "eur5": frozenset({"europe-west1", "europe-west2"}),
    "eur7": frozenset({"europe-west2", "europe-west3"}),
    "eur8": frozenset({"europe-west3", "europe-west6"}),
    "nam4": frozenset({"us-central1", "us-east1"}),
}


def wanted(resource: Mapping[str, Any], log_days: int | None) -> dict[str, Any]:
    """What to change in a bucket, as the JSON API describes it; empty: nothing. Other lifecycle rules stay."""
    now = facts_of(resource)
    changes: dict[str, Any] = {}
    if (
        not (now.ours and now.uniform_access and now.public_access == "enforced")
        or now.soft_delete_s
    ):
        changes = {
            "labels": {**resource.get("labels", {}), LABEL: "1"},
            "iamConfiguration": {
                "uniformBucketLevelAccess": {"enabled": True},
                "publicAccessPrevention": "enforced",
            },
            # otherwise deleted checkpoints are billed for another week
            "softDeletePolicy": {"retentionDurationSeconds": 0},
        }
    if now.log_days != log_days:
        rules = [r for r in resource.get("lifecycle", {}).get("rule", ()) if not _is_ours(r)]
        rules += [] if log_days is None else [_rule(log_days)]
        changes["lifecycle"] = {"rule": rules}
    return changes


def facts_of(resource: Mapping[str, Any]) -> BucketFacts:
    """Of a bucket as the JSON API describes it, which leaves out what is off."""
    access = resource.get("iamConfiguration", {})
    ours = [rule for rule in resource.get("lifecycle", {}).get("rule", ()) if _is_ours(rule)]
    return BucketFacts(
        name=str(resource["name"]),
        location=str(resource.get("location", "")).lower(),
        location_type=str(resource.get("locationType", "")),
        uniform_access=bool(access.get("uniformBucketLevelAccess", {}).get("enabled")),
        public_access=str(access.get("publicAccessPrevention") or "inherited"),
        soft_delete_s=int(resource.get("softDeletePolicy", {}).get("retentionDurationSeconds", 0)),
        versioning=bool(resource.get("versioning", {}).get("enabled")),
        log_days=int(ours[0]["condition"]["age"]) if ours else None,
        ours=resource.get("labels", {}).get(LABEL) == "1",
    )


def place_of(layout: Mapping[str, Any]) -> BucketPlace:
    """Return the place in a `storage#storageLayout`. An unknown kind is local to no region: its reads are billed."""
    location = str(layout["location"]).lower()
    if str(layout.get("locationType", "region")) == "region":
        return BucketPlace(location, frozenset({location}))
    chosen = layout.get("customPlacementConfig", {}).get("dataLocations", ())
    regions = frozenset(str(one).lower() for one in chosen) or _PAIRS.get(location, frozenset())
    return BucketPlace(location, regions)


def check_location(resource: Mapping[str, Any], region: str) -> None:
    """Raises Refused when the bucket is in another location."""
    location = str(resource["location"]).lower()
    if location != region.lower():
        raise Refused(
            f"bucket gs://{resource['name']} is in {location}, not in {region}",
            cause=Cause.BAD_SPEC,
            hint=f"name a bucket in {region}, or one that does not exist yet",
        )


def check_ours(resource: Mapping[str, Any]) -> None:
    """Raises Refused when tpujob did not make it: others may rely on its setup."""
    if not facts_of(resource).ours:
        raise Refused(
            f"bucket gs://{resource['name']} exists, and tpujob did not make it",
            cause=Cause.BAD_SPEC,
            hint="take another name, or use --adopt, which changes it to uniform access, no public access and no "
            "soft delete",
        )


def _rule(days: int) -> dict[str, Any]:
    """A rule can match the end of a name but no pattern, so logs have a suffix of their own."""
    return {"action": {"type": "Delete"}, "condition": {"age": days, "matchesSuffix": [LOG_SUFFIX]}}


def _is_ours(rule: Any) -> bool:
    condition = rule.get("condition", {})
    deletes = rule.get("action", {}).get("type") == "Delete"
    return deletes and condition == {"age": condition.get("age"), "matchesSuffix": [LOG_SUFFIX]}
