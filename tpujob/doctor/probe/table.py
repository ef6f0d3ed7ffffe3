"""Every probe, in the order in which they are tried, and what in tpujob each of them settles.

A comment or docstring that calls something *inferred* names the probe that would settle it: `probe: ID`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tpujob.doctor.probe import of_api, of_host, of_loss, of_project, of_slice
from tpujob.doctor.probe.probing import Probing
from tpujob.doctor.probe.verdicts import Judged
from tpujob.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Probe:
    """Its function raises UntriedError when it cannot be tried."""

    id: str
    look: Callable[[Probing], Judged]
    settles: tuple[str, ...]  #: each a sentence without a full stop
    asked_for: bool = (
        False  #: tried only when it is named, as it may leave something that only Google can remove
    )
    slices: int = 1  #: TPU slices that it holds at once, at most


PROBES: tuple[Probe, ...] = (
    # free
    Probe(
        "reads",
        of_project.reads,
        (
            "a viewer may read what doctor asks",
            "APIs are asked for by the project's id as well as by its number",
        ),
    ),
    Probe(
        "permissions",
        of_project.permissions,
        (
            "`tpu.nodes.*` covers queued resources, which have no permissions of their own",
            "every project has the permissions that doctor asks for",
        ),
    ),
    Probe(
        "quota-names",
        of_project.quota_names,
        ("the generation and the pricing of a quota can be read from its name",),
    ),
    Probe(
        "usage-before",
        of_project.usage_before,
        ("Cloud Monitoring has a figure of the use of a quota every day",),
    ),
    Probe("list-zone", of_api.list_zone, ("both lists of a zone are complete",)),
    Probe("list-everywhere", of_api.list_everywhere, ("both lists take `locations/-`",)),
    Probe(
        "catalog",
        of_api.catalog,
        ("the tables of types, zones and runtimes are right for this zone",),
    ),
    Probe("unknown-type", of_api.unknown_type, ("the text of an unknown type is BAD_SPEC",)),
    Probe("closed-zone", of_api.closed_zone, ("the text of a closed zone is read as one",)),
    # one slice
    Probe(
        "create",
        of_slice.create,
        ("the states of a request and of its node, their order, and how long each takes",),
    ),
    Probe(
        "name-taken",
        of_slice.name_taken,
        ("a second request of the same name is refused at once",),
    ),
    Probe(
        "create-operation",
        of_slice.create_operation,
        ("an operation may end in ALREADY_EXISTS although its request took effect",),
    ),
    Probe(
        "marks-echoed",
        of_slice.marks_echoed,
        ("answers repeat the labels and the metadata of a queued resource's node",),
    ),
    Probe(
        "node-fields",
        of_slice.node_fields,
        ("a node says which queued resource it is of, and its pricing",),
    ),
    Probe(
        "wait-bound",
        of_slice.wait_bound,
        ("a bound on the wait is sent as a duration and answered as a time",),
    ),
    Probe(
        "usage-waiting",
        of_project.usage_waiting,
        ("a request that waits in the queue holds quota",),
    ),
    Probe(
        "usage-held",
        of_project.usage_held,
        (
            "what a quota counts: cores of v2 and v3, chips of v5e and v6e",
            "v5e slices of one host count as serving",
        ),
    ),
    Probe(
        "guest-attributes",
        of_host.guest_attributes,
        ("TPU images publish their host keys and the name of their machine",),
    ),
    Probe("ssh", of_host.ssh, ("hosts show the published key; how long the first login takes",)),
    Probe("image", of_host.image, ("what a TPU VM has: Python, sudo, tools, package locks",)),
    Probe("metadata", of_host.metadata, ("what the metadata server of a TPU VM tells",)),
    Probe("preflight", of_host.preflight, ("how long the agent and its check take",)),
    Probe("storage", of_host.storage, ("uploads of the agent, and how it renews its token",)),
    Probe("notices", of_host.notices, ("the metadata server can be asked once a second",)),
    # its end
    Probe(
        "delete-unforced",
        of_slice.delete_unforced,
        ("a request that has a node needs force",),
    ),
    Probe(
        "delete-forced",
        of_slice.delete_forced,
        ("the states on the way out, and how soon the lists agree",),
    ),
    Probe("name-reused", of_slice.name_reused, ("a name is free once its slice is gone",)),
    Probe(
        "lost-node",
        of_loss.lost_node,
        (
            "one lost node suspends a request for several",
            "a request that is forced to end in SUSPENDING stays DELETING",
        ),
        asked_for=True,
        slices=2,
    ),
)
IDS = frozenset(probe.id for probe in PROBES)


def chosen(also: Sequence[str]) -> tuple[Probe, ...]:
    """Those that are always tried, and those of that name. Raises BadRequest."""
    extra = [probe.id for probe in PROBES if probe.asked_for]
    for name in also:
        if name not in extra:
            raise BadRequest(f"{name} is no probe that can be added", hint=f"--also {extra[0]}")
    return tuple(probe for probe in PROBES if not probe.asked_for or probe.id in also)
