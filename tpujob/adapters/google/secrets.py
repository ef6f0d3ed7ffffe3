"""The port Secrets in Google Secret Manager: one secret for each owner and name, called so that a condition of IAM on a
prefix can hold for one owner: `tpujob-s-OWNER-NAME`. No name has a hyphen, and OWNER is written without.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tpujob.adapters.calling import Missing
from tpujob.adapters.google import identity
from tpujob.adapters.google.rest import GoogleRest, part
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


# Secret Manager ------------------------------------------------------------------------------------------------------


HOST = "secretmanager.googleapis.com"


class SecretManager:
    """The secrets of one project, by their whole names: `projects/PROJECT/secrets/ID`. Every call raises Missing,
    Refused, Transient. Threads may share it."""

    def __init__(self, project: str, *, region: str = "", endpoint: str = "") -> None:
        """`region`: where new secrets are kept; empty: Google chooses. `endpoint`: as of GoogleRest. Raises Refused
        when there are no credentials."""
        self._project = project
        self._replication: dict[str, Any] = {"automatic": {}}
        if region:
            self._replication = {"userManaged": {"replicas": [{"location": region}]}}
        credentials = None if endpoint else identity.default("Secret Manager")[0]
        self._rest = GoogleRest(project, credentials, endpoint=endpoint)

    def name(self, id: str) -> str:
        return f"projects/{self._project}/secrets/{id}"

    def list(self, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Return the secrets that carry all of these labels, as the service describes them."""
        wanted = " AND ".join(f"labels.{label}={value}" for label, value in labels.items())
        where = f"v1/projects/{self._project}/secrets"
        yield from self._rest.pages(HOST, where, "secrets", filter=wanted)

    def access(self, name: str, version: int = 0) -> tuple[int, bytes]:
        """Return the number and the content of a version; 0: the newest that is known."""
        answer = self._rest.get(HOST, f"v1/{name}/versions/{version or 'latest'}:access")
        return _number(answer), _data(answer)

    def add(self, name: str, payload: bytes) -> int:
        """Returns the number of the new version."""
        body = {"payload": {"data": base64.b64encode(payload).decode()}}
        return _number(self._rest.post(HOST, f"v1/{name}:addVersion", body))

    def ensure(self, name: str, labels: Mapping[str, str], *, ttl: float | None = None) -> bool:
        """Make sure that the secret exists, perhaps without a version. Returns whether this call has made it. `ttl`:
        seconds until it removes itself."""
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
        body = {field: value}
        self._rest.call("PATCH", HOST, f"v1/{name}?updateMask={field}", body=body)

    def destroy(self, name: str, version: int) -> None:
        """Destroy a version, as each one costs money. One that is left behind does no other harm."""
        if version > 0:
            with contextlib.suppress(Refused, Transient):
                self._rest.post(HOST, f"v1/{name}/versions/{version}:destroy", {})

    def remove(self, name: str) -> None:
        """Remove the secret. Absent is success."""
        with contextlib.suppress(Missing):
            self._rest.call("DELETE", HOST, f"v1/{name}")

    def close(self) -> None:
        self._rest.close()


def _number(answer: dict[str, Any]) -> int:
    number = str(answer.get("name", "")).rpartition("/")[2]
    if not number.isdecimal():
        raise Transient(f"{HOST} sent a version with the name {number!r}")
    return int(number)


def _data(answer: dict[str, Any]) -> bytes:
    try:
        return base64.b64decode(answer["payload"]["data"], validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise Transient(f"{HOST} sent a version without a payload") from error
