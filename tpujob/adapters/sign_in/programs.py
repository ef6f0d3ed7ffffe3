"""ID tokens for programs: of this machine's service account, or of an account that this machine may act as."""
# google-auth has no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any

from tpujob.adapters.calling import first_line
from tpujob.config.sign_in import MACHINE
from tpujob.errors import Refused, TpujobError, Unauthorized

IAM = "iamcredentials.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_SOURCES = "a key file or its like in GOOGLE_APPLICATION_CREDENTIALS, or a machine of Google Cloud"


def id_token(account: str, audience: str, endpoint: str = "") -> str:
    """Return a token of a service account for an audience; of this machine's account if `account` is `machine`. Raises
    Unauthorized, Transient. `endpoint`: see `GoogleRest`."""
    if account == MACHINE:
        return _machine_token(audience)
    return _impersonated_token(account, audience, endpoint)


def _machine_token(audience: str) -> str:
    from google.auth.exceptions import GoogleAuthError
    from google.auth.transport.requests import Request
    from google.oauth2 import id_token

    try:
        return str(id_token.fetch_id_token(Request(), audience))
    except (GoogleAuthError, OSError, ValueError) as error:
        raise Unauthorized(
            f"this machine has no service account that can prove its identity: {first_line(error)}",
            hint=f"It needs {_SOURCES}.",
        ) from error


def _impersonated_token(account: str, audience: str, endpoint: str) -> str:
    from tpujob.adapters.google.rest import GoogleRest

    google = GoogleRest("", None if endpoint else _credentials(), endpoint=endpoint)
    try:
        answer = google.post(
            IAM,
            f"v1/projects/-/serviceAccounts/{account}:generateIdToken",
            {"audience": audience, "includeEmail": True},
        )
        return str(answer["token"])
    except (Refused, KeyError) as error:
        reason = error.message if isinstance(error, TpujobError) else "Google's answer has no token"
        raise Unauthorized(
            f"this machine may not act as {account}: {reason}",
            hint=f"Whose credentials these are needs roles/iam.serviceAccountOpenIdTokenCreator on {account}.",
        ) from error
    finally:
        google.close()


def _credentials() -> Any:
    """Return this machine's credentials. A federated identity that acts as an account is used by itself: that account
    would need a right to act as itself. Raises Unauthorized."""
    import google.auth
    from google.auth.exceptions import GoogleAuthError

    try:
        credentials, _ = google.auth.default(scopes=[_SCOPE])
        info = getattr(credentials, "info", None)
        if isinstance(info, dict) and info.pop("service_account_impersonation_url", ""):
            credentials, _ = google.auth.load_credentials_from_dict(info, scopes=[_SCOPE])
        return credentials
    except (GoogleAuthError, OSError, ValueError) as error:
        raise Unauthorized(
            f"this machine has no credentials for Google Cloud: {first_line(error)}",
            hint="gcloud auth application-default login; in CI, Workload Identity Federation",
        ) from error
