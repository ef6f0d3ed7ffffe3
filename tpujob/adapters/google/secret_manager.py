"""Google Secret Manager: numbered versions of secrets, for whoever keeps something there.

The service guarantees version numbers: everybody can read a version by its number as soon as it is added, while
`latest` and lists may lag by minutes.
"""

import base64
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from tpujob.adapters.calling import Missing
from tpujob.adapters.google.rest import SCOPE, GoogleRest
from tpujob.errors import LOGIN, Refused, Transient

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
        self._rest = GoogleRest(project, None if endpoint else _credentials(), endpoint=endpoint)

    def name(self, id: str) -> str:
        return f"projects/{self._project}/secrets/{id}"

    def list(self, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Those that carry all of these labels, as the service describes them."""
        wanted = " AND ".join(f"labels.{label}={value}" for label, value in labels.items())
        where = f"v1/projects/{self._project}/secrets"
        yield from self._rest.pages(HOST, where, "secrets", filter=wanted)

    def access(self, name: str, version: int = 0) -> tuple[int, bytes]:
        """The number and the content of a version; 0: the newest that is known."""
        answer = self._rest.get(HOST, f"v1/{name}/versions/{version or 'latest'}:access")
        return _number(answer), _data(answer)

    def add(self, name: str, payload: bytes) -> int:
        """Returns the number of the new version."""
        body = {"payload": {"data": base64.b64encode(payload).decode()}}
        return _number(self._rest.post(HOST, f"v1/{name}:addVersion", body))

    def ensure(self, name: str, labels: Mapping[str, str], *, ttl: float | None = None) -> bool:
        """Afterwards the secret exists, perhaps without a version. Whether this call has made it. `ttl`: seconds until
        it is removed by itself."""
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
        """Each version that is kept costs money. One that is left behind does no other harm."""
        if version > 0:
            with contextlib.suppress(Refused, Transient):
                self._rest.post(HOST, f"v1/{name}/versions/{version}:destroy", {})

    def remove(self, name: str) -> None:
        """Absent is success."""
        with contextlib.suppress(Missing):
            self._rest.call("DELETE", HOST, f"v1/{name}")

    def close(self) -> None:
        self._rest.close()


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
