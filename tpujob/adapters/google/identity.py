"""Identifies and checks this machine's credentials for Google Cloud (Application Default Credentials)."""
# google-auth has no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import functools
import logging
from pathlib import Path
from typing import Any

from tpujob.adapters.calling import first_line
from tpujob.adapters.google.rest import CALL_TIMEOUT, SCOPE
from tpujob.doctor.access import Identity, NoIdentity
from tpujob.doctor.findings import NotSeen
from tpujob.errors import LOGIN, Refused

#: the kind of credentials, by the module of their class
_KINDS = {
    "google.oauth2.credentials": "user",
    "google.oauth2.service_account": "service account",
    "google.auth.compute_engine.credentials": "service account of this machine",
    "google.auth.impersonated_credentials": "impersonated service account",
}


def find() -> tuple[Any, Identity | NoIdentity | NotSeen]:
    """Return the refreshed credentials, or None, and their identity. NoIdentity: they are missing or refused; NotSeen:
    Google could not be reached, and they may be good."""
    import google.auth
    from google.auth import exceptions
    from google.auth.transport.requests import Request

    logging.getLogger("google.auth").setLevel(logging.ERROR)  # hide its warnings
    try:
        credentials, _ = google.auth.default(scopes=[SCOPE])
    except (exceptions.DefaultCredentialsError, OSError, ValueError) as error:
        if "were not found" in str(error):
            return None, NoIdentity("this machine has no credentials for Google Cloud")
        return None, NoIdentity(f"the credentials cannot be read: {first_line(error)}")
    try:
        credentials.refresh(functools.partial(Request(), timeout=CALL_TIMEOUT))
    except exceptions.RefreshError as error:
        if error.retryable:
            return credentials, NotSeen(f"asking for a token failed: {first_line(error)}")
        # the first argument is the token server's message, the second its whole answer
        message = first_line(error.args[0] if error.args else error)
        return credentials, NoIdentity(f"the credentials are refused: {message}")
    except exceptions.TransportError:
        return credentials, NotSeen("Google's token server cannot be reached from this machine")
    except exceptions.GoogleAuthError as error:
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
    """Return the e-mail address of the credentials; empty: unknown. Newer versions of gcloud store that of a user."""
    for name in ("service_account_email", "account"):
        principal = getattr(credentials, name, "")
        if isinstance(principal, str) and "@" in principal:
            return principal
    return ""


# Defaults of this machine's Google Cloud tools -----------------------------------------------------------------------


def usual_project() -> str:
    """Return the project's id from the application default credentials or gcloud's settings; empty: neither has it."""
    logging.getLogger("google.auth").setLevel(logging.ERROR)  # hide its warnings
    try:
        return default("the project")[1]
    except Refused:
        return ""


def in_google_cloud(firmware: Path = Path("/sys/class/dmi/id/product_name")) -> bool:
    """Return whether this machine is on Google Compute Engine. Reads the firmware, as Google's own libraries do."""
    try:
        return firmware.read_text(encoding="utf-8").strip().startswith("Google")
    except OSError:
        return False


def default(needed_by: str) -> tuple[Any, str]:
    """Return this machine's credentials, without checking them, and their project; empty: unknown. Raises Refused, with
    a hint what to run, when there are none. `needed_by`: the subject of that error."""
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
