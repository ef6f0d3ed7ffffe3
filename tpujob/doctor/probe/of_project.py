"""Probes of the project beside Cloud TPU: permissions, the names of quotas, and what a quota counts."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tpujob.doctor.access import TPU_PERMISSIONS
from tpujob.doctor.probe.cloud import Answer
from tpujob.doctor.probe.probing import Probing
from tpujob.doctor.probe.verdicts import Judged, UntriedError, judged
from tpujob.doctor.quota import unit_of
from tpujob.domain.hardware import accelerators

MANAGER = "cloudresourcemanager.googleapis.com"
USAGE = "serviceusage.googleapis.com"
MONITORING = "monitoring.googleapis.com"
TPU = "tpu.googleapis.com"
#: a permission of queued resources, if they had any of their own
OWN_PERMISSION = "tpu.queuedResources.create"
#: seconds back in time that a figure of use is looked for
LOOK_BACK = 25 * 3600.0


def reads(probing: Probing) -> Judged:
    """The questions of `tpujob doctor`, as this account may ask them."""
    project = probing.project
    names = [f"projects/{project}/services/{TPU}"]
    answers = [
        probing.rest(MANAGER, f"v3/projects/{project}"),
        probing.rest(USAGE, f"v1/projects/{project}/services:batchGet", names=names[0]),
        _quotas(probing),
    ]
    return judge_reads(answers)


def judge_reads(answers: list[Answer]) -> Judged:
    refused = [f"{one.doing}: {one.said}" for one in answers if not one.ok]
    if refused and all(one.code == "UNAVAILABLE" for one in answers):
        raise UntriedError(refused[0])
    return judged(
        "the project by its id, the state of an API and the quotas can be read",
        "; ".join(refused) or f"all {len(answers)} were answered",
        as_expected=not refused,
    )


def permissions(probing: Probing) -> Judged:
    of = f"v3/projects/{probing.project}:testIamPermissions"
    known = probing.rest(MANAGER, of, {"permissions": list(TPU_PERMISSIONS)})
    if not known.ok:
        raise UntriedError(known.said)
    return judge_permissions(known, probing.rest(MANAGER, of, {"permissions": [OWN_PERMISSION]}))


def judge_permissions(known: Answer, own: Answer) -> Judged:
    """`own`: the answer to a permission that tpujob believes not to exist."""
    lacking = sorted(set(TPU_PERMISSIONS) - set(known.body.get("permissions", ())))
    seen = "this account has all of them" if not lacking else f"it lacks {', '.join(lacking)}"
    asked = own.said if not own.ok else f"granted: {own.body.get('permissions', [])}"
    return judged(
        f"the permissions of nodes are known to the project; {OWN_PERMISSION} is refused as unknown",
        f"{seen}; {OWN_PERMISSION}: {asked}",
        as_expected=own.code == "HTTP 400" and not lacking,
    )


def quota_names(probing: Probing) -> Judged:
    answer = _quotas(probing)
    if not answer.ok:
        raise UntriedError(answer.said)
    names = _metrics(answer)
    while answer.ok and (token := str(answer.body.get("nextPageToken", ""))):
        answer = _quotas(probing, pageToken=token)
        names += _metrics(answer)
    return judge_names(names, probing.cloud.quota_kinds(names), probing.choice.type)


def judge_names(names: list[str], read_as: Mapping[str, str], type: str) -> Judged:
    """`read_as`: the generation that each name is read as; empty: none."""
    generation = accelerators.find(type).generation
    ours = [name for name in names if "tpu" in name.rpartition("/")[2].lower()]
    odd = sorted(name.rpartition("/")[2] for name in ours if not read_as.get(name))
    found = generation in read_as.values()
    seen = f"{len(ours)} names of TPUs" + (f", not understood: {', '.join(odd)}" if odd else "")
    return judged(
        f"every name of a TPU quota is understood, and one is of {generation}",
        seen if found else f"{seen}; none of {generation}",
        as_expected=found and not odd,
    )


def usage_before(probing: Probing) -> Judged:
    """What Cloud Monitoring says is in use, before there is a slice."""
    figures = figures_of_use(probing)
    probing.usage_before = figures
    return judged(
        "Cloud Monitoring has a figure of use from the last 25 h",
        f"{len(figures)} figures of TPU quotas",
        as_expected=bool(figures),
    )


def usage_held(probing: Probing) -> Judged:
    """The same while the slice is held."""
    if probing.usage_before is None:
        raise UntriedError("there are no figures from before")
    probing.insist_on_slice()
    held = figures_of_use(probing)
    try:
        return judge_usage(probing.usage_before, held, probing.choice.type)
    except UntriedError as late:
        at = _rfc3339(probing.clock.now())
        raise UntriedError(f"{late}; tomorrow Cloud Monitoring has the one of {at}") from late


def usage_waiting(probing: Probing) -> Judged:
    """The same while the request was in the queue."""
    if probing.usage_before is None or probing.usage_waiting is None:
        raise UntriedError("there are no figures from before, or the request did not wait")
    return judge_usage(probing.usage_before, probing.usage_waiting, probing.choice.type)


def judge_usage(before: Mapping[str, int], held: Mapping[str, int], type: str) -> Judged:
    """Raises UntriedError while the figures are those of before: they may be hours late."""
    grown = {name: n - before.get(name, 0) for name, n in held.items() if n > before.get(name, 0)}
    if not grown:
        raise UntriedError("the figures have not changed yet: they may be hours late")
    found = accelerators.find(type)
    expected = found.cores if unit_of(found.generation) == "cores" else found.chips
    said = ", ".join(f"{name} by {by}" for name, by in sorted(grown.items()))
    return judged(
        f"a quota of {found.generation} grows by {expected} for {type}",
        said,
        as_expected=expected in grown.values(),
    )


def _quotas(probing: Probing, **page: str) -> Answer:
    path = f"v1beta1/projects/{probing.project}/services/{TPU}/consumerQuotaMetrics"
    return probing.rest(USAGE, path, None, view="FULL", pageSize="200", **page)


def _metrics(answer: Answer) -> list[str]:
    return [str(one.get("metric", "")) for one in answer.body.get("metrics", ())]


def figures_of_use(probing: Probing) -> dict[str, int]:
    """The newest figure of each quota, by its name and place. Raises UntriedError."""
    now = probing.clock.now()
    interval = {"interval.startTime": _rfc3339(now - LOOK_BACK), "interval.endTime": _rfc3339(now)}
    answer = probing.rest(
        MONITORING,
        f"v3/projects/{probing.project}/timeSeries",
        None,
        filter=(
            'metric.type="serviceruntime.googleapis.com/quota/allocation/usage" AND '
            f'resource.type="consumer_quota" AND resource.labels.service="{TPU}"'
        ),
        **interval,
    )
    if not answer.ok:
        raise UntriedError(answer.said)
    return dict(map(_figure, answer.body.get("timeSeries", ())))


def _figure(series: Mapping[str, Any]) -> tuple[str, int]:
    labels = {**series.get("resource", {}).get("labels", {}), **series["metric"].get("labels", {})}
    points: list[Any] = list(series.get("points") or [{}])
    value: Mapping[str, Any] = points[0].get("value", {})
    name = (
        f"{str(labels.get('quota_metric', '')).rpartition('/')[2]} in {labels.get('location', '')}"
    )
    return name, int(float(value.get("int64Value", value.get("doubleValue", 0))))


def _rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
