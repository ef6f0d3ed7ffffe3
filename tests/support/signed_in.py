"""Somebody who has signed in at a deployed backend, without an issuer: the token is a word that the door takes."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.scripted import TOKEN
from tpujob.adapters.sign_in import token_store
from tpujob.adapters.sign_in.token_store import StoredToken


def signed_in(state: Path, name: str, url: str, token: str = TOKEN) -> None:
    """Afterwards commands of that context show the token, for an hour."""
    file = state / "contexts" / name / "sign-in.json"
    token_store.save(file, StoredToken(url, "", "", "", token, time.time() + 3600))
