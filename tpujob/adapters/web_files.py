"""`data.objects.SourceReader` over HTTP: ranges, each for exactly the file that was looked at."""

import re
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import urljoin, urlsplit

import urllib3

from tpujob.adapters.calling import Backoff, Deadline, repeated
from tpujob.adapters.connections import pool_manager, proxy_for
from tpujob.data.checksums import hash_of_web, identity_of, validator_of
from tpujob.data.locations import WebFile, checked_url, without_query
from tpujob.data.objects import LeftOut, MustRestart, NotCopied, ObjectContent, ObjectFacts
from tpujob.domain.model import Cause
from tpujob.errors import BadRequest, NotFound, Refused, Transient

_PATIENCE = 60.0
_BACKOFF = Backoff(first=0.2, longest=8.0)
_CHUNK = 1 << 20
_AT_ONCE = 16  #: files that are looked at
_PAGE = 256


class WebFiles:
    """Threads share it. The files of one list, or one file."""

    def __init__(self, files: Sequence[WebFile], patience: float = _PATIENCE) -> None:
        """`files`: in the order of their keys' UTF-8 bytes."""
        self._files = files
        self._by_key = {file.key: file for file in files}
        self._patience = patience
        self._web = Web()

    def close(self) -> None:
        self._web.close()

    def pages(self, bucket: str, prefix: str) -> Iterator[Sequence[ObjectFacts | LeftOut]]:  # noqa: ARG002
        """Of a list, a file that cannot be had is left out by name. A file whose size and MD5 are listed is not looked
        at: both are compared when it is read."""
        if len(self._files) == 1:
            yield [self._known(self._files[0]) or self._look(self._files[0])]
            return
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for at in range(0, len(self._files), _PAGE):
                yield list(pool.map(self._one, self._files[at : at + _PAGE]))

    @contextmanager
    def open(self, bucket: str, facts: ObjectFacts, start: int) -> Generator[ObjectContent]:  # noqa: ARG002
        file = self._by_key[facts.name]
        headers = {"Range": f"bytes={start}-"} if start else {}
        if start and not file.md5:  # with an MD5 a mixture of two files is found at the end
            headers["If-Range"] = validator_of(facts.identity)
            if not headers["If-Range"]:
                raise MustRestart
        try:
            answer = self._web.ask("GET", file.url, headers)
        except Refused as error:
            raise NotCopied(error.message) from error
        try:
            if "transfer-encoding" in answer.headers:  # it would overrule the length
                raise NotCopied("its server sends it in chunks, without a length to rely on")
            skip = _begins_at(answer, facts, start, pinned=not file.md5)
            chunks = _body(answer, facts.name, skip)
            yield ObjectContent(chunks, facts.hash or hash_of_web(_headers(answer)))
        finally:
            answer.close()

    # own

    def _one(self, file: WebFile) -> ObjectFacts | LeftOut:
        try:
            return self._known(file) or self._look(file)
        except (NotFound, Refused, Transient) as error:
            return LeftOut(file.key, error.message)

    def _known(self, file: WebFile) -> ObjectFacts | None:
        """Return the facts in the list, if they are enough."""
        if file.size is None or file.md5 is None:
            return None
        identity = identity_of(f"md5:{file.md5.value.hex()}", "", file.size)
        return ObjectFacts(file.key, file.size, None, 0, identity, file.md5)

    def _look(self, file: WebFile) -> ObjectFacts:
        def once(_left: float, _failures: int) -> urllib3.BaseHTTPResponse:
            try:
                answer = self._web.ask("HEAD", file.url)
            except Refused:  # some servers know no HEAD, and a signed URL is for one method only
                answer = self._web.ask("GET", file.url)  # its body is not read
            answer.close()
            return answer

        answer = repeated(once, Deadline(self._patience), _BACKOFF)
        size = _size(answer)
        if size is None:
            text = f"{file.key}: the server does not say how large it is"
            raise Refused(text, cause=Cause.BAD_SPEC, hint="fetch it with a browser or curl first")
        if file.size not in (None, size):
            text = f"the list says {file.size} bytes, the server {size}"
            raise Refused(text, cause=Cause.BAD_SPEC)
        checksum = file.md5 or hash_of_web(_headers(answer))
        return self._known(file) or ObjectFacts(
            file.key, size, None, 0, _identity(answer, size), checksum
        )


def _headers(answer: urllib3.BaseHTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}


def _size(answer: urllib3.BaseHTTPResponse) -> int | None:
    """Return the bytes of the whole file; None: the answer does not state them."""
    if answer.status == 206:
        match = re.fullmatch(r"bytes \d+-\d+/(\d+)", answer.headers.get("content-range", ""))
        return int(match[1]) if match else None
    text = answer.headers.get("content-length", "")
    return int(text) if text.isdigit() else None


