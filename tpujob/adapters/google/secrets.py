"""The port Secrets in Google Secret Manager: one secret for each owner and name, called so that a condition of IAM on a
prefix can hold for one owner: `tpujob-s-OWNER-NAME`. No name has a hyphen, and OWNER is written without.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Callable

from tpujob.adapters.calling import Missing
from tpujob.adapters.google.rest import part
from tpujob.adapters.google.secret_manager import SecretManager
from tpujob.domain.model import Cause
from tpujob.errors import NotFound, Refused, Transient
from tpujob.ports import KeptSecret
from tpujob.protocol import LABEL

PREFIX = "tpujob-s-"
USER_LABEL = "tpujob-user"  #: of a secret: its owner, as in its name
SET_LABEL = "tpujob-set"  #: when it was set, in seconds since the epoch


class GoogleSecrets:
    """Implements `ports.Secrets`."""

    def __init__(
        self, manager: Callable[[], SecretManager], now: Callable[[], float] = time.time
    ) -> None:
        """`manager` is called at the first use: most backends keep no secret."""
        self._made, self._now = manager, now
        self._manager: SecretManager | None = None
        self._added: dict[str, int] = {}  #: the newest version that this process has added

    def put(self, owner: str, name: str, value: str) -> None:
        manager, secret = self._opened, self._name(owner, name)
        labels = {LABEL: "1", USER_LABEL: encoded(owner), SET_LABEL: f"{self._now():.0f}"}
        if not manager.ensure(secret, labels):
            manager.change(secret, "labels", labels)
        number = manager.add(secret, value.encode())
        self._added[secret] = number
        manager.destroy(secret, number - 1)

    def get(self, owner: str, name: str) -> str:
        secret = self._name(owner, name)
        return self._newest(secret, name).decode()

    def _newest(self, secret: str, name: str) -> bytes:
        added = self._added.get(secret, 0)
        try:
            number, value = self._opened.access(secret)
            return value if number >= added else self._opened.access(secret, added)[1]
        except Missing as missing:
            with contextlib.suppress(Missing):
                if added:  # `latest` may lag behind
                    return self._opened.access(secret, added)[1]
            raise NotFound(f"no secret {name} is set") from missing
        except Refused as refused:
            if refused.cause != Cause.PERMISSION:  # `latest` still leads to a version that is gone
                raise Transient(f"the secret {name} is just being set: {refused}") from refused
            raise

    def list(self, owner: str) -> list[KeptSecret]:
        head = f"{PREFIX}{encoded(owner)}-"
        found: list[KeptSecret] = []
        for one in self._opened.list({LABEL: "1", USER_LABEL: encoded(owner)}):
            id = str(one.get("name", "")).rpartition("/")[2]
            if id.startswith(head):
                at = str(part(one, "labels").get(SET_LABEL, ""))
                found.append(KeptSecret(id[len(head) :], float(at) if at.isdecimal() else 0.0))
        return sorted(found, key=lambda one: one.name)

    def remove(self, owner: str, name: str) -> None:
        secret = self._name(owner, name)
        self._added.pop(secret, None)
        self._opened.remove(secret)

    @property
    def _opened(self) -> SecretManager:
        if self._manager is None:
            self._manager = self._made()
        return self._manager

    def _name(self, owner: str, name: str) -> str:
        return self._opened.name(f"{PREFIX}{encoded(owner)}-{name}")


def encoded(owner: str) -> str:
    """An owner's id in small letters, digits and `_`, as a label takes it, which no other id becomes: `uid:1000` is
    `uid_3a1000`; of a very long one the hash."""
    letters = (c if re.match("[a-z0-9]", c) else c.encode().hex("_") for c in owner)
    text = "".join(c if len(c) == 1 else f"_{c}" for c in letters)
    return text if len(text) <= 63 else "_" + hashlib.sha256(owner.encode()).hexdigest()[:62]
