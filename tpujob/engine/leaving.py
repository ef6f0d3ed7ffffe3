"""What stays of the reports of an attempt that is over: the object with its curves, in the folder of the attempt."""

import contextlib
from collections.abc import Callable, Mapping, Sequence

from tpujob.domain.host.series import read_signed
from tpujob.errors import NotFound
from tpujob.ports import Blob, Blobs
from tpujob.protocol import limits, paths, slice_report

#: seconds for one call
TIMEOUT = 10.0

#: the key with which the hosts of that attempt of that job have signed; None: nobody knows of it any more
KeyOf = Callable[[str, int], str | None]


class Leaving:
    """Safe to repeat, and beside another process."""

    def __init__(self, blobs: Blobs, key_of: KeyOf) -> None:
        self._blobs, self._key_of = blobs, key_of

    def leave(self, root: str, folder: str, attempt: int, blobs: Sequence[Blob]) -> bool:
        """Of these objects and what is kept already, keep the newest with curves that the hosts have signed; where none
        has any, that of host 0. Remove the others. False: another process is at it."""
        workdir = f"{root.removesuffix('/reports/')}/jobs/{folder}"
        kept, own = paths.kept_report_path(workdir, attempt, 0), f"{root}{folder}/{attempt}/host-0"
        told = [b for b in blobs if b.path == own or slice_report.is_slice(b.metadata)]
        try:
            bodies = {b.path: self._body(b.path) for b in told}
        except NotFound:
            return False
        best = own if own in bodies else kept
        if bodies:
            with contextlib.suppress(NotFound):
                bodies[kept] = self._body(kept)
        if bodies.keys() - {own}:
            best = self._newest(paths.job_id(folder), attempt, bodies) or best
        if best != kept:
            metadata = next(b.metadata for b in told if b.path == best)
            self._blobs.put(kept, bodies[best], metadata=metadata, timeout=TIMEOUT)
        for blob in blobs:
            self._blobs.delete(blob.path, timeout=TIMEOUT)
        return True

    def _body(self, path: str) -> bytes:
        return self._blobs.get(path, end=limits.MAX_BODY, timeout=TIMEOUT)

    def _newest(self, job_id: str, attempt: int, bodies: Mapping[str, bytes]) -> str:
        """Where the newest curves lie; empty: there are none that are signed."""
        key = self._key_of(job_id, attempt)
        found = {path: read_signed(body, key) for path, body in bodies.items()} if key else {}
        numbers = {path: signed.number for path, signed in found.items() if signed and signed.line}
        return max(numbers, key=lambda path: numbers[path], default="")
