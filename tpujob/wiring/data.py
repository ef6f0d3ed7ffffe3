"""The adapters of `tpujob data`: the context's object storage, and the cache of checksums of this machine's files."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import TYPE_CHECKING

from tpujob.config.settings import Settings, prepare
from tpujob.data.locations import Place, S3Prefix, Url, UrlList
from tpujob.data.objects import SourceReader
from tpujob.data.sync.checksum_cache import ChecksumCache
from tpujob.domain.text import seconds
from tpujob.errors import NotFound

if TYPE_CHECKING:
    from tpujob.adapters.gcs.objects import JsonObjects
    from tpujob.api import FilesAccess

#: where the local stack makes a bucket that is used before a job has one
_LOCAL_REGION = "us-central2"
_RETRY_TIMEOUT = 60.0


@contextmanager
def copying(
    settings: Settings, make_bucket: str = ""
) -> Generator[tuple[JsonObjects, ChecksumCache]]:
    """Yield the object storage and the cache of checksums. In the local stack, which must run, the missing bucket
    `make_bucket` is made."""
    from tpujob.adapters.gcs.objects import JsonObjects

    endpoint = _endpoint(settings)
    if settings.local and make_bucket:
        _make(settings, endpoint, make_bucket)
    prepare(settings)
    with (
        closing(JsonObjects(endpoint)) as objects,
        closing(ChecksumCache(settings.home / "data")) as cache,
    ):
        yield objects, cache


@contextmanager
def job_files(
    settings: Settings, access: FilesAccess, renew: Callable[[], FilesAccess]
) -> Generator[tuple[JsonObjects, ChecksumCache]]:
    """Yield the storage of a job's files, and the cache of checksums. `renew`: returns a new access, once the token of
    `access` has ended."""
    from tpujob.adapters.gcs.objects import JsonObjects

    lent = [access]

    def token() -> tuple[str, float]:
        now = lent.pop() if lent else renew()
        return now["token"], seconds(now["expires_at"]) or 0.0

    prepare(settings)
    with (
        closing(JsonObjects(access["endpoint"], token=token)) as objects,
        closing(ChecksumCache(settings.home / "data")) as cache,
    ):
        yield objects, cache


def reading(source: Place) -> AbstractContextManager[SourceReader | None]:
    """Return the reader of a source outside Cloud Storage; None for Cloud Storage and this machine. Raises BadRequest
    for a faulty list of URLs, and if a package is missing."""
    if isinstance(source, S3Prefix):
        from tpujob.adapters.s3_objects import S3Objects

        return closing(S3Objects())
    if isinstance(source, Url | UrlList):
        from tpujob.adapters.web_files import WebFiles
        from tpujob.data.locations import web_files

        return closing(WebFiles(web_files(source)))
    return nullcontext()


def _endpoint(settings: Settings) -> str:
    """Return the URL of an emulated storage; empty for Google's own."""
    if not settings.local or settings.storage_endpoint:
        return settings.storage_endpoint
    return str(json.loads(settings.ready_file("emulator").read_text(encoding="utf-8"))["storage"])


def _make(settings: Settings, endpoint: str, bucket: str) -> None:
    from tpujob.adapters.gcs import GcsBlobs
    from tpujob.domain.capacity.site import EVERYWHERE

    with closing(GcsBlobs(settings.project, endpoint=endpoint)) as blobs:
        try:
            blobs.place(f"gs://{bucket}", timeout=_RETRY_TIMEOUT)
        except NotFound:
            region = EVERYWHERE.region_of_bucket(f"gs://{bucket}") or _LOCAL_REGION
            blobs.ensure_bucket(f"gs://{bucket}", region, timeout=_RETRY_TIMEOUT)
