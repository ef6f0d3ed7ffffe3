"""Cloud Storage on a laptop: the JSON API, uploads, and the part of the XML API that clients use.

Knows nothing of Cloud TPU, and imports no gRPC.
"""

from tpujob.emulator.storage.faults import METHODS, STATUSES, StorageFault, StorageFaults
from tpujob.emulator.storage.server import StorageServer

__all__ = ["METHODS", "STATUSES", "StorageFault", "StorageFaults", "StorageServer"]
