"""The ports: everything that touches the world, as the smallest protocol that serves its caller.

A call with a `timeout`, in seconds, returns or raises by then. Adapters never raise a vendor's own error, but errors of
`errors.py`: mostly `Transient` (may succeed later; nothing is known) or `Refused` (a definite refusal).
"""

from tpujob.ports.backend import Clock, Ports
from tpujob.ports.hardware import Hosts, Listening, Owned, PublishedHost, Slices, SliceSurvey
from tpujob.ports.people import KeptSecret, Members, Outbox, Reputation, Secrets, Sink
from tpujob.ports.storage import Blob, Blobs, BucketFacts, BucketPlace, Comparison, Copies
from tpujob.ports.store import EventKey, Lease, Store, Write

__all__ = [
    "Blob",
    "Blobs",
    "BucketFacts",
    "BucketPlace",
    "Clock",
    "Comparison",
    "Copies",
    "EventKey",
    "Hosts",
    "KeptSecret",
    "Lease",
    "Listening",
    "Members",
    "Outbox",
    "Owned",
    "Ports",
    "PublishedHost",
    "Reputation",
    "Secrets",
    "Sink",
    "SliceSurvey",
    "Slices",
    "Store",
    "Write",
]
