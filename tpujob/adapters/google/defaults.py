"""What this machine's Google Cloud tools are set to: whether there are credentials, and the usual project.

Asks the project nothing, and imports no domain: `tpujob up` pays for this module.
"""

import logging
from pathlib import Path

from tpujob.errors import LOGIN, Refused


def usual_project() -> str:
    """The project's id, from the application default credentials or from gcloud's settings; empty: nothing says."""
    logging.getLogger("google.auth").setLevel(logging.ERROR)  # its warnings do not matter here
    try:
        return _found()
    except Refused:
        return ""


def in_google_cloud(firmware: Path = Path("/sys/class/dmi/id/product_name")) -> bool:
    """Whether this machine is one of Google Compute Engine. Looked up as Google's own libraries do, without a call."""
    try:
        return firmware.read_text(encoding="utf-8").strip().startswith("Google")
    except OSError:
        return False


def check(needed_by: str) -> None:
    """Raises Refused, with what to run, when this machine has no credentials. Whether they work shows at the first
    call."""
    try:
        _found()
    except Refused as error:
        raise Refused(
            f"no credentials for Google Cloud, which {needed_by} needs",
            cause=error.cause,
            hint=f"run `{LOGIN}`; or `tpujob use local`",
        ) from error


def _found() -> str:
    import google.auth
    from google.auth.exceptions import GoogleAuthError

    try:
        _, project = google.auth.default()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    except (GoogleAuthError, OSError, ValueError) as error:
        raise Refused(str(error), cause="PERMISSION") from error
    return str(project or "")
