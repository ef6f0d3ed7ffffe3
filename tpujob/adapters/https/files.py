"""`data.objects.Reader` over HTTP: ranges, each for exactly the file that was looked at."""

import re
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import urllib3

from tpujob.adapters.calling import Backoff, Deadline, repeated
from tpujob.adapters.https.web import Web
from tpujob.data.objects import LeftOut, NotCopied, ObjectContent, ObjectFacts, within_size
from tpujob.data.source_identity import hash_of_web, identity_of, validator_of
from tpujob.data.url_lists import WebFile
from tpujob.domain.model import Cause
from tpujob.errors import NotFound, Refused, Transient

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

    def look(self, bucket: str, name: str) -> ObjectFacts | None:  # noqa: ARG002
        try:
            return self._look(self._by_key[name])
        except NotFound:
            return None

    @contextmanager
    def open(self, bucket: str, facts: ObjectFacts, start: int) -> Generator[ObjectContent]:  # noqa: ARG002
        file = self._by_key[facts.name]
        headers = {"Range": f"bytes={start}-"} if start else {}
        if start and not file.md5:  # with an MD5 a mixture of two files is found at the end
            headers["If-Range"] = validator_of(facts.identity)
            if not headers["If-Range"]:
                raise NotFound(f"{facts.name} cannot be continued: its server has no ETag, no time")
        try:
            answer = self._web.ask("GET", file.url, headers)
        except Refused as error:
            raise NotCopied(error.message) from error
        try:
            if "transfer-encoding" in answer.headers:  # it would overrule the length
                raise NotCopied("its server sends it in chunks, without a length to rely on")
            skip = _begins_at(answer, facts, start, pinned=not file.md5)
            chunks = within_size(facts, start, _body(answer, facts.name, skip))
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
        """What the list says, if that is enough."""
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
        said = file.md5 or hash_of_web(_headers(answer))
        return self._known(file) or ObjectFacts(
            file.key, size, None, 0, _identity(answer, size), said
        )


def _headers(answer: urllib3.BaseHTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}


def _size(answer: urllib3.BaseHTTPResponse) -> int | None:
    """Of the whole file; None: not said."""
    if answer.status == 206:
        said = re.fullmatch(r"bytes \d+-\d+/(\d+)", answer.headers.get("content-range", ""))
        return int(said[1]) if said else None
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
        raise NotFound(f"the server sent another part of {facts.name} than was asked for")
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
