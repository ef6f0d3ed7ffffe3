"""A user signed in at a deployed backend, without an issuer: the authenticator accepts a fixed token."""

import time
from pathlib import Path

from tests.support.scripted import TOKEN
from tpujob.adapters.sign_in import session
from tpujob.adapters.sign_in.session import StoredToken


def signed_in(state: Path, name: str, url: str, token: str = TOKEN) -> None:
    """Let commands of that context send the token, for an hour."""
    file = state / "contexts" / name / "sign-in.json"
    session.save_token(file, StoredToken(url, "", "", "", token, time.time() + 3600))
