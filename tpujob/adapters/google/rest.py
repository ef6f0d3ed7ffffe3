"""Calls to Google's REST APIs: credentials, time limit, pages, and translation of errors. No call is retried.

For calls that no other adapter makes.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from email.message import Message
from typing import Any, cast
from urllib.parse import urlencode

from tpujob.adapters.calling import Missing, ServerClock, first_line
from tpujob.adapters.session_http import SessionHttp
from tpujob.domain.model import Cause
from tpujob.errors import LOGIN, Refused, TpujobError, Transient
from tpujob.lib.http import Http, HttpRequest, fetch

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
#: seconds for one call
CALL_TIMEOUT = 15
#: no list that is read has more pages; an endless list is a server's mistake
MAX_PAGES = 200
#: reasons of a 403 that mean a missing permission; the others mean that an API or the billing is off
_DENIED = ("", "IAM_PERMISSION_DENIED", "forbidden")


class GoogleRest:
    """A client of the REST APIs for one project. Thread-safe."""

    def __init__(
        self,
        project: str,
        credentials: Any = None,
        *,
        endpoint: str = "",
        error_of: Callable[[int, Mapping[str, Any]], Exception] | None = None,
    ) -> None:
        """`endpoint`: the URL of a server that has all APIs, each below the name of its host, and needs no
        credentials. `error_of`: makes the error for an HTTP status and the answer's `error`; None: Missing, Refused or
        Transient."""
        self._project = project
        self._endpoint, self._error_of = endpoint.rstrip("/"), error_of
        self._http = _http(credentials, project)
        self._server_clock = ServerClock()

    @property
    def ahead_s(self) -> float | None:
        """The seconds by which this machine's clock is ahead of Google's; None: no call was answered."""
        server = self._server_clock.now()
        return None if server is None else time.time() - server

    def get(self, host: str, path: str, **params: str | Sequence[str]) -> dict[str, Any]:
        """Return the answer to `GET https://HOST/PATH`. Raises Missing, Refused or Transient, with a hint."""
        return self.call("GET", host, path, params=params)

    def post(self, host: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a POST. Raises as `get` does."""
        return self.call("POST", host, path, body=body)

    def pages(
        self, host: str, path: str, field: str, *, takes: str = "", **params: str
    ) -> Iterator[Any]:
        """Yield every element of a list, over all its pages. Raises as `get` does, also between two elements. `takes`:
        the needed permission, which the error names when it is missing."""
        token = ""
        for _ in range(MAX_PAGES):
            page_params = {**params, "pageToken": token} if token else params
            page = self.call("GET", host, path, params=page_params, takes=takes)
            yield from page.get(field) or ()
            token = str(page.get("nextPageToken") or "")
            if not token:
                return
        raise Transient(f"{host}: a list of more than {MAX_PAGES} pages")

    def close(self) -> None:
        self._http.close()

    def call(
        self,
        verb: str,
        host: str,
        path: str,
        *,
        params: Mapping[str, str | Sequence[str]] | None = None,
        body: Mapping[str, Any] | None = None,
        takes: str = "",
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Return the answer to one request. Raises Missing, Refused or Transient. `takes`: see `pages`. `timeout`:
        None: CALL_TIMEOUT."""
        from google.auth.exceptions import GoogleAuthError

        timeout = CALL_TIMEOUT if timeout is None else timeout
        url = f"{self._endpoint or 'https:/'}/{host}/{path}"
        url += f"?{urlencode(params, doseq=True)}" if params else ""
        headers = {"Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        try:
            sent = time.monotonic()
            request = HttpRequest(verb, url, headers if content else {}, content, timeout)
            reply = fetch(self._http, request)
            self._server_clock.note(reply.headers["Date"] or "", sent)
            document: Any = json.loads(reply.body or b"{}")
        except GoogleAuthError as error:
            raise Transient(f"no credentials that work: {first_line(error)}", hint=LOGIN) from error
        except TimeoutError as error:
            raise Transient(f"{host} did not answer within {timeout:g} s") from error
        except OSError as error:
            raise Transient(f"{host} cannot be reached from this machine") from error
        except ValueError as error:
            raise Transient(f"{host} sent an answer that is not JSON") from error
        if reply.status != 200 and self._error_of:
            raise self._error_of(reply.status, object_in(document, "error"))
        if reply.status != 200:
            raise self._error(host, reply.status, document, takes)
        if not isinstance(document, dict):
            raise Transient(f"{host} sent an answer that is not a JSON object")
        return cast("dict[str, Any]", document)

    def _error(self, host: str, status: int, document: Any, takes: str) -> TpujobError:
        """Return our error for an answer: a `google.rpc.Status`, or the older form of Compute Engine and Storage."""
        error = object_in(document, "error")
        message = first_line(error.get("message") or f"{host} answers {status}")
        if status == 404:
            return Missing(message, cause=Cause.BAD_SPEC)
        if status == 401:
            return Transient(f"the credentials are refused: {message}", hint=LOGIN)
        if status == 429 or status >= 500:
            return Transient(f"{host}: {message}")
        cause = Cause.PERMISSION if status == 403 else Cause.BAD_SPEC
        if status == 403 and takes and takes not in message and _reason(error)[0] in _DENIED:
            message = f"{message} ({takes})"
        return Refused(message, cause=cause, hint=self._hint(host, error))

    def _hint(self, host: str, error: Mapping[str, Any]) -> str:
        """Return a command that removes the reason of a refusal; empty: none. Inferred (live: reads): roles/viewer may
        read everything that is read here."""
        reason, metadata = _reason(error)
        service = metadata.get("service") or host
        project = self._project
        grant = f"gcloud projects add-iam-policy-binding {project} --member=user:YOUR_ADDRESS"
        return {
            "SERVICE_DISABLED": f"gcloud services enable {service} --project {project}",
            "accessNotConfigured": f"gcloud services enable {service} --project {project}",
            "BILLING_DISABLED": f"gcloud billing projects link {project} --billing-account=ACCOUNT",
            "CONSUMER_INVALID": "gcloud projects list",
            "USER_PROJECT_DENIED": f"{grant} --role=roles/serviceusage.serviceUsageConsumer",
            "IAM_PERMISSION_DENIED": f"{grant} --role=roles/viewer",
            "forbidden": f"{grant} --role=roles/viewer",
        }.get(reason, "")


def object_in(document: Any, name: str) -> dict[str, Any]:
    """Return the object in a field; empty where the field is missing, as the APIs leave out empty fields."""
    value = cast("dict[str, Any]", document).get(name) if isinstance(document, dict) else None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def objects(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the list of objects in a field; empty where the field is missing."""
    return list(document.get(name) or ())


def text(document: Mapping[str, Any], name: str) -> str:
    """Return the text in a field. Raises KeyError where the field is missing, TypeError for anything but text."""
    value = document[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}")
    return value


def _reason(error: Mapping[str, Any]) -> tuple[str, Mapping[str, str]]:
    """Return the reason of an error and its metadata, in the new form or the older one."""
    for detail in objects(error, "details"):
        if "reason" in detail:
            return str(detail["reason"]), object_in(detail, "metadata")
    for item in objects(error, "errors"):
        if "reason" in item:
            return str(item["reason"]), {}
    return "", {}


def _http(credentials: Any, project: str) -> Http:
    if credentials is None:
        return SessionHttp(proxied=False)  # a proxy could not reach loopback
    from google.auth.transport.requests import AuthorizedSession

    # by default a user's calls count for gcloud's project, where these APIs are not enabled
    user = type(credentials).__module__ == "google.oauth2.credentials"
    if user and not credentials.quota_project_id:
        credentials = credentials.with_quota_project(project)
    return SessionHttp(AuthorizedSession(credentials))


# Public keys of Google's tokens --------------------------------------------------------------------------------------


_KEYS_TIMEOUT = 5.0  #: seconds for one document; requests wait for it
_KEYS_LIMIT = 1 << 18


def key_fetcher(endpoint: str = "") -> Callable[[str], tuple[bytes, float]]:
    """Return a function that fetches the document at a URL: its bytes, and the seconds for which it may be cached (0:
    not stated). The function raises Transient, and never follows a redirect. `endpoint`: see GoogleRest."""
    http = SessionHttp(proxied=not endpoint)

    def fetch_document(url: str) -> tuple[bytes, float]:
        address = f"{endpoint}/{url.removeprefix('https://')}" if endpoint else url
        try:
            request = HttpRequest("GET", address, timeout=_KEYS_TIMEOUT)
            status, headers, document = fetch(http, request, _KEYS_LIMIT + 1)
        except OSError as error:
            raise Transient(f"{url} cannot be fetched: {error}") from error
        if status != 200 or len(document) > _KEYS_LIMIT:
            raise Transient(f"{url} answers HTTP {status}, {len(document)} bytes")
        return document, _max_age(headers)

    return fetch_document


def _max_age(headers: Message) -> float:
    """Return the seconds of a document's maximum age, less its age in caches (RFC 9111, section 4.2)."""
    match = re.search(r"\bmax-age=(\d{1,9})", headers.get("cache-control", ""))
    age = headers.get("age", "0")
    return max(0.0, float(match[1]) - (float(age) if age.isdecimal() else 0.0)) if match else 0.0
