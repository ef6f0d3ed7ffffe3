"""How one call to Google's REST APIs is made: credentials, time limit, pages, and the answers' errors turned into ours.

For questions about a project that no other adapter asks. Nothing is repeated.
"""

import functools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import urllib3

from tpujob.adapters.calling import Missing, ServerClock, first_line
from tpujob.domain.model import Cause
from tpujob.errors import LOGIN, Refused, TpujobError, Transient

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
#: seconds for one call
PATIENCE = 15
#: no list read here has more pages; an endless one is a server's mistake
MOST_PAGES = 200


#: reasons of 403 by which a permission is missing; others are that an API or the billing is off
_DENIED = ("", "IAM_PERMISSION_DENIED", "forbidden")


class GoogleRest:
    """The REST APIs on behalf of one project. Threads may share it."""

    def __init__(self, project: str, credentials: Any = None, *, endpoint: str = "") -> None:
        """`endpoint`: the URL of a server that stands for all of them, each below the name of its host; it is called
        without credentials."""
        self._project = project
        self._endpoint = endpoint.rstrip("/")
        self._session = _session(credentials, project)
        self._server = ServerClock()

    @property
    def ahead_s(self) -> float | None:
        """By how much this machine's clock is ahead of Google's; None: nothing has answered."""
        theirs = self._server.now()
        return None if theirs is None else time.time() - theirs

    def get(self, host: str, path: str, **params: str | Sequence[str]) -> dict[str, Any]:
        """The answer to `GET https://HOST/PATH`. Raises Missing, Refused or Transient, with a hint what to do."""
        return self.call("GET", host, path, params=params)

    def post(self, host: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """As `get`, for questions that are a POST at Google."""
        return self.call("POST", host, path, body=body)

    def pages(
        self, host: str, path: str, field: str, *, takes: str = "", **params: str
    ) -> Iterator[Any]:
        """Every element of a list, over all its pages. Raises as `get` does, also between two elements. `takes`: the
        permission that it takes, which the error names when it is missing."""
        token = ""
        for _ in range(MOST_PAGES):
            more = {"pageToken": token} if token else {}
            page = self.call("GET", host, path, params={**params, **more}, takes=takes)
            yield from page.get(field) or ()
            token = str(page.get("nextPageToken") or "")
            if not token:
                return
        raise Transient(f"{host}: a list of more than {MOST_PAGES} pages")

    def close(self) -> None:
        self._session.close()

    def call(
        self,
        verb: str,
        host: str,
        path: str,
        *,
        params: Mapping[str, str | Sequence[str]] | None = None,
        body: Mapping[str, Any] | None = None,
        takes: str = "",
    ) -> dict[str, Any]:
        from google.auth.exceptions import GoogleAuthError
        from requests.exceptions import RequestException

        url = f"{self._endpoint or 'https:/'}/{host}/{path}"
        try:
            sent = time.monotonic()
            answer = self._session.request(verb, url, params=params, json=body, timeout=PATIENCE)
            self._server.note(answer.headers.get("Date", ""), sent)
            found: Any = answer.json() if answer.content else {}
        except GoogleAuthError as error:
            raise Transient(f"no credentials that work: {first_line(error)}", hint=LOGIN) from error
        except RequestException as error:  # also when the answer is not JSON
            raise Transient(f"{host} {_trouble(error)}") from error
        if answer.status_code != 200:
            raise self._error(host, int(answer.status_code), found, takes)
        if not isinstance(found, dict):
            raise Transient(f"{host} sent an answer that is not a JSON object")
        return cast("dict[str, Any]", found)

    def _error(self, host: str, status: int, found: Any, takes: str) -> TpujobError:
        """Our error for an answer: `google.rpc.Status` in JSON, or the older form of Compute Engine and Storage."""
        error = part(found, "error")
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
        """What to do about the reason that Google gives. Inferred (live: reads): a viewer may read
        everything that is asked here."""
        reason, metadata = _reason(error)
        service = metadata.get("service") or host
        project = self._project
        give = f"gcloud projects add-iam-policy-binding {project} --member=user:YOUR_ADDRESS"
        return {
            "SERVICE_DISABLED": f"gcloud services enable {service} --project {project}",
            "accessNotConfigured": f"gcloud services enable {service} --project {project}",
            "BILLING_DISABLED": f"gcloud billing projects link {project} --billing-account=ACCOUNT",
            "CONSUMER_INVALID": "gcloud projects list",
            "USER_PROJECT_DENIED": f"{give} --role=roles/serviceusage.serviceUsageConsumer",
            "IAM_PERMISSION_DENIED": f"{give} --role=roles/viewer",
            "forbidden": f"{give} --role=roles/viewer",
        }.get(reason, "")


def part(found: Any, name: str) -> dict[str, Any]:
    """The object of that name; empty where it is missing, as the APIs leave out empty fields."""
    value = cast("dict[str, Any]", found).get(name) if isinstance(found, dict) else None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def parts(found: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """The objects of that list; empty where it is missing."""
    return list(found.get(name) or ())


def text(found: Mapping[str, Any], name: str) -> str:
    """The text of that name. Raises KeyError where it is missing, TypeError for anything but text."""
    value = found[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}")
    return value


def _reason(error: Mapping[str, Any]) -> tuple[str, Mapping[str, str]]:
    for detail in parts(error, "details"):
        if "reason" in detail:
            return str(detail["reason"]), part(detail, "metadata")
    for one in parts(error, "errors"):
        if "reason" in one:
            return str(one["reason"]), {}
    return "", {}


def _trouble(error: Exception) -> str:
    from requests.exceptions import ConnectionError, JSONDecodeError, Timeout

    if isinstance(error, Timeout):
        return f"did not answer within {PATIENCE} s"
    if isinstance(error, JSONDecodeError):
        return "sent an answer that is not JSON"
    if isinstance(error, ConnectionError):
        return "cannot be reached from this machine"
    return f"could not be asked: {type(error).__name__}"


def _session(credentials: Any, project: str) -> Any:
    """Does not follow redirects, so that credentials go to the intended host only."""
    import requests

    session: Any = requests.Session()
    if credentials is None:
        session.trust_env = False  # a proxy cannot reach a server on loopback
    else:
        from google.auth.transport.requests import AuthorizedSession

        # otherwise a user's calls count for gcloud's own project, where these APIs are not enabled
        user = type(credentials).__module__ == "google.oauth2.credentials"
        if user and not credentials.quota_project_id:
            credentials = credentials.with_quota_project(project)
        session = AuthorizedSession(credentials)
    session.request = functools.partial(session.request, allow_redirects=False)
    return session


# Public keys of Google's tokens --------------------------------------------------------------------------------------


_KEYS_TIMEOUT = 5.0  #: seconds for one document; requests wait for it
_KEYS_LIMIT = 1 << 18


def key_fetcher(endpoint: str = "") -> Callable[[str], tuple[bytes, float]]:
    """Return a function that fetches the document at a URL: its bytes, and the seconds that it may be kept (0: not
    stated). It raises Transient, and never follows a redirect. `endpoint`: the URL of a server that stands for all
    hosts, each below its name."""
    pool = urllib3.PoolManager(retries=False, timeout=_KEYS_TIMEOUT)

    def fetch(url: str) -> tuple[bytes, float]:
        place = f"{endpoint}/{url.removeprefix('https://')}" if endpoint else url
        try:
            answer = pool.request("GET", place, redirect=False, preload_content=False)
            try:
                document = answer.read(_KEYS_LIMIT + 1)
            finally:
                answer.release_conn()
        except urllib3.exceptions.HTTPError as error:
            raise Transient(f"{url} cannot be fetched: {type(error).__name__}") from error
        if answer.status != 200 or len(document) > _KEYS_LIMIT:
            raise Transient(f"{url} answers HTTP {answer.status}, {len(document)} bytes")
        return document, _max_age(answer.headers)

    return fetch


def _max_age(headers: urllib3.HTTPHeaderDict) -> float:
    """Return what is left of its maximum age, as a cache may have kept it for a while (RFC 9111, section 4.2)."""
    match = re.search(r"\bmax-age=(\d{1,9})", headers.get("cache-control", ""))
    age = headers.get("age", "0")
    return max(0.0, float(match[1]) - (float(age) if age.isdecimal() else 0.0)) if match else 0.0
