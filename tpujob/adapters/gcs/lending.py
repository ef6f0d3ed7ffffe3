"""Tokens for parts of a bucket: this process's credentials, exchanged for ones limited by a Credential Access Boundary.

The bucket must have uniform access, as all buckets that tpujob makes.
"""

# google-auth has no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import functools
import re
from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any

from tpujob.adapters.calling import first_line
from tpujob.adapters.gcs.client import credentials_error
from tpujob.errors import Refused, Transient
from tpujob.ports import StorageToken

#: errors of OAuth that a repetition does not change (RFC 6749); google-auth does not pass the status on
_REFUSED = re.compile(r"Error code (?:invalid|unauthorized|unsupported|access_denied)")
_READ, _WRITE = "inRole:roles/storage.objectViewer", "inRole:roles/storage.objectUser"


class GcsLender:
    """Implements `ports.TokenLender`. Thread-safe."""

    def __init__(self, endpoint: str = "", find: Callable[[str], Any] | None = None) -> None:
        """`endpoint`: the URL of an emulated storage, which takes no token. `find`: returns this process's
        credentials."""
        self._endpoint = endpoint
        self._find = find or _own_credentials

    def lend(self, folder: str, writable: Sequence[str]) -> StorageToken:
        if self._endpoint:
            return StorageToken("", self._endpoint)
        from google.auth import downscoped
        from google.auth.exceptions import GoogleAuthError, OAuthError
        from google.auth.transport.requests import Request

        from tpujob.adapters.google.rest import CALL_TIMEOUT

        rules = [_rule(path, _WRITE) for path in writable]
        boundary = downscoped.CredentialAccessBoundary([_rule(folder, _READ), *rules])
        lent: Any = downscoped.Credentials(self._find("a copy of a job's files"), boundary)
        try:
            lent.refresh(functools.partial(Request(), timeout=CALL_TIMEOUT))
        except OAuthError as error:
            reason = first_line(error.args[0])
            text = f"Google gives no token for {folder}: {reason}"
            if _REFUSED.match(reason):
                raise Refused(text, cause="PERMISSION") from error
            raise Transient(text) from error
        except GoogleAuthError as error:
            raise credentials_error(error) from error
        expiry = lent.expiry
        return StorageToken(
            lent.token, expires_at=expiry.replace(tzinfo=UTC).timestamp() if expiry else None
        )


def _own_credentials(needed_by: str) -> Any:
    from tpujob.adapters.google import identity

    return identity.default(needed_by)[0]


def _rule(folder: str, role: str) -> Any:
    """Return the rule that allows a role for the objects below a folder, and lists of them."""
    from google.auth import downscoped

    bucket, _, prefix = folder.removeprefix("gs://").partition("/")
    condition = (
        f"resource.name.startsWith('projects/_/buckets/{bucket}/objects/{prefix}') || "
        f"api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('{prefix}')"
    )
    return downscoped.AccessBoundaryRule(
        available_resource=f"//storage.googleapis.com/projects/_/buckets/{bucket}",
        available_permissions=[role],
        availability_condition=downscoped.AvailabilityCondition(condition),
    )
