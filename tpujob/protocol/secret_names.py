"""Which variables hold secrets, by what their names say."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: A name whose last word, or a word before a `_`, says so. `MAX_TOKENS` counts, and is none.
_SECRET = re.compile(
    r"(?:KEYS?|TOKEN|SECRETS?|PASSWORDS?|PASSWD|CREDENTIALS?)(?:_|[0-9]|$)", re.IGNORECASE
)


def secret_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return those of the variables whose names say that their values are secrets."""
    return {name: value for name, value in variables.items() if _SECRET.search(name)}
