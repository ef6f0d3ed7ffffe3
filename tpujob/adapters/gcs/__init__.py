"""Blobs on Cloud Storage, and the setup of tpujob's buckets.

Callers interpret blobs. `client.py` translates the API's errors to ours; google-auth is imported at the first call.
"""

from tpujob.adapters.gcs.blobs import GcsBlobs, split_path
from tpujob.adapters.gcs.bucket import facts_of
from tpujob.adapters.gcs.lending import GcsLender

__all__ = ["GcsBlobs", "GcsLender", "facts_of", "split_path"]
