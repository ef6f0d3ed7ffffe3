"""What the errors of Cloud Storage, of its library and of the network below mean in ours."""
# The library has no types.
# pyright: reportUnknownMemberType=false

import contextlib
import re
from collections.abc import Generator

from tpujob.adapters.calling import first_line
from tpujob.domain.model import Cause
from tpujob.errors import LOGIN, Conflict, NotFound, Refused, TpujobError, Transient

_LOGIN = f"run `{LOGIN}`"
_FORBIDDEN = (
    "the account needs a role on that bucket, such as roles/storage.admin of the project; "
    "or the bucket is somebody else's, as names of buckets are global"
)


class Corrupted(Transient):
    """The checksum does not match."""


@contextlib.contextmanager
def translated(doing: str) -> Generator[None]:
    """Raise our error for one of the vendor's or of the network's; anything else is a bug and rises as it is."""
    try:
        yield
    except Exception as error:
        ours = translate(error, doing)
        if ours is None:
            raise
        raise ours from error


def translate(error: Exception, doing: str) -> TpujobError | None:
    """None: neither the vendor's nor the network's."""
    import requests
    import urllib3
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth
    from google.cloud.storage import exceptions as storage

    silent = "Cloud Storage does not answer" if _unreachable(error) else ""
    text = f"cannot {doing}: {silent or first_line(_without_queries(error))}"
    if isinstance(error, TpujobError):
        return error
    if isinstance(error, storage.DataCorruption) or (
        isinstance(error, api.BadRequest) and "doesn't match calculated" in str(error)
    ):
        return Corrupted(text)
    if isinstance(error, api.NotFound):
        return NotFound(text)
    if isinstance(error, api.PreconditionFailed):
        return Conflict(text)
    if isinstance(error, api.Forbidden):
        return Refused(text, cause=Cause.PERMISSION, hint=_FORBIDDEN)
    if isinstance(error, api.Unauthorized):
        return Refused(text, cause=Cause.PERMISSION, hint=_LOGIN)
    if isinstance(error, auth.GoogleAuthError) and not (
        error.retryable or any(isinstance(e, auth.TransportError) for e in (error, *error.args))
    ):  # the metadata server's silence comes wrapped
        return Refused(text, cause=Cause.PERMISSION, hint=_LOGIN)
    status = (getattr(error, "code", None) or 0) if isinstance(error, api.GoogleAPICallError) else 0
    if status in (408, 410, 429) or status >= 500:  # 410: an upload in pieces must begin anew
        return Transient(text)
    if isinstance(error, api.GoogleAPICallError):
        return Refused(text, cause=Cause.BAD_SPEC)
    network = requests.RequestException | urllib3.exceptions.HTTPError | auth.GoogleAuthError
    if isinstance(error, network | storage.InvalidResponse | OSError):
        return Transient(text)
    return None


def _unreachable(error: Exception) -> bool:
    """Whether nothing listens there. The library's text for that is a whole URL with its query."""
    import requests
    import urllib3

    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(error, requests.ConnectionError) and isinstance(
        reason, urllib3.exceptions.NewConnectionError
    )


def _without_queries(error: Exception) -> str:
    """The error's text. The query of a resumable upload is a secret: it lets anybody continue the upload."""
    return re.sub(r"\?[^\s:'\"]*", "", str(error)) or type(error).__name__
