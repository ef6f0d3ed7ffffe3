"""Users' secrets in Google Secret Manager: one for each owner and name, with the id `tpujob-s-OWNER-NAME`.

A condition of IAM on a prefix can therefore hold for one owner: neither names nor encoded owners have a hyphen.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tpujob.adapters.calling import Missing
from tpujob.adapters.google import identity
from tpujob.adapters.google.rest import GoogleRest, object_in
from tpujob.domain.model import Cause
from tpujob.errors import NotFound, Refused, Transient
from tpujob.ports import KeptSecret
from tpujob.protocol import LABEL

PREFIX = "tpujob-s-"
USER_LABEL = "tpujob-user"  #: label of a secret: its owner, encoded as in its id
SET_LABEL = "tpujob-set"  #: label of a secret: when it was set, in seconds since the epoch


class GoogleSecrets:
    """Implements `ports.Secrets`."""

    def __init__(
        self, manager: Callable[[], SecretManager], now: Callable[[], float] = time.time
    ) -> None:
        """`manager`: called at the first use, as most backends keep no secret."""
        self._make_manager, self._now = manager, now
        self._added: dict[str, int] = {}  #: the newest version that this process has added

    def put(self, owner: str, name: str, value: str) -> None:
        manager, secret = self._manager, self._name(owner, name)
        labels = {LABEL: "1", USER_LABEL: encoded(owner), SET_LABEL: f"{self._now():.0f}"}
        if not manager.ensure(secret, labels):
            manager.change(secret, "labels", labels)
        number = manager.add(secret, value.encode())
        self._added[secret] = number
        manager.destroy(secret, number - 1)

    def get(self, owner: str, name: str) -> str:
        secret = self._name(owner, name)
        return self._newest_value(secret, name).decode()

    def _newest_value(self, secret: str, name: str) -> bytes:
        """Return the value of the newest version, also while `latest` lags behind. Raises NotFound, Transient."""
        added = self._added.get(secret, 0)
        try:
            number, value = self._manager.access(secret)
            # Missing: another process has removed the secret and set it again
            with contextlib.suppress(Missing):
                return value if number >= added else self._manager.access(secret, added)[1]
            return value
        except Missing as missing:
            with contextlib.suppress(Missing):
                if added:
                    return self._manager.access(secret, added)[1]
            raise NotFound(f"no secret {name} is set") from missing
        except Refused as refused:
            if refused.cause != Cause.PERMISSION:  # `latest` still is a version that was destroyed
                raise Transient(f"the secret {name} is just being set: {refused}") from refused
            raise

    def list(self, owner: str) -> list[KeptSecret]:
        prefix = f"{PREFIX}{encoded(owner)}-"
        secrets: list[KeptSecret] = []
        for item in self._manager.list({LABEL: "1", USER_LABEL: encoded(owner)}):
            id = str(item.get("name", "")).rpartition("/")[2]
            if id.startswith(prefix):
                set_at = str(object_in(item, "labels").get(SET_LABEL, ""))
                seconds = float(set_at) if set_at.isdecimal() else 0.0
                secrets.append(KeptSecret(id.removeprefix(prefix), seconds))
        return sorted(secrets, key=lambda secret: secret.name)

    def remove(self, owner: str, name: str) -> None:
        secret = self._name(owner, name)
        self._added.pop(secret, None)
        self._manager.remove(secret)

    @functools.cached_property
    def _manager(self) -> SecretManager:
        return self._make_manager()

    def _name(self, owner: str, name: str) -> str:
        return self._manager.name(f"{PREFIX}{encoded(owner)}-{name}")


def encoded(owner: str) -> str:
    """Return an owner's id in the characters of a label: small letters, digits and `_`. `uid:1000` becomes
    `uid_3a1000`, a very long id its hash. Two ids never get the same label."""
    letters = (c if re.match("[a-z0-9]", c) else c.encode().hex("_") for c in owner)
    text = "".join(c if len(c) == 1 else f"_{c}" for c in letters)
    return text if len(text) <= 63 else "_" + hashlib.sha256(owner.encode()).hexdigest()[:62]


# Secret Manager ------------------------------------------------------------------------------------------------------


HOST = "secretmanager.googleapis.com"


class SecretManager:
    """The secrets of one project, by their full names: `projects/PROJECT/secrets/ID`. Every call raises Missing,
    Refused, Transient. Thread-safe."""

    def __init__(self, project: str, *, region: str = "", endpoint: str = "") -> None:
        """`region`: that of new secrets; empty: Google chooses. `endpoint`: see GoogleRest. Raises Refused when this
        machine has no credentials."""
        self._project = project
        self._replication: dict[str, Any] = {"automatic": {}}
        if region:
            self._replication = {"userManaged": {"replicas": [{"location": region}]}}
        credentials = None if endpoint else identity.default("Secret Manager")[0]
        self._rest = GoogleRest(project, credentials, endpoint=endpoint)

    def name(self, id: str) -> str:
        return f"projects/{self._project}/secrets/{id}"

    def list(self, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Yield the secrets that carry all of these labels, as the API describes them."""
        query = " AND ".join(f"labels.{label}={value}" for label, value in labels.items())
        path = f"v1/projects/{self._project}/secrets"
        yield from self._rest.pages(HOST, path, "secrets", filter=query)

    def access(self, name: str, version: int = 0) -> tuple[int, bytes]:
        """Return the number and the content of a version; 0: the newest, or a recent one, as the API lags behind."""
        answer = self._rest.get(HOST, f"v1/{name}/versions/{version or 'latest'}:access")
        return _version_number(answer), _payload(answer)

    def add(self, name: str, payload: bytes) -> int:
        """Add a version. Returns its number."""
        body = {"payload": {"data": base64.b64encode(payload).decode()}}
        return _version_number(self._rest.post(HOST, f"v1/{name}:addVersion", body))

    def ensure(self, name: str, labels: Mapping[str, str], *, ttl: float | None = None) -> bool:
        """Create the secret, without a version, unless it exists. Returns whether this call has created it. `ttl`:
        seconds until Google removes it."""
        parent, _, id = name.rpartition("/")
        body: dict[str, Any] = {"replication": self._replication, "labels": dict(labels)}
        if ttl is not None:
            body["ttl"] = f"{ttl:.0f}s"
        try:
            self._rest.post(HOST, f"v1/{parent}?secretId={id}", body)
        except Refused as refused:
            try:
                self._rest.get(HOST, f"v1/{name}")  # another caller was first
            except Missing:
                raise refused from None
            return False
        return True

    def change(self, name: str, field: str, value: Any) -> None:
        """Replace a field of the secret."""
        body = {field: value}
        self._rest.call("PATCH", HOST, f"v1/{name}?updateMask={field}", body=body)

    def destroy(self, name: str, version: int) -> None:
        """Destroy a version, because it costs money. Ignores errors: a version that stays does no other harm."""
        if version > 0:
            with contextlib.suppress(Refused, Transient):
                self._rest.post(HOST, f"v1/{name}/versions/{version}:destroy", {})

    def remove(self, name: str) -> None:
        """Remove the secret. Absent is success."""
        with contextlib.suppress(Missing):
            self._rest.call("DELETE", HOST, f"v1/{name}")

    def close(self) -> None:
        self._rest.close()


def _version_number(answer: dict[str, Any]) -> int:
    number = str(answer.get("name", "")).rpartition("/")[2]
    if not number.isdecimal():
        raise Transient(f"{HOST} sent a version with the name {number!r}")
    return int(number)


def _payload(answer: dict[str, Any]) -> bytes:
    try:
        return base64.b64decode(answer["payload"]["data"], validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise Transient(f"{HOST} sent a version without a payload") from error
