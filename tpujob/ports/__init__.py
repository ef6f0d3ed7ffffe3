"""The ports: everything that touches the world, as the smallest protocol that serves its caller.

A call with a `timeout`, in seconds, returns or raises by then. Adapters never raise a vendor's own error, but errors of
`errors.py`: mostly `Transient` (may succeed later; nothing is known) or `Refused` (a definite refusal).
"""

from tpujob.ports.backend import Clock, Ports
from tpujob.ports.hardware import Hosts, Listening, Owned, Slices, SliceSurvey
from tpujob.ports.people import KeptSecret, Members, Outbox, Reputation, Secrets, Sink
from tpujob.ports.providers import Catalog, Guests, Provider, PublishedHost
from tpujob.ports.quota import ONE_HOST, Held, Limit, ProjectQuota, QuotaKind, QuotaUse, Scope, Unit
from tpujob.ports.routing import Providers, side_by_side, types_in
from tpujob.ports.storage import (
    Blob,
    Blobs,
    BucketFacts,
    BucketPlace,
    Comparison,
    Copies,
    StorageToken,
    TokenLender,
)
from tpujob.ports.store import EventKey, Lease, Store, Write

__all__ = [
    "ONE_HOST",
    "Blob",
    "Blobs",
    "BucketFacts",
    "BucketPlace",
    "Catalog",
    "Clock",
    "Comparison",
    "Copies",
    "EventKey",
    "Guests",
    "Held",
    "Hosts",
    "KeptSecret",
    "Lease",
    "Limit",
    "Listening",
    "Members",
    "Outbox",
    "Owned",
    "Ports",
    "ProjectQuota",
    "Provider",
    "Providers",
    "PublishedHost",
    "QuotaKind",
    "QuotaUse",
    "Reputation",
    "Scope",
    "Secrets",
    "Sink",
    "SliceSurvey",
    "Slices",
    "StorageToken",
    "Store",
    "TokenLender",
    "Unit",
    "Write",
    "side_by_side",
    "types_in",
]
