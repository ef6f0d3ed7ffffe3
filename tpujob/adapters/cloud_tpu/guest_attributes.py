"""The guest attributes of a slice's hosts, in which they publish their SSH host keys; why a host may refuse our key.

When a host boots, its guest agent writes its SSH host keys and its machine's name into guest attributes. The metadata
must have `enable-guest-attributes` TRUE. That TPU images do this is not documented, but
`gcloud compute tpus tpu-vm ssh` relies on it. (Read in the Cloud SDK: keys `ssh-ed25519` and `hostname`, a list in the
order of the hosts.)
"""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import logging
from typing import Any

from tpujob.adapters.calling import Missing
from tpujob.adapters.cloud_tpu.calls import Api
from tpujob.adapters.cloud_tpu.request import node_ids
from tpujob.domain.model import Cause, Slice
from tpujob.errors import Refused
from tpujob.lib.tries import Deadline
from tpujob.ports import PublishedHost

_log = logging.getLogger(__name__)

#: types of host keys that we use
KEY_TYPES = frozenset(
    {"ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa"}
)


class GuestAttributes:
    """Implements `ports.Guests` with guest attributes and metadata. Thread-safe."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def look(self, slice: Slice, timeout: float) -> tuple[PublishedHost, ...]:
        """Return an item for each host, in order; the item of a host that has published nothing is empty. Empty when
        the project does not allow the call: then host keys are pinned at the first contact. Raises Transient."""
        deadline, hosts = Deadline(timeout), list[PublishedHost]()
        for id in node_ids(slice):
            request = {"name": self._api.node(slice.zone, id)}
            doing = f"reading the guest attributes of {id}"
            try:
                answer = self._api.call("get_guest_attributes", request, deadline, doing)
                hosts += [_published_host(attributes) for attributes in answer.guest_attributes]
            except Refused as refused:
                if refused.cause == Cause.PERMISSION:
                    _log.warning("%s; host keys are pinned at the first contact", refused.message)
                    return ()
                # Google refuses the call while a node has no attributes: their value "was not found"
                hosts += [PublishedHost()] * (len(slice.endpoints) // slice.tpu_slices)
        return tuple(hosts)

    def obstacle(self, slice: Slice, timeout: float) -> str:
        """Return why the nodes' metadata makes the hosts refuse our key; empty: no reason found. Raises Transient."""
        deadline = Deadline(timeout)
        for id in node_ids(slice):
            request = {"name": self._api.node(slice.zone, id)}
            doing = f"finding out why {id} refuses the key"
            try:
                node = self._api.call("get_node", request, deadline, doing)
            except Missing:
                continue
            if node.metadata.get("enable-oslogin", "").upper() == "TRUE":
                return f"the metadata of {id} has enable-oslogin=TRUE, so its ssh-keys are ignored"
            if not node.metadata.get("ssh-keys"):
                return f"the metadata of {id} no longer has ssh-keys"
        return ""


def _published_host(attributes: Any) -> PublishedHost:
    items = [(item.key, item.value) for item in attributes.query_value.items]
    name = next((value for key, value in items if key == "hostname"), "")
    keys = frozenset((key, value) for key, value in items if key in KEY_TYPES and value)
    return PublishedHost(name, keys)