def _identity(answer: urllib3.BaseHTTPResponse, size: int) -> str:
    etag = answer.headers.get("etag", "")
    return identity_of(etag, answer.headers.get("last-modified", ""), size)


def _begins_at(
    answer: urllib3.BaseHTTPResponse, facts: ObjectFacts, start: int, *, pinned: bool
) -> int:
    """How many bytes of the body are before `start`. Raises NotFound when it is another file than was looked at."""
    if _size(answer) != facts.size or (pinned and _identity(answer, facts.size) != facts.identity):
        raise NotFound(f"{facts.name} was replaced")
    if answer.status == 200:
        return start
    begin = re.match(r"bytes (\d+)-", answer.headers.get("content-range", ""))
    if not begin or int(begin[1]) != start:
        raise MustRestart  # the server sent another part than was asked for
    return 0


def _body(answer: urllib3.BaseHTTPResponse, name: str, skip: int) -> Iterator[bytes]:
    """The bytes after the first `skip`."""
    try:
        for data in answer.stream(_CHUNK, decode_content=False):
            if len(data) > skip:
                yield data[skip:]
            skip = max(0, skip - len(data))
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Transient(f"{name} ended early: {type(error).__name__}") from error


# Requests ------------------------------------------------------------------------------------------------------------


_REDIRECTS = 5
_TIMEOUT = urllib3.Timeout(connect=20, read=60)
_CONNECTIONS = 32
#: packed on the way, ranges and sizes would be of other bytes
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "tpujob"}


class Web:
    """Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._managers: dict[str, urllib3.PoolManager] = {}

    def close(self) -> None:
        with self._lock:
            for manager in self._managers.values():
                manager.clear()
            self._managers.clear()

    def ask(
        self, method: str, url: str, headers: Mapping[str, str] | None = None
    ) -> urllib3.BaseHTTPResponse:
        """Return a good answer, whose body is not read yet: 200 or 206. Raises NotFound, Refused, Transient."""
        at, shown = url, without_query(url)
        for _ in range(_REDIRECTS + 1):
            answer = self._once(method, at, headers or {}, shown)
            if answer.status not in (301, 302, 303, 307, 308):
                return _checked(answer, shown)
            to = urljoin(at, answer.headers.get("location", ""))
            answer.close()
            at = _safe(at, to, shown)
        raise Refused(f"{shown} redirects more than {_REDIRECTS} times", cause=Cause.BAD_SPEC)

    def _once(
        self, method: str, url: str, headers: Mapping[str, str], shown: str
    ) -> urllib3.BaseHTTPResponse:
        try:
            return self._manager(url).request(
                method,
                url,
                headers={**_HEADERS, **headers},
                preload_content=False,
                decode_content=False,
                redirect=False,
                retries=False,
                timeout=_TIMEOUT,
            )
        except urllib3.exceptions.SSLError as error:
            raise Refused(
                f"{shown} has no certificate that this machine trusts: {error}",
                cause=Cause.PERMISSION,
            ) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Transient(f"{shown} does not answer: {type(error).__name__}") from error

    def _manager(self, url: str) -> urllib3.PoolManager:
        place = urlsplit(url)
        proxy = proxy_for(place.scheme, place.hostname or "")
        with self._lock:
            if proxy not in self._managers:
                self._managers[proxy] = pool_manager(proxy, _CONNECTIONS)
            return self._managers[proxy]


def _safe(at: str, to: str, shown: str) -> str:
    """Return where a redirect leads. Raises Refused for a URL that a user could not give either, and for a redirect
    from the web to a server of this machine."""
    here = urlsplit(at)
    try:
        checked_url(to)
        if here.scheme == "https" and urlsplit(to).scheme != "https":
            raise BadRequest("it has no TLS")
    except BadRequest as error:
        text = f"{shown} redirects to {without_query(to)!r}: {error.message}"
        raise Refused(text, cause=Cause.BAD_SPEC) from error
    return to


def _checked(answer: urllib3.BaseHTTPResponse, shown: str) -> urllib3.BaseHTTPResponse:
    status = answer.status
    if status in (200, 206):
        return answer
    answer.close()
    text = f"{shown}: HTTP {status}"
    if status in (404, 410, 412, 416):
        raise NotFound(text)
    if status in (408, 425, 429) or status >= 500:
        raise Transient(text)
    if status in (401, 403, 407):
        hint = "no credentials are sent: it must be public, or a signed URL that has not expired"
        raise Refused(text, cause=Cause.PERMISSION, hint=hint)
    raise Refused(text, cause=Cause.BAD_SPEC)
