"""The ports: everything that touches the world, as the smallest protocol that serves its caller.

Every call takes `timeout`, in seconds, and returns or raises by then. Adapters raise `Transient` (may succeed later;
nothing is known) or `Refused` (a definite refusal), never a vendor's own error.
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
