"""Objects of S3, and of storages that speak its API, to be read by boto3: `data.objects.Reader`.

Nothing is written there. What S3 says of an object's bytes is judged in `data/sources/identity.py`. boto3 is an extra
of the package, and is imported at the first call.
"""

from tpujob.adapters.s3.objects import S3Objects

__all__ = ["S3Objects"]
