"""Reads files over HTTP, in ranges: implements `data.objects.SourceReader`.

Each range is of exactly the file whose size and identity were read first.
"""

import re
import ssl
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import urljoin, urlsplit

from tpujob.adapters.calling import repeated
from tpujob.adapters.session_http import SessionHttp
from tpujob.data.checksums import hash_of_web, identity_of, validator_of
from tpujob.data.locations import WebFile, checked_url, without_query
from tpujob.data.objects import MustRestart, NotCopied, ObjectContent, ObjectFacts
from tpujob.domain.model import Cause
from tpujob.errors import BadRequest, NotFound, Refused, Transient
from tpujob.lib.http import Http, HttpRequest, HttpResponse
from tpujob.lib.tries import Backoff, Deadline
from tpujob.protocol.left_out import LeftOut

_RETRY_TIMEOUT = 60.0  #: seconds for which a HEAD request is retried
_BACKOFF = Backoff(first=0.2, longest=8.0)
_CHUNK = 1 << 20
_AT_ONCE = 16  #: HEAD requests at once
_PAGE = 256  #: files


class WebFiles:
    """One file, or the files of one list. Thread-safe."""

    def __init__(self, files: Sequence[WebFile], patience: float = _RETRY_TIMEOUT) -> None:
        """`files`: in the order of their keys' UTF-8 bytes."""
        self._files = files
        self._by_key = {file.key: file for file in files}
        self._patience = patience
        self._web = Web()

    def close(self) -> None:
        self._web.close()

    def pages(self, bucket: str, prefix: str) -> Iterator[Sequence[ObjectFacts | LeftOut]]:  # noqa: ARG002
        """Yield the facts of all files. No request is sent for a file whose size and MD5 are in the list: both are
        compared when the file is read. If the only file cannot be read, its error is raised; in a list, such a file is
        a LeftOut."""
        if len(self._files) == 1:
            yield [self._facts(self._files[0])]
            return
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for start in range(0, len(self._files), _PAGE):
                page = self._files[start : start + _PAGE]
                yield list(pool.map(self._facts_or_left_out, page))

    @contextmanager
    def open(self, bucket: str, facts: ObjectFacts, start: int) -> Generator[ObjectContent]:  # noqa: ARG002
        file = self._by_key[facts.name]
        headers = {"Range": f"bytes={start}-"} if start else {}
        if start and not file.md5:  # an MD5 reveals a mixture of two files at the end
            headers["If-Range"] = validator_of(facts.identity)
            if not headers["If-Range"]:
                raise MustRestart
        try:
            answer = self._web.ask("GET", file.url, headers)
        except Refused as error:
            raise NotCopied(error.message) from error
        try:
            if "transfer-encoding" in answer.headers:  # would overrule the length
                raise NotCopied("its server sends it in chunks, without a length to rely on")
            skip = _bytes_before(start, answer, facts, pinned=not file.md5)
            chunks = _body(answer, facts.name, skip)
            yield ObjectContent(chunks, facts.hash or hash_of_web(_headers(answer)))
        finally:
            answer.close()

    def _facts_or_left_out(self, file: WebFile) -> ObjectFacts | LeftOut:
        try:
            return self._facts(file)
        except (NotFound, Refused, Transient) as error:
            return LeftOut(file.key, error.message)

    def _facts(self, file: WebFile) -> ObjectFacts:
        return self._listed_facts(file) or self._facts_from_server(file)

    def _listed_facts(self, file: WebFile) -> ObjectFacts | None:
        """Return the facts in the list; None when size or MD5 is missing there."""
        if file.size is None or file.md5 is None:
            return None
        identity = identity_of(f"md5:{file.md5.value.hex()}", "", file.size)
        return ObjectFacts(file.key, file.size, None, 0, identity, file.md5)

    def _facts_from_server(self, file: WebFile) -> ObjectFacts:
        def once(_left: float, _failures: int) -> HttpResponse:
            try:
                answer = self._web.ask("HEAD", file.url)
            except Refused:  # some servers have no HEAD, and a signed URL is for one method only
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
        return ObjectFacts(file.key, size, None, 0, _identity(answer, size), checksum)


