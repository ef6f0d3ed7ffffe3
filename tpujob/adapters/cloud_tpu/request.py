"""Builds the request for a slice: a queued resource with one node, or with several for a Multislice. Pure."""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tpujob.domain.model import Cause, Slice
from tpujob.errors import Refused
from tpujob.protocol import JOB_LABEL, LABEL, OWNER_LABEL, PRICING_LABEL

#: The keys that mark a slice as ours, in the labels of its nodes and in their metadata. Answers repeat the metadata of
#: a queued resource's node (axlearn reads it there); that they repeat the labels is inferred (live: marks-echoed).
MARKS = (LABEL, JOB_LABEL, OWNER_LABEL, PRICING_LABEL)

SSH_USER = "tpujob"

_ALL_APIS = "https://www.googleapis.com/auth/cloud-platform"  # IAM decides what the account may do


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of all slices of a backend. Empty: the project's default."""

    network: str = ""
    subnetwork: str = ""
    external_ips: bool = True  #: each is billed, and counts against a quota
    secure_boot: bool = False  #: hosts are Shielded VMs with Secure Boot
    tags: tuple[str, ...] = ()  #: for firewall rules
    service_account: str = ""  #: the e-mail address of the account that programs run as
    accounts: Mapping[str, str] = field(default_factory=dict[str, str])  #: by name of the user
    labels: Mapping[str, str] = field(default_factory=dict[str, str])  #: ours take precedence
    #: the reservation of slices with pricing `reserved`: its name, or the full name of another project's; empty: any
    reservation: str = ""
    wait: float | None = None  #: seconds that a request may wait in the queue; None: no bound


def queued_request(
    slice: Slice, options: Options, *, project: str, owner: str, job_id: str, public_key: str
) -> dict[str, Any]:
    """Return the request for a slice: the same for every try, so that the cloud recognises a repeat by `request_id`."""
    parent = f"projects/{project}/locations/{slice.zone}"
    node = _node(slice, options, public_key)
    marks = {LABEL: "1", JOB_LABEL: job_id, OWNER_LABEL: owner}
    if newer_fields(slice):
        marks[PRICING_LABEL] = slice.pricing
    node["labels"] = {**options.labels, **marks}
    node["metadata"] |= marks
    spec = {"parent": parent, **_node_names(slice), "node": node}
    resource = {**_pricing_fields(slice, options, project), "tpu": {"node_spec": [spec]}}
    if options.wait is not None:
        resource["queueing_policy"] = {"valid_until_duration": timedelta(seconds=options.wait)}
    return {
        "parent": parent,
        "queued_resource_id": slice.name,
        "queued_resource": resource,
        "request_id": request_id(f"{owner}/{job_id}/{parent}/{slice.name}"),
    }


def newer_fields(slice: Slice) -> dict[str, Any]:
    """Return the fields of a queued resource that Google's client library lacks, in JSON (v2alpha1); empty: none."""
    match slice.pricing:
        case "flex-start":
            limit = {"maxRunDuration": f"{slice.run_for or 0}s"}
            return {"provisioningModel": "FLEX_START", "runDuration": limit}
        case "calendar":
            return {"provisioningModel": "RESERVATION_BOUND"}
        case _:
            return {}


def node_ids(slice: Slice) -> tuple[str, ...]:
    """Return the ids of a slice's nodes, in the order in which their hosts are numbered."""
    if slice.tpu_slices == 1:
        return (slice.name,)
    return tuple(f"{slice.name}-{place}" for place in range(slice.tpu_slices))


#: the id of a node of a Multislice, after job, slice number and the job's suffix
_MULTISLICE_NODE = re.compile(r"(tj-[0-9]+-[0-9]+(?:-[0-9a-f]{8})?)-([0-9]{1,4})")


def slice_of(node_id: str) -> tuple[str, int]:
    """Return the name of the slice that a node belongs to, and the node's place in it: the inverse of `node_ids`."""
    match = _MULTISLICE_NODE.fullmatch(node_id)
    return (match[1], int(match[2])) if match else (node_id, 0)


def _node_names(slice: Slice) -> dict[str, Any]:
    """Return the fields that name the nodes. The API forms the ids of several nodes from a prefix."""
    if slice.tpu_slices == 1:
        return {"node_id": slice.name}
    several = {"node_count": slice.tpu_slices, "node_id_prefix": slice.name}
    return {"multislice_params": several}


def request_id(text: str) -> str:
    """Return a UUID that depends on the text alone."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, text))


def _node(slice: Slice, options: Options, public_key: str) -> dict[str, Any]:
    node: dict[str, Any] = {
        "accelerator_type": slice.type,
        "runtime_version": slice.system_image,
        "metadata": {
            "ssh-keys": f"{SSH_USER}:{public_key.strip()}",
            "block-project-ssh-keys": "TRUE",
            "enable-oslogin": "FALSE",  # else the key above is ignored
            "enable-guest-attributes": "TRUE",
        },
        "network_config": {
            "network": options.network,
            "subnetwork": options.subnetwork,
            "enable_external_ips": options.external_ips,
        },
        "tags": list(options.tags),
    }
    if options.service_account:
        node["service_account"] = {"email": options.service_account, "scope": [_ALL_APIS]}
    if options.secure_boot:
        node["shielded_instance_config"] = {"enable_secure_boot": True}
    return node


def _pricing_fields(slice: Slice, options: Options, project: str) -> dict[str, Any]:
    """Return the queued resource's fields for the pricing, as gcloud 528 sends them (recorded). The node has no such
    field: one with a `scheduling_config` is refused (axlearn, `tpu.py`: "it will break QRM").
    Raise Refused for a pricing without such fields."""
    if slice.pricing in ("on-demand", "flex-start"):
        return {}
    if slice.pricing == "spot":
        return {"spot": {}}
    if slice.pricing not in ("reserved", "calendar"):
        raise Refused(f"Cloud TPU has no slices that are {slice.pricing}", cause=Cause.BAD_SPEC)
    # "-" stands for any reservation of the project in the zone. As in gcloud, a full name may lack the zone:
    # projects/P/reservations/R
    named = slice.reservation or options.reservation or "-"
    owner, _, name = named.rpartition("/reservations/")
    owner = owner or f"projects/{project}"
    owner = owner if "/locations/" in owner else f"{owner}/locations/{slice.zone}"
    return {"reservation_name": f"{owner}/reservations/{name}"}
