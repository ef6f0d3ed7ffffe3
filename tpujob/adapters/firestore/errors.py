"""Translates the errors of Firestore and of its library to tpujob's."""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import contextlib
import importlib
import threading
from collections.abc import Generator
from typing import Any

from tpujob.adapters.calling import status_of
from tpujob.errors import LOGIN, StoreError, TpujobError, Transient

#: hints for the codes of refusals; every other code is Transient
REFUSALS = {
    "PERMISSION_DENIED": "grant roles/datastore.user to the account that runs the backend",
    "UNAUTHENTICATED": f"run `{LOGIN}`",
    "NOT_FOUND": "check that the database exists: gcloud firestore databases create",
    "FAILED_PRECONDITION": "check that the indexes of deploy/firestore.indexes.json exist, and that the database is in "
    "Native mode",
    "INVALID_ARGUMENT": "",
    "OUT_OF_RANGE": "",
    "UNIMPLEMENTED": "the endpoint is not Firestore",
}


@contextlib.contextmanager
def translated(doing: str) -> Generator[None]:
    """Translate the library's errors: to Transient if a retry may succeed, else to StoreError."""
    with _LOADING:
        importlib.import_module("google.cloud.firestore_v1.services.firestore.transports")
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError

    try:
        yield
    except Moved as error:
        text = f"{doing}: other writers changed the same documents each time"
        raise Transient(text, hint="try again in a moment") from error
    except GoogleAPICallError as error:
        raise _translate(doing, status_of(error), str(error.message)) from error
    except GoogleAuthError as error:
        text = f"{doing}: no credentials for Google Cloud: {error}"
        raise StoreError(text, hint=f"run `{LOGIN}`") from error
    except ValueError as error:
        if "closed channel" not in str(error):
            raise
        raise Transient(f"{doing}: the connection was closed") from error


def _translate(doing: str, code: str, message: str) -> TpujobError:
    hint = REFUSALS.get(code)
    if hint is not None:
        return StoreError(f"{doing}: Firestore refused: {message}", hint=hint)
    if code == "UNAVAILABLE":
        message = "Firestore does not answer"  # gRPC's text is about sockets
    return Transient(f"{doing}: {message}", hint="try again in a moment")


class Moved(Exception):
    """A document has changed between our read and our write."""


def is_conflict(error: Any, transaction: bytes) -> bool:
    """Return whether a commit failed because a document has changed since it was read, or the transaction has expired.
    A transaction expires, and its locks with it, when this process was paused for a minute."""
    status = status_of(error)
    expired = status == "INVALID_ARGUMENT" and "transaction" in str(error.message).lower()
    return status in _CONFLICTS or (bool(transaction) and expired)


_CONFLICTS = frozenset({"FAILED_PRECONDITION", "ALREADY_EXISTS", "NOT_FOUND"})

#: held during the import of the library: its modules import each other, so two threads that begin with different
#: modules would deadlock
_LOADING = threading.Lock()
