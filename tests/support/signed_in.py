"""Somebody who has signed in at a deployed backend, without an issuer: the token is a word that the door takes."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.scripted import TOKEN
from tpujob.adapters.sign_in import kept
from tpujob.adapters.sign_in.kept import Kept


def signed_in(state: Path, name: str, url: str, token: str = TOKEN) -> None:
    """Afterwards commands of that context show the token, for an hour."""
    file = state / "contexts" / name / "sign-in.json"
    kept.save(file, Kept(url, "", "", "", token, time.time() + 3600))
