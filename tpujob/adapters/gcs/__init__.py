"""The port `Blobs` on Cloud Storage, and buckets as tpujob sets them up.

What a blob means belongs to its callers. The vendor's errors become ours in `client.py`; its library is imported at
the first call.
"""

from tpujob.adapters.gcs.blobs import GcsBlobs, split_path
from tpujob.adapters.gcs.bucket import facts_of

__all__ = ["GcsBlobs", "facts_of", "split_path"]
