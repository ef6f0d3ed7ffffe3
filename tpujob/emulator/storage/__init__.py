"""Cloud Storage on a laptop: the JSON API with uploads and batches, and the XML API for objects.

This package knows nothing of Cloud TPU, and imports no gRPC.
"""

from tpujob.emulator.storage.faults import METHODS, STATUSES, StorageFault, StorageFaults
from tpujob.emulator.storage.server import StorageServer

__all__ = ["METHODS", "STATUSES", "StorageFault", "StorageFaults", "StorageServer"]
