"""The checks of the API before it acts on a request, with the error texts of the real API."""

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.emulator.cloud.errors import quota_units
from tpujob.emulator.cloud.records import ApiError, NodeSpec, Queued, id_of, invalid
from tpujob.emulator.cloud.world import World

#: the versions that a zone lists: the usual version of each generation, and one version of each family
RUNTIME_VERSIONS = tuple(
    dict.fromkeys(
        (
            *(g.system_image for g in accelerators.GENERATIONS.values()),
            "tpu-vm-base",
            "tpu-vm-tf-2.17.0-pjrt",
            "tpu-vm-tf-2.17.0-pod-pjrt",
            "tpu-vm-pt-2.0",
            "tpu-vm-v4-base",
            "tpu-vm-v4-pt-2.0",
            "tpu-vm-cos-109",
        )
    )
)
#: the families of versions; new numbers appear, so any number is accepted
_RUNTIME = re.compile(
    r"v2-alpha|v2-alpha-[-a-z0-9.]+|v2-nightly[-a-z0-9.]*"
    r"|tpu-vm-base|tpu-ubuntu[0-9]{4}-base|tpu-vm-(tf|pt|v4|cos)-[-a-z0-9.]+"
)
_RESERVATION = re.compile(
    r"(projects|folders|organizations)/[^/]+(/locations/(?P<zone>[^/]+))?/reservations/[^/]+"
)

#: the collection of each kind of resource that a request may name
COLLECTIONS: Mapping[str, str] = MappingProxyType(
    {
        "network": "networks",
        "subnetwork": "subnetworks",
        "service-account": "serviceAccounts",
        "reservation": "reservations",
        "disk": "disks",
    }
)
#: resources of every project: the default network, the default account (`emulated-vm` in the hosts' metadata), and `-`,
#: for any reservation
_ALWAYS = re.compile(
    r"networks/default|subnetworks/default|reservations/-"
    r"|serviceAccounts/(default|[0-9]+-compute@developer\.gserviceaccount\.com"
    r"|emulated-vm@[^@]+\.iam\.gserviceaccount\.com)"
)

_ID = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def check_zone(world: World, zone: str) -> None:
    if zone not in world.stock.hosts:
        raise ApiError(
            "PERMISSION_DENIED", f"Location {zone} is not found or access is unauthorized."
        )


def check_id(id: str) -> None:
    if not _ID.fullmatch(id):
        raise invalid(
            f'Cloud TPU received a bad request. the name "{id[:80]}" is invalid: it must start with a '
            "lowercase letter followed by up to 62 lowercase letters, numbers, or hyphens"
        )


def check_spec(world: World, zone: str, spec: NodeSpec) -> None:
    """Raise ApiError unless the zone offers the type and the runtime version, the version fits the generation, labels
    are valid, and the resources that the node uses exist."""
    if spec.type not in world.stock.types(zone) or _for_other_generation(spec):
        raise invalid(
            f'CloudTpu received an invalid AcceleratorType, "{spec.type}" for zone "{zone}" and '
            f'version "{spec.runtime_version}".'
        )
    if not _RUNTIME.fullmatch(spec.runtime_version):
        raise invalid(
            f'Cloud TPU received a bad request. the runtime version "{spec.runtime_version}" '
            f"is not available in the zone {zone}"
        )
    for key, value in spec.labels.items():
        if not (_is_label(key) and _is_label(value) and key[:1].isalpha()):
            raise invalid(
                f'Cloud TPU received a bad request. the label "{key[:80]}: {value[:80]}" is invalid: it may have '
                "lowercase letters, numbers, underscores and dashes, 63 of them"
            )
    check_uses(world, spec.uses)


def check_uses(world: World, uses: Iterable[str]) -> None:
    """Raise ApiError for a missing resource, compared by collection and last part of the name. A network has a
    subnetwork of the same name, as in auto mode. Code and text are Compute Engine's, as Cloud TPU documents none."""
    for name in uses:
        of_network = name.replace("subnetworks/", "networks/", 1)
        if not (_ALWAYS.fullmatch(name) or {name, of_network} & world.named):
            raise ApiError("NOT_FOUND", f"The resource '{name[:200]}' was not found")


def _is_label(text: str) -> bool:
    return len(text) <= 63 and all(
        letter in "-_" or (letter.isalnum() and not letter.isupper()) for letter in text
    )


def _for_other_generation(spec: NodeSpec) -> bool:
    """Return whether the runtime version is usual for exactly one generation, and not for the type's."""
    usual = {
        g.name for g in accelerators.GENERATIONS.values() if g.system_image == spec.runtime_version
    }
    return len(usual) == 1 and accelerators.find(spec.type).generation not in usual


def check_reservation(world: World, zone: str, name: str) -> None:
    """Raise ApiError for a name of an invalid form, of another zone, or without a reservation."""
    match = _RESERVATION.fullmatch(name)
    if name and (match is None or match["zone"] not in (None, zone)):
        raise invalid(
            f'Cloud TPU received a bad request. the reservation name "{name[:200]}" is invalid: it must '
            f"be projects/PROJECT/locations/{zone}/reservations/RESERVATION"
        )
    if name:
        check_uses(world, [f"reservations/{id_of(name)}"])


def check_quota(world: World, zone: str, specs: Sequence[NodeSpec]) -> None:
    """Raise ApiError if all existing requests, in any state, plus these specs exceed the limit."""
    generation = accelerators.find(specs[0].type).generation
    pricing = find_pricing(specs[0].pricing).quota
    quota = world.faults.quotas.get((zone, generation, pricing))
    if quota is None:
        return
    used = quota_used(world, zone, generation, pricing)
    if used + sum(quota_units(spec.type) for spec in specs) > quota.limit:
        raise ApiError("RESOURCE_EXHAUSTED", quota.text())


def quota_used(world: World, zone: str, generation: str, pricing: str) -> int:
    """Return the quota in use; suspended, failed and preempted resources count until they are deleted."""
    specs = [s for q in world.queued.values() if q.zone == zone for _, s in q.specs]
    specs += [n.spec for n in world.nodes.values() if n.zone == zone and not n.queued]
    return sum(
        quota_units(spec.type)
        for spec in specs
        if find_pricing(spec.pricing).quota == pricing
        and accelerators.find(spec.type).generation == generation
    )


def unsupported_model(queued: Queued) -> ApiError | None:
    """Return why the zone does not offer a type with the provisioning model; None: it does. The text is a real one."""
    spec, model = queued.specs[0][1], queued.newer.model
    offered = find_pricing(spec.pricing).generations
    if not offered or accelerators.find(spec.type).generation in offered:
        return None
    return invalid(
        f'{model} provisioning model is not supported for accelerator type "{spec.type}" in location "{queued.zone}"'
    )


def already_exists(name: str) -> ApiError:
    return ApiError("ALREADY_EXISTS", f"Resource '{name}' already exists")
