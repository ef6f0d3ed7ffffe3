"""Whose credentials this machine has for Google Cloud (Application Default Credentials), and whether they work."""
# google-auth has no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import functools
import logging
from pathlib import Path
from typing import Any

from tpujob.adapters.calling import first_line
from tpujob.adapters.google.rest import PATIENCE, SCOPE
from tpujob.doctor.access import Identity, NoIdentity
from tpujob.doctor.findings import NotSeen
from tpujob.errors import LOGIN, Refused

#: the module of a credential's class, and what such credentials are called
_KINDS = {
    "google.oauth2.credentials": "user",
    "google.oauth2.service_account": "service account",
    "google.auth.compute_engine.credentials": "service account of this machine",
    "google.auth.impersonated_credentials": "impersonated service account",
}


def find() -> tuple[Any, Identity | NoIdentity | NotSeen]:
    """Return the credentials, refreshed, and whose they are; None without credentials. After a failure on the way to
    Google return NotSeen: the credentials may be good."""
    import google.auth
    from google.auth.exceptions import (
        DefaultCredentialsError,
        GoogleAuthError,
        RefreshError,
        TransportError,
    )
    from google.auth.transport.requests import Request

    logging.getLogger("google.auth").setLevel(logging.ERROR)  # its warnings do not matter here
    try:
        credentials, _ = google.auth.default(scopes=[SCOPE])
    except (DefaultCredentialsError, OSError, ValueError) as error:
        if "were not found" in str(error):
            return None, NoIdentity("this machine has no credentials for Google Cloud")
        return None, NoIdentity(f"the credentials cannot be read: {first_line(error)}")
    try:
        credentials.refresh(functools.partial(Request(), timeout=PATIENCE))
    except RefreshError as error:
        if error.retryable:
            return credentials, NotSeen(f"asking for a token failed: {first_line(error)}")
        # the library puts the token server's message before the whole answer
        message = first_line(error.args[0] if error.args else error)
        return credentials, NoIdentity(f"the credentials are refused: {message}")
    except TransportError:
        return credentials, NotSeen("Google's token server cannot be reached from this machine")
    except GoogleAuthError as error:
        return credentials, NotSeen(first_line(error), LOGIN)
    return credentials, _identity(credentials)


def _identity(credentials: Any) -> Identity:
    module = type(credentials).__module__
    return Identity(
        principal=_principal(credentials),
        kind=_KINDS.get(module, "workload identity"),
        key_file=module == "google.oauth2.service_account",
    )


def _principal(credentials: Any) -> str:
    """Newer versions of gcloud write `account` beside a user's token."""
    for name in ("service_account_email", "account"):
        principal = getattr(credentials, name, "")
        if isinstance(principal, str) and "@" in principal:
            return principal
    return ""


# Defaults of this machine's Google Cloud tools -----------------------------------------------------------------------


def usual_project() -> str:
    """The project's id, from the application default credentials or from gcloud's settings; empty: nothing says."""
    logging.getLogger("google.auth").setLevel(logging.ERROR)  # its warnings do not matter here
    try:
        return default("the project")[1]
    except Refused:
        return ""


def in_google_cloud(firmware: Path = Path("/sys/class/dmi/id/product_name")) -> bool:
    """Whether this machine is one of Google Compute Engine. Looked up as Google's own libraries do, without a call."""
    try:
        return firmware.read_text(encoding="utf-8").strip().startswith("Google")
    except OSError:
        return False


def default(needed_by: str) -> tuple[Any, str]:
    """Return this machine's credentials and their project; empty: it is not known. Whether they work shows at the first
    call. Raises Refused, with what to run, when there are none."""
    import google.auth
    from google.auth.exceptions import GoogleAuthError

    try:
        credentials, project = google.auth.default(scopes=[SCOPE])
    except (GoogleAuthError, OSError, ValueError) as error:
        raise Refused(
            f"no credentials for Google Cloud, which {needed_by} needs",
            cause="PERMISSION",
            hint=f"run `{LOGIN}`; or `tpujob use local`",
        ) from error
    return credentials, str(project or "")
