"""The quotas of Cloud TPU from the Service Usage API, and what is held of them.

Names seen in public: `tpu.googleapis.com/tpu-v5s-litepod-preemptible`, `.../tpu-v5s-litepod-serving`,
`.../tpu-v6e`, `.../tpu-v4s-preemptible`, `TPUV4sPreemptiblePodPerProjectPerZoneForTPUAPI`. Other names are inferred
from these (live: quota-names), so names are read by their parts, and an unknown name is kept as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tpujob.adapters.cloud_tpu import Usage, count_usage
from tpujob.adapters.google import identity as google_identity
from tpujob.adapters.google.rest import GoogleRest, part, parts
from tpujob.doctor import quota
from tpujob.doctor.access import NoIdentity
from tpujob.doctor.findings import NotSeen, listed
from tpujob.doctor.quota import (
    ONE_HOST,
    Limit,
    QuotaKind,
    QuotaOverview,
    Scope,
    Unit,
    allowances,
    unit_of,
)
from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Cause
from tpujob.errors import LOGIN, Refused, Transient

if TYPE_CHECKING:
    from tpujob.config.context import Context

SERVICE = "tpu.googleapis.com"
NO_LIMIT = -1
#: seconds for counting what is held, in all zones together
COUNT_PATIENCE = 30.0

#: generations by their spellings in names of quotas, longest first: `v5slitepod`, `v5litepod`, `v4s`, `v4`, `v5p`
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


def overview(
    context: Context,
    *,
    everywhere: bool = False,
    endpoint: str = "",
    tpu_endpoint: str = "",
) -> QuotaOverview:
    """Limits, use and grants in the zones of a context, or `everywhere`. Raises Refused or Transient when the limits
    cannot be read; other failures become notes. `endpoint`, `tpu_endpoint`: those of emulators."""
    zones = accelerators.all_zones() if everywhere else context.every_zone
    google = GoogleRest(context.project, _credentials(endpoint), endpoint=endpoint)
    try:
        found = limits(google, context.project)
        counted = count_usage(context.project, zones, timeout=COUNT_PATIENCE, endpoint=tpu_endpoint)
    finally:
        google.close()
    return QuotaOverview(
        of=context.project,
        rows=allowances(
            found, zones, held=counted.held, grants=context.grants, closed=counted.closed
        ),
        others=[one for one in found if one.kind is None],
        notes=_not_counted(counted),
    )


def limits(google: GoogleRest, project: str) -> list[Limit]:
    """Every quota of Cloud TPU. Raises as `GoogleRest.get` does."""
    path = f"v1beta1/projects/{project}/services/{SERVICE}/consumerQuotaMetrics"
    found = google.pages(
        "serviceusage.googleapis.com",
        path,
        "metrics",
        takes=quota.LIMITS_TAKE,
        view="FULL",
        pageSize="200",
    )
    return [limit for metric in found for limit in _of_metric(metric)]


def kind_of_metric(metric: str) -> QuotaKind | None:
    """The generation and pricing that a quota is for; None: not in the table of generations."""
    name = metric.rpartition("/")[2].lower()
    squeezed = re.sub("[^a-z0-9]|preemptible|reserved|spot", "", name)
    row = next((row for spelling, row in _SPELLINGS if f"tpu{spelling}" in squeezed), None)
    if row is None:
        return None
    pricing = "reserved" if "reserved" in name else "on-demand"
    if re.search("preemptible|spot", name):
        pricing = "spot"
    one_host = row.one_host_quota == "serving" and "serving" in name
    one_host = one_host or (row.one_host_quota == "device" and "pod" not in name)
    return QuotaKind(row.name, pricing, ONE_HOST if one_host else "")


def _not_counted(counted: Usage) -> list[str]:
    """One note for all zones: most projects cannot use most zones, for the same reason."""
    if not counted.closed:
        return []
    first = next(iter(counted.closed.values()))
    return [f"what is held in {listed(counted.closed)}: {first.why}"]


def _credentials(endpoint: str) -> Any:
    if endpoint:
        return None
    credentials, identity = google_identity.find()
    if isinstance(identity, NoIdentity):
        raise Refused(identity.why, cause=Cause.PERMISSION, hint=LOGIN)
    if isinstance(identity, NotSeen):
        raise Transient(identity.why, hint=identity.cure)
    return credentials


def _of_metric(metric: Mapping[str, Any]) -> list[Limit]:
    name = str(metric.get("metric", ""))
    kind = kind_of_metric(name)
    unit = _unit(kind, str(metric.get("displayName", "")))
    found: list[Limit] = []
    for limit in parts(metric, "consumerQuotaLimits"):
        scope = _scope(str(limit.get("unit", "")))
        places = frozenset(map(str, limit.get("supportedLocations") or ()))
        for bucket in parts(limit, "quotaBuckets"):
            dimensions = part(bucket, "dimensions")
            if set(dimensions) - {scope}:
                continue  # narrower than a place, as for one kind of user
            # JSON leaves a 0 out
            amount = int(bucket.get("effectiveLimit", 0))
            allowed = None if amount == NO_LIMIT else amount
            found.append(
                Limit(name, kind, scope, str(dimensions.get(scope, "")), allowed, unit, places)
            )
    return found


def _scope(unit: str) -> Scope:
    """Return the scope in a unit such as `1/{project}/{zone}`, where the braces are part of the text."""
    return "zone" if "{zone}" in unit else "region" if "{region}" in unit else "project"


def _unit(kind: QuotaKind | None, display: str) -> Unit:
    """Return the unit in the display name, else that of the generation."""
    match = re.search(r"\b(core|chip)s?\b", display.lower())
    if match:
        return "cores" if match[1] == "core" else "chips"
    return unit_of(kind.generation) if kind else ""
