"""Locations of data: a folder of this machine, a prefix of a bucket, a file on the web; and the billed routes between
them.

A list of URLs has the format of Google's Storage Transfer Service. Its first line is `TsvHttpData-1.0`. Each other line
has a URL and, after tabs, its bytes and the base64 of its MD5, both of which are optional here.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from tpujob.data.checksums import Hash, from_base64
from tpujob.errors import BadRequest, NotFound

_KNOWN = "name a folder, gs://BUCKET/PREFIX, s3://BUCKET/PREFIX, or https://HOST/FILE"
#: names of this machine, for which TLS is not required
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Folder:
    path: str

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prefix of a bucket of Cloud Storage."""

    bucket: str
    prefix: str  #: empty, or ends in a slash

    def __str__(self) -> str:
        return f"gs://{self.bucket}/{self.prefix}"


@dataclass(frozen=True, slots=True)
class S3Prefix:
    """A prefix of a bucket of S3, or of a storage with S3's API."""

    bucket: str
    prefix: str  #: empty, or ends in a slash

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"


@dataclass(frozen=True, slots=True)
class Url:
    """One file on the web."""

    url: str
    bucket: ClassVar[str] = ""  #: the web has no buckets
    prefix: ClassVar[str] = ""

    def __str__(self) -> str:
        return without_query(self.url)


@dataclass(frozen=True, slots=True)
class UrlList:
    """A file of this machine that lists files on the web."""

    path: str
    bucket: ClassVar[str] = ""
    prefix: ClassVar[str] = ""

    def __str__(self) -> str:
        return self.path


Outside = S3Prefix | Url | UrlList  #: sources outside Cloud Storage
Place = Folder | Prefix | Outside


def parse(text: str) -> Folder | Prefix | S3Prefix | Url:
    """Return the place that a text names. Raises BadRequest for an unknown storage or an unsafe URL."""
    if not text:
        raise BadRequest("the place is empty", hint=_KNOWN)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Folder(text)
    if scheme in ("http", "https"):
        return Url(checked_url(text))
    bucket, _, prefix = rest.partition("/")
    if scheme not in ("gs", "s3") or not bucket:
        raise BadRequest(f"data cannot be copied from or to {text!r}", hint=_KNOWN)
    kind = Prefix if scheme == "gs" else S3Prefix
    return kind(bucket, prefix if not prefix or prefix.endswith("/") else prefix + "/")


def checked_url(text: str) -> str:
    """Return the URL. Raises BadRequest without a file, without TLS to another machine, or with a password (logs)."""
    shown = without_query(text)
    try:
        place = urlsplit(text)
        host, _ = place.hostname or "", place.port
    except ValueError as error:
        raise BadRequest(f"{shown!r} is not a URL: {error}") from error
    if place.username is not None or place.password is not None:
        raise BadRequest("a URL must not have a user or a password in it", hint="use a signed URL")
    if not host or any(c.isspace() or not c.isprintable() for c in text):
        raise BadRequest(f"{shown!r} is not the URL of a file", hint="name https://HOST/FILE")
    if place.scheme != "https" and not (place.scheme == "http" and host in _LOOPBACK):
        raise BadRequest(
            f"{shown!r} has no TLS, so anybody on the way could change the bytes",
            hint="use https://; http:// is taken for this machine only",
        )
    if not place.path.rpartition("/")[2]:
        raise BadRequest(
            f"{shown!r} names no file, and the web has no lists of folders",
            hint="name each file: a list of URLs is a text file, see `tpujob data sync --help`",
        )
    return text


def without_query(url: str) -> str:
    """Return the URL without its query, which is a secret in signed URLs."""
    return url.partition("?")[0].partition("#")[0]


def overlap(first: Prefix, second: Prefix) -> bool:
    """Return whether one prefix contains the other, so that copies would be copied again."""
    if first.bucket != second.bucket:
        return False
    return first.prefix.startswith(second.prefix) or second.prefix.startswith(first.prefix)


