"""The setup of tpujob's buckets: which changes a bucket needs, and what its setup is. Makes no call."""

from collections.abc import Mapping, Sequence
from typing import Any

from tpujob.domain.model import Cause
from tpujob.errors import Refused
from tpujob.ports import BucketFacts, BucketPlace
from tpujob.protocol import LABEL
from tpujob.protocol.paths import LOG_SUFFIX

#: the action of a lifecycle rule that ends unfinished multipart uploads
ABORT_PARTS = "AbortIncompleteMultipartUpload"
#: the regions of predefined dual-regions (documented, read 2026-11)
_PAIRS: Mapping[str, frozenset[str]] = {
    "asia1": frozenset({"asia-northeast1", "asia-northeast2"}),
    "eur4": frozenset({"europe-north1", "europe-west4"}),
    "eur5": frozenset({"europe-west1", "europe-west2"}),
    "eur7": frozenset({"europe-west2", "europe-west3"}),
    "eur8": frozenset({"europe-west3", "europe-west6"}),
    "nam4": frozenset({"us-central1", "us-east1"}),
}


def needed_changes(resource: Mapping[str, Any], log_days: int | None) -> dict[str, Any]:
    """Return the changes that a bucket needs, as a patch for the JSON API; empty: none. Other lifecycle rules stay."""
    now = facts_of(resource)
    changes: dict[str, Any] = {}
    closed = now.uniform_access and now.public_access == "enforced"
    if not (now.ours and closed) or now.soft_delete_s:
        changes = {
            "labels": {**resource.get("labels", {}), LABEL: "1"},
            "iamConfiguration": {
                "uniformBucketLevelAccess": {"enabled": True},
                "publicAccessPrevention": "enforced",
            },
            # with the default, deleted checkpoints are billed for another week
            "softDeletePolicy": {"retentionDurationSeconds": 0},
        }
    if now.log_days != log_days:
        rules = [rule for rule in _rules(resource) if not _removes_logs(rule)]
        if log_days is not None:  # rules match the end of a name but no pattern
            condition = {"age": log_days, "matchesSuffix": [LOG_SUFFIX]}
            rules.append({"action": {"type": "Delete"}, "condition": condition})
        changes["lifecycle"] = {"rule": rules}
    return changes


def facts_of(resource: Mapping[str, Any]) -> BucketFacts:
    """Return the facts of a bucket in the JSON API, which leaves out settings that are off."""
    access = resource.get("iamConfiguration", {})
    log_rules = [rule for rule in _rules(resource) if _removes_logs(rule)]
    parts_days = [
        int(rule.get("condition", {}).get("age", 0))
        for rule in _rules(resource)
        if rule.get("action", {}).get("type") == ABORT_PARTS
    ]
    return BucketFacts(
        name=str(resource["name"]),
        location=str(resource.get("location", "")).lower(),
        location_type=str(resource.get("locationType", "")),
        uniform_access=bool(access.get("uniformBucketLevelAccess", {}).get("enabled")),
        public_access=str(access.get("publicAccessPrevention") or "inherited"),
        soft_delete_s=int(resource.get("softDeletePolicy", {}).get("retentionDurationSeconds", 0)),
        versioning=bool(resource.get("versioning", {}).get("enabled")),
        log_days=int(log_rules[0]["condition"]["age"]) if log_rules else None,
        ours=resource.get("labels", {}).get(LABEL) == "1",
        parts_days=min(parts_days, default=None),
    )


def place_of(layout: Mapping[str, Any]) -> BucketPlace:
    """Return the place in a `storage#storageLayout`. One of an unknown kind is local to no region: reads are billed."""
    location = str(layout["location"]).lower()
    if str(layout.get("locationType", "region")) == "region":
        return BucketPlace(location, frozenset({location}))
    chosen = layout.get("customPlacementConfig", {}).get("dataLocations", ())
    regions = frozenset(str(region).lower() for region in chosen)
    return BucketPlace(location, regions or _PAIRS.get(location, frozenset()))


def check_location(resource: Mapping[str, Any], region: str) -> None:
    """Raise Refused when the bucket is in another location."""
    location = str(resource["location"]).lower()
    if location != region.lower():
        raise Refused(
            f"bucket gs://{resource['name']} is in {location}, not in {region}",
            cause=Cause.BAD_SPEC,
            hint=f"name a bucket in {region}, or one that does not exist yet",
        )


def check_ours(resource: Mapping[str, Any]) -> None:
    """Raise Refused for a bucket that tpujob did not make: others may rely on its setup."""
    if not facts_of(resource).ours:
        raise Refused(
            f"bucket gs://{resource['name']} exists, and tpujob did not make it",
            cause=Cause.BAD_SPEC,
            hint="take another name, or use --adopt, which changes it to uniform access, no public access and no "
            "soft delete",
        )


def _rules(resource: Mapping[str, Any]) -> Sequence[Any]:
    return resource.get("lifecycle", {}).get("rule", ())


def _removes_logs(rule: Any) -> bool:
    condition = rule.get("condition", {})
    deletes = rule.get("action", {}).get("type") == "Delete"
    return deletes and condition == {"age": condition.get("age"), "matchesSuffix": [LOG_SUFFIX]}
