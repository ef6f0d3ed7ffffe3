"""Reads the quotas of Cloud TPU from the Service Usage API, and counts how much of them is held.

Names seen in public: `tpu.googleapis.com/tpu-v5s-litepod-preemptible`, `.../tpu-v5s-litepod-serving`,
`.../tpu-v6e`, `.../tpu-v4s-preemptible`, `TPUV4sPreemptiblePodPerProjectPerZoneForTPUAPI`. Other names are inferred
from these (live: quota-names). So names are parsed by their parts, and a quota with an unknown name has no kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from tpujob.adapters.cloud_tpu import count_usage
from tpujob.adapters.google import identity as google_identity
from tpujob.adapters.google.rest import GoogleRest, object_in, objects
from tpujob.doctor import quota
from tpujob.doctor.access import NoIdentity
from tpujob.doctor.findings import NotSeen
from tpujob.doctor.quota import unit_of
from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Cause
from tpujob.errors import LOGIN, Refused, Transient
from tpujob.ports import ONE_HOST, Limit, QuotaKind, QuotaUse, Scope, Unit

SERVICE = "tpu.googleapis.com"
NO_LIMIT = -1
#: seconds for counting what is held in all zones
COUNT_PATIENCE = 30.0

#: spellings of generations in names of quotas, longest first: `v5slitepod`, `v5litepod`, `v4s`, `v4`, `v5p`
_SPELLINGS = sorted(
    (
        (spelling, row)
        for row in accelerators.GENERATIONS.values()
        for spelling in {
            row.name,
            row.quota_name.lower(),
            row.quota_name.lower().replace("s", "", 1),
        }
    ),
    key=lambda pair: -len(pair[0]),
)


class GoogleQuota:
    """Implements `ports.ProjectQuota`, with the credentials of this process."""

    complete = False

    def __init__(self, project: str, *, endpoint: str = "", tpu_endpoint: str = "") -> None:
        """`endpoint`, `tpu_endpoint`: of emulators."""
        self._project, self._endpoint, self._tpu_endpoint = project, endpoint, tpu_endpoint

    def limits(self) -> list[Limit]:
        google = GoogleRest(self._project, _credentials(self._endpoint), endpoint=self._endpoint)
        with closing(google):
            return limits(google, self._project)

    def use(self, zones: Sequence[str]) -> QuotaUse:
        return count_usage(
            self._project, zones, timeout=COUNT_PATIENCE, endpoint=self._tpu_endpoint
        )


def limits(google: GoogleRest, project: str) -> list[Limit]:
    """Return every quota of Cloud TPU. Raises as `GoogleRest.get` does."""
    path = f"v1beta1/projects/{project}/services/{SERVICE}/consumerQuotaMetrics"
    metrics = google.pages(
        "serviceusage.googleapis.com",
        path,
        "metrics",
        takes=quota.LIMITS_TAKE,
        view="FULL",
        pageSize="200",
    )
    return [limit for metric in metrics for limit in _limits_of_metric(metric)]


def kind_of_metric(metric: str) -> QuotaKind | None:
    """Return the generation and pricing that a quota is for; None: not in the table of generations."""
    name = metric.rpartition("/")[2].lower()
    compact = re.sub("[^a-z0-9]|preemptible|reserved|spot", "", name)
    row = next((row for spelling, row in _SPELLINGS if f"tpu{spelling}" in compact), None)
    if row is None:
        return None
    pricing = "reserved" if "reserved" in name else "on-demand"
    if re.search("preemptible|spot", name):
        pricing = "spot"
    one_host = row.one_host_quota == "serving" and "serving" in name
    one_host = one_host or (row.one_host_quota == "device" and "pod" not in name)
    return QuotaKind(row.name, pricing, ONE_HOST if one_host else "")


def _credentials(endpoint: str) -> Any:
    if endpoint:
        return None
    credentials, identity = google_identity.find()
    if isinstance(identity, NoIdentity):
        raise Refused(identity.why, cause=Cause.PERMISSION, hint=LOGIN)
    if isinstance(identity, NotSeen):
        raise Transient(identity.why, hint=identity.cure)
    return credentials


def _limits_of_metric(metric: Mapping[str, Any]) -> list[Limit]:
    name = str(metric.get("metric", ""))
    kind = kind_of_metric(name)
    unit = _unit(kind, str(metric.get("displayName", "")))
    parsed: list[Limit] = []
    for limit in objects(metric, "consumerQuotaLimits"):
        scope = _scope(str(limit.get("unit", "")))
        places = frozenset(map(str, limit.get("supportedLocations") or ()))
        for bucket in objects(limit, "quotaBuckets"):
            dimensions = object_in(bucket, "dimensions")
            if set(dimensions) - {scope}:
                continue  # for a part of a place, such as one kind of user
            # the answer leaves out a 0
            amount = int(bucket.get("effectiveLimit", 0))
            allowed = None if amount == NO_LIMIT else amount
            parsed.append(
                Limit(name, kind, scope, str(dimensions.get(scope, "")), allowed, unit, places)
            )
    return parsed


def _scope(unit: str) -> Scope:
    """Return the scope in a unit such as `1/{project}/{zone}`, which has these braces in it."""
    return "zone" if "{zone}" in unit else "region" if "{region}" in unit else "project"


def _unit(kind: QuotaKind | None, display: str) -> Unit:
    """Return the unit in the quota's display name, else the unit of its generation."""
    match = re.search(r"\b(core|chip)s?\b", display.lower())
    if match:
        return "cores" if match[1] == "core" else "chips"
    return unit_of(kind.generation) if kind else ""