#: `internet`: from Cloud Storage to this machine, which may be in the bucket's region; `regions`: between two buckets
#: of Cloud Storage; `aws`: from S3
Route = Literal["free", "internet", "regions", "aws"]


@dataclass(frozen=True, slots=True)
class Traffic:
    route: Route = "free"
    here: str = ""  #: for `regions`, the source's location; empty: unknown
    there: str = ""  #: for `regions`, the target's location; empty: unknown


def route_of(source: Place, target: Place) -> Route:
    """Return the billed route. Bytes into the cloud are free (documented), but their sender may be billed."""
    if isinstance(source, S3Prefix):
        return "aws"
    if isinstance(source, Prefix):
        return "internet" if isinstance(target, Folder) else "regions"
    return "free"


# Lists of URLs --------------------------------------------------------------------------------------------------------


HEADER = "TsvHttpData-1.0"


@dataclass(frozen=True, slots=True)
class WebFile:
    key: str  #: the name below the target
    url: str
    size: int | None = None  #: as listed
    md5: Hash | None = None


def detect_url_list(place: Place) -> Place:
    """Return the place, as a UrlList if it is a file of this machine that begins as a list of URLs."""
    if not isinstance(place, Folder):
        return place
    path = Path(place.path)
    if not path.is_file():
        return place
    with path.open("rb") as file:
        first = file.read(len(HEADER) + 2).decode("utf-8", "replace")
    return UrlList(place.path) if first.split("\n")[0].rstrip("\r") == HEADER else place


def web_files(place: Url | UrlList) -> list[WebFile]:
    """Return the files, in the order of the keys' UTF-8 bytes. Raises BadRequest, NotFound, OSError."""
    if isinstance(place, Url):
        return [WebFile(urlsplit(place.url).path.rpartition("/")[2], place.url)]
    try:
        text = Path(place.path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {place.path}") from error
    except UnicodeDecodeError as error:
        raise BadRequest(f"{place.path} is not UTF-8") from error
    return parse_list(text, place.path)


def parse_list(text: str, path: str) -> list[WebFile]:
    """Return the files of a list. Their keys are host and path, as in Storage Transfer Service. Raises BadRequest."""
    lines = text.split("\n")
    if lines[0].rstrip("\r") != HEADER:
        raise BadRequest(f"{path} is not a list of URLs: its first line is not {HEADER}")
    files: dict[str, tuple[int, WebFile]] = {}
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        try:
            file = _parse_line(line.rstrip("\r"))
        except BadRequest as error:
            raise BadRequest(f"{path}, line {number}: {error.message}", hint=error.hint) from error
        if file.key in files:
            before = files[file.key][0]
            raise BadRequest(
                f"{path}, lines {before} and {number}: both would be named {file.key}",
                hint="a query or a port is not part of the name: list them apart, and sync each to its own prefix",
            )
        files[file.key] = number, file
    if not files:
        raise BadRequest(f"{path} lists no URL")
    return sorted((file for _, file in files.values()), key=lambda file: file.key.encode())


def _parse_line(line: str) -> WebFile:
    url, *fields = line.split("\t")
    parts = urlsplit(checked_url(url))
    key = f"{parts.hostname}{parts.path}"
    if len(fields) > 2:
        raise BadRequest("there are more than three fields", hint="URL, bytes, base64 of the MD5")
    size = fields[0].strip() if fields else ""
    if size and not (size.isascii() and size.isdigit()):
        raise BadRequest(f"{size[:40]!r} is not a number of bytes of {without_query(url)}")
    digest = fields[1].strip() if len(fields) > 1 else ""
    md5 = from_base64("md5", digest)
    if digest and md5 is None:
        raise BadRequest(f"{digest[:40]!r} is not the base64 of an MD5 of {without_query(url)}")
    return WebFile(key, url, int(size) if size else None, md5)
