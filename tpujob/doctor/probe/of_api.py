"""Probes that need no slice: what the Cloud TPU API lists, and in which words it refuses."""

from collections.abc import Sequence

from tpujob.doctor.probe.cloud import ZONE_CLOSED, Answer
from tpujob.doctor.probe.probing import Probing
from tpujob.doctor.probe.verdicts import Judged, judged
from tpujob.domain.model import Cause

#: a zone that no project has, and a type that no zone has
NO_ZONE, NO_TYPE = "us-central9-z", "v2-7"
LISTS = ("list_nodes", "list_queued_resources")


def list_zone(probing: Probing) -> Judged:
    return _listed(probing, probing.parent)


def list_everywhere(probing: Probing) -> Judged:
    return _listed(probing, probing.cloud.parent("-"))


def _listed(probing: Probing, parent: str) -> Judged:
    pages = [page for method in LISTS for page in probing.pages(method, {"parent": parent})]
    return judge_lists(pages)


def judge_lists(answers: Sequence[Answer]) -> Judged:
    refused = [one.said for one in answers if not one.ok]
    unreachable = [str(z) for one in answers for z in one.body.get("unreachable", ())]
    found = sum(len(one.body.get(f, ())) for one in answers for f in ("nodes", "queuedResources"))
    seen = f"{found} nodes and queued resources"
    if unreachable:
        seen += f"; unreachable: {', '.join(unreachable)}"
    return judged(
        "both lists answer, and reach every zone",
        refused[0] if refused else seen,
        as_expected=not refused and not unreachable,
    )


def catalog(probing: Probing) -> Judged:
    choice, asked = probing.choice, {"parent": probing.parent}
    types = probing.pages("list_accelerator_types", asked)
    runtimes = probing.pages("list_runtime_versions", asked)
    return judge_catalog(choice.type, choice.runtime_version, types, runtimes)


def judge_catalog(
    type: str, runtime: str, types: Sequence[Answer], runtimes: Sequence[Answer]
) -> Judged:
    refused = [one.said for one in (*types, *runtimes) if not one.ok]
    named = [_ids(types, "acceleratorTypes"), _ids(runtimes, "runtimeVersions")]
    lacking = [n for n, listed in zip((type, runtime), named, strict=True) if n not in listed]
    seen = f"{len(named[0])} types, {len(named[1])} runtimes"
    if lacking:
        seen += f", without {' and '.join(lacking)}"
    return judged(
        f"{type} and its runtime {runtime} are listed",
        refused[0] if refused else seen,
        as_expected=not refused and not lacking,
    )


def unknown_type(probing: Probing) -> Judged:
    return judge_refusal(_ask(probing, probing.choice.zone, NO_TYPE), Cause.BAD_SPEC)


def closed_zone(probing: Probing) -> Judged:
    return judge_refusal(_ask(probing, NO_ZONE, probing.choice.type), ZONE_CLOSED)


def judge_refusal(answer: Answer, read_as: str) -> Judged:
    expected = f"refused, and read as {read_as}"
    if answer.ok:
        return judged(expected, "accepted", as_expected=False)
    seen = f"{answer.said} (read as {answer.read_as})"
    return judged(expected, seen, as_expected=answer.read_as == read_as)


def _ask(probing: Probing, zone: str, type: str) -> Answer:
    """A request that costs nothing even if it is accepted: it is deleted at the end of the run."""
    return probing.ask_for(probing.refused_name, zone, type)


def _ids(pages: Sequence[Answer], field: str) -> list[str]:
    found = [one for page in pages for one in page.body.get(field, ())]
    return [str(one["name"]).rpartition("/")[2] for one in found]
