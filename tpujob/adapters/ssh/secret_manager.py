"""The keys of slices in Google Secret Manager, for a backend without a disk of its own.

Each slice has two secrets. The first holds the private key as version 1: the process that adds that version has made
the key, and all others read it. The second holds all pins in each version; the highest number counts. Both expire after
`LIFETIME` without use. The service guarantees version numbers: everybody can read a version as soon as it is added,
while `latest` may lag by minutes.
"""

from __future__ import annotations

import base64
import contextlib
import time
import zlib
from typing import Any

from tpujob.adapters.calling import Missing
from tpujob.adapters.google.rest import SCOPE, GoogleRest
from tpujob.adapters.ssh.keys import (
    HostKey,
    Pins,
    checked_name,
    new_private_key,
    read_pins,
    unpinned,
    write_pins,
)
from tpujob.errors import LOGIN, Refused, Transient
from tpujob.protocol import LABEL, OWNER_LABEL

HOST = "secretmanager.googleapis.com"
LIFETIME = 30 * 86400  #: seconds
RENEW_AFTER = 86400.0  #: seconds between two extensions of that by one process
_PREFIX, _PINS = "tpujob-", "-hosts"
_TRIES = 8


class SecretKeys:
    """A KeyStore. Keeps what it has read or written in memory until `forget`."""

    def __init__(self, project: str, *, owner: str = "local", endpoint: str = "") -> None:
        """`owner`: the label value of this backend's slices. `endpoint`: as of GoogleRest. Raises Refused when there
        are no credentials."""
        self._project = project
        self._owner = owner
        self._rest = GoogleRest(project, None if endpoint else _credentials(), endpoint=endpoint)
        self._keys: dict[str, str] = {}
        self._pins: dict[str, dict[str, HostKey]] = {}
        self._renewed: dict[str, float] = {}

    def private_key(self, slice: str) -> str:
        name = self.secret(slice)
        if slice not in self._keys:
            self._keys[slice] = self._found(name) or self._make(name)
        self._renew(slice)
        return self._keys[slice]

    def pinned(self, slice: str) -> dict[str, HostKey]:
        if slice not in self._pins:
            _, self._pins[slice] = self._latest_pins(self._pins_secret(slice))
        return dict(self._pins[slice])

    def pin(self, slice: str, keys: Pins) -> None:
        name, wanted = self._pins_secret(slice), dict(keys)
        number, newest = self._latest_pins(name)
        theirs = newest
        for _ in range(_TRIES):
            unpinned(theirs, wanted)
            wanted = {**theirs, **wanted}
            if wanted == newest:
                self._pins[slice] = wanted
                return
            self._ensure(name)
            added = self._add(name, zlib.compress(write_pins(wanted).encode()))
            newest = wanted
            if added == number + 1:
                self._destroy(name, number)
                theirs = wanted
            else:  # another writer came between, and the newest version lacks its pins
                theirs = _pins_of(self._payload(name, str(added - 1)))
            number = added
        raise Transient(f"other processes keep changing the host keys of {slice}", hint="try again")

    def key_file(self, slice: str) -> str:
        checked_name(slice)
        return ""

    def secret(self, slice: str) -> str:
        return f"projects/{self._project}/secrets/{_PREFIX}{checked_name(slice)}"

    def names(self) -> list[str]:
        where = f"v1/projects/{self._project}/secrets"
        ours = f"labels.{LABEL}=1 AND labels.{OWNER_LABEL}={self._owner}"
        listed = self._rest.pages(HOST, where, "secrets", filter=ours)
        ids = (str(one.get("name", "")).rpartition("/")[2] for one in listed)
        names = (id.removeprefix(_PREFIX) for id in ids if id.startswith(_PREFIX))
        return sorted({id.removesuffix(_PINS) for id in names})

    def forget(self, slice: str) -> None:
        self._keys.pop(slice, None)
        self._pins.pop(slice, None)
        self._renewed.pop(slice, None)
        for name in (self.secret(slice), self._pins_secret(slice)):
            with contextlib.suppress(Missing):
                self._rest.call("DELETE", HOST, f"v1/{name}")

    def read(self, secret: str) -> str:
        """The private key in the secret of that name. Raises Refused, Transient."""
        return self._payload(secret, "1").decode("ascii")

    def close(self) -> None:
        self._rest.close()

    # Secrets

    def _make(self, name: str) -> str:
        """The key that all processes use: ours if we are the first to add one."""
        self._ensure(name)
        made = new_private_key()
        return made if self._add(name, made.encode()) == 1 else self.read(name)

    def _found(self, name: str) -> str:
        """The key; empty: not made yet."""
        try:
            return self.read(name)
        except Missing:
            return ""

    def _latest_pins(self, name: str) -> tuple[int, dict[str, HostKey]]:
        """The number of the newest known version and its pins; 0 when there is none."""
        try:
            answer = self._rest.get(HOST, f"v1/{name}/versions/latest:access")
        except Missing:
            return 0, {}
        return _number(answer), _pins_of(_data(answer))

    def _payload(self, name: str, version: str) -> bytes:
        return _data(self._rest.get(HOST, f"v1/{name}/versions/{version}:access"))

    def _add(self, name: str, payload: bytes) -> int:
        """Returns the number of the new version."""
        body = {"payload": {"data": base64.b64encode(payload).decode()}}
        return _number(self._rest.post(HOST, f"v1/{name}:addVersion", body))

    def _ensure(self, name: str) -> None:
        """Afterwards the secret exists, perhaps without a version."""
        parent, _, id = name.rpartition("/")
        body: dict[str, Any] = {
            "replication": {"automatic": {}},
            "ttl": f"{LIFETIME}s",
            "labels": {LABEL: "1", OWNER_LABEL: self._owner},
        }
        try:
            self._rest.post(HOST, f"v1/{parent}?secretId={id}", body)
        except Refused as refused:
            try:
                self._rest.get(HOST, f"v1/{name}")  # another caller was first
            except Missing:
                raise refused from None

    def _destroy(self, name: str, version: int) -> None:
        """Each version that is kept costs money. One that is left behind does no other harm."""
        if version > 0:
            with contextlib.suppress(Refused, Transient):
                self._rest.post(HOST, f"v1/{name}/versions/{version}:destroy", {})

    def _renew(self, slice: str) -> None:
        """Put the expiry off, if this process has not done so for a day."""
        now = time.monotonic()
        if now - self._renewed.get(slice, now - RENEW_AFTER) < RENEW_AFTER:
            return
        for name in (self.secret(slice), self._pins_secret(slice)):
            with contextlib.suppress(Refused, Transient):  # there is time until the next day
                body = {"ttl": f"{LIFETIME}s"}
                self._rest.call("PATCH", HOST, f"v1/{name}?updateMask=ttl", body=body)
        self._renewed[slice] = now

    def _pins_secret(self, slice: str) -> str:
        return f"{self.secret(slice)}{_PINS}"


def _credentials() -> Any:
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError

    try:
        return google.auth.default(scopes=[SCOPE])[0]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    except DefaultCredentialsError as error:
        said = "no credentials for Secret Manager"
        raise Refused(said, cause="PERMISSION", hint=LOGIN) from error


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


def _pins_of(payload: bytes) -> dict[str, HostKey]:
    try:
        return read_pins(zlib.decompress(payload).decode("ascii"))
    except (zlib.error, ValueError) as error:
        raise Transient("the pinned host keys in Secret Manager cannot be read") from error