def _headers(answer: HttpResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}


def _size(answer: HttpResponse) -> int | None:
    """Return the size of the whole file; None when the answer does not state it."""
    if answer.status == 206:
        match = re.fullmatch(r"bytes \d+-\d+/(\d+)", answer.headers.get("content-range", ""))
        return int(match[1]) if match else None
    text = answer.headers.get("content-length", "")
    return int(text) if text.isdigit() else None


def _identity(answer: HttpResponse, size: int) -> str:
    etag = answer.headers.get("etag", "")
    return identity_of(etag, answer.headers.get("last-modified", ""), size)


def _bytes_before(start: int, answer: HttpResponse, facts: ObjectFacts, *, pinned: bool) -> int:
    """Return how many bytes at the beginning of the body precede `start` in the file. Raises NotFound when the file has
    another size or, if `pinned`, another identity than `facts`; MustRestart when the body begins elsewhere."""
    if _size(answer) != facts.size or (pinned and _identity(answer, facts.size) != facts.identity):
        raise NotFound(f"{facts.name} was replaced")
    if answer.status == 200:
        return start
    begin = re.match(r"bytes (\d+)-", answer.headers.get("content-range", ""))
    if not begin or int(begin[1]) != start:
        raise MustRestart
    return 0


def _body(answer: HttpResponse, name: str, skip: int) -> Iterator[bytes]:
    """Yield the body without its first `skip` bytes. Raises Transient when the connection breaks."""
    try:
        while data := answer.read(_CHUNK):
            if len(data) > skip:
                yield data[skip:]
            skip = max(0, skip - len(data))
    except OSError as error:
        raise Transient(f"{name} ended early: {error}") from error


# Requests ------------------------------------------------------------------------------------------------------------


_REDIRECTS = 5
#: no compression on the way: ranges and sizes would count compressed bytes
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "tpujob"}


class Web:
    """Sends requests, and follows redirects. Thread-safe."""

    def __init__(self) -> None:
        self._http: Http = SessionHttp()

    def close(self) -> None:
        self._http.close()

    def ask(self, method: str, url: str, headers: Mapping[str, str] | None = None) -> HttpResponse:
        """Return an answer with status 200 or 206, its body not read yet. Raises NotFound, Refused, Transient."""
        shown = without_query(url)
        for _ in range(_REDIRECTS + 1):
            answer = self._send(HttpRequest(method, url, {**_HEADERS, **(headers or {})}), shown)
            if answer.status not in (301, 302, 303, 307, 308):
                return _check_status(answer, shown)
            target = urljoin(url, answer.headers.get("location", ""))
            answer.close()
            _check_redirect(url, target, shown)
            url = target
        raise Refused(f"{shown} redirects more than {_REDIRECTS} times", cause=Cause.BAD_SPEC)

    def _send(self, request: HttpRequest, shown: str) -> HttpResponse:
        try:
            return self._http.send(request)
        except ssl.SSLError as error:
            raise Refused(
                f"{shown} has no certificate that this machine trusts: {error}",
                cause=Cause.PERMISSION,
            ) from error
        except OSError as error:
            raise Transient(f"{shown} does not answer: {error}") from error


def _check_redirect(url: str, target: str, shown: str) -> None:
    """Raise Refused unless a user could give the target's URL, too, and it keeps the TLS that `url` has."""
    try:
        checked_url(target)
        if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
            raise BadRequest("it has no TLS")
    except BadRequest as error:
        text = f"{shown} redirects to {without_query(target)!r}: {error.message}"
        raise Refused(text, cause=Cause.BAD_SPEC) from error


def _check_status(answer: HttpResponse, shown: str) -> HttpResponse:
    """Return the answer. Raises NotFound, Refused or Transient by its HTTP status."""
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
