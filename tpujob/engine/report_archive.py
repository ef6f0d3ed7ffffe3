"""What stays of the reports of an attempt that is over: that of host 0, with its curves, in the attempt's folder."""

import contextlib
from collections.abc import Callable, Sequence

from tpujob.domain.host.series import read_curves
from tpujob.errors import NotFound
from tpujob.ports import Blob, Blobs
from tpujob.protocol import limits, paths

#: seconds for one call
TIMEOUT = 10.0

#: returns the key with which the hosts of that attempt of that job sign; None: the job is not in the store
KeyOf = Callable[[str, int], str | None]


class ReportArchive:
    """Safe to repeat, and beside another process."""

    def __init__(self, blobs: Blobs, key_of: KeyOf) -> None:
        self._blobs, self._key_of = blobs, key_of

    def archive(self, root: str, folder: str, attempt: int, blobs: Sequence[Blob]) -> None:
        """Keep that of host 0, unless a newer one is kept already, and remove these objects."""
        workdir = f"{root.removesuffix('/reports/')}/jobs/{folder}"
        kept, own = paths.kept_report_path(workdir, attempt, 0), f"{root}{folder}/{attempt}/host-0"
        for blob in blobs:
            if blob.path == own:
                with contextlib.suppress(NotFound):  # another process is at it
                    body = self._body(own)
                    if self._is_newer(paths.job_id(folder), attempt, body, kept):
                        self._blobs.put(kept, body, metadata=blob.metadata, timeout=TIMEOUT)
            self._blobs.delete(blob.path, timeout=TIMEOUT)

    def _body(self, path: str) -> bytes:
        return self._blobs.get(path, end=limits.MAX_BODY, timeout=TIMEOUT)

    def _is_newer(self, job_id: str, attempt: int, body: bytes, kept: str) -> bool:
        """Return whether a body is newer than what is kept, or nothing is."""
        try:
            kept_body = self._body(kept)
        except NotFound:
            return True
        key = self._key_of(job_id, attempt) or ""
        new, old = read_curves(body, key), read_curves(kept_body, key)
        return new is not None and (old is None or new.number > old.number)
