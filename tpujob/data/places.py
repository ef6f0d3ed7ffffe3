"""Where data is: a folder of this machine, a prefix of a bucket, a file on the web; and which way its bytes take, as
far as they are billed. Pure; what it costs is in the price lists."""

from dataclasses import dataclass
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from tpujob.errors import BadRequest

_KNOWN = "name a folder, gs://BUCKET/PREFIX, s3://BUCKET/PREFIX, or https://HOST/FILE"
#: hosts of this machine, which may be asked without TLS
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Folder:
    path: str

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class Prefix:
    """Of a bucket of Cloud Storage."""

    bucket: str
    prefix: str  #: empty, or with a slash at its end

    def __str__(self) -> str:
        return f"gs://{self.bucket}/{self.prefix}"


@dataclass(frozen=True, slots=True)
class S3Prefix:
    """Of a bucket of S3, or of a storage that speaks its API."""

    bucket: str
    prefix: str  #: as that of `Prefix`

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


Outside = S3Prefix | Url | UrlList  #: of Cloud Storage
Place = Folder | Prefix | Outside


def parse(text: str) -> Folder | Prefix | S3Prefix | Url:
    """Raises BadRequest for the address of a storage that is not known."""
    if not text:
        raise BadRequest("the place is empty", hint=_KNOWN)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Folder(text)
    if scheme in ("http", "https"):
        return Url(checked_url(text))
    bucket, _, prefix = rest.partition("/")
    if scheme not in ("gs", "s3") or not bucket:
        raise BadRequest(f"{text!r} is no place that data can be copied from or to", hint=_KNOWN)
    kind = Prefix if scheme == "gs" else S3Prefix
    return kind(bucket, prefix if not prefix or prefix.endswith("/") else prefix + "/")


def checked_url(text: str) -> str:
    """Raises BadRequest where no file can be fetched safely: without TLS from another machine, or with a password,
    which would end in logs."""
    shown = without_query(text)
    try:
        place = urlsplit(text)
        host, _ = place.hostname or "", place.port
    except ValueError as error:
        raise BadRequest(f"{shown!r} is no URL: {error}") from error
    if place.username is not None or place.password is not None:
        raise BadRequest("a URL must not have a user or a password in it", hint="use a signed URL")
    if not host or any(c.isspace() or not c.isprintable() for c in text):
        raise BadRequest(f"{shown!r} is no URL of a file", hint="name https://HOST/FILE")
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
    """To be shown and kept: the query of a signed URL is a secret."""
    return url.partition("?")[0].partition("#")[0]


def overlap(one: Prefix, other: Prefix) -> bool:
    """Whether one lies in the other: a copy would be copied again."""
    if one.bucket != other.bucket:
        return False
    return one.prefix.startswith(other.prefix) or other.prefix.startswith(one.prefix)


#: `internet`: out of Cloud Storage to this machine, which may lie in the bucket's region; `regions`: between two
#: buckets of Cloud Storage; `aws`: out of S3
Route = Literal["free", "internet", "regions", "aws"]


@dataclass(frozen=True, slots=True)
class Traffic:
    route: Route = "free"
    here: str = ""  #: of `regions`: location of the source; empty: not known
    there: str = ""  #: that of the target


def route_of(source: Place, target: Place) -> Route:
    """Bytes into the cloud are free (documented), wherever they come from; their sender may be billed."""
    if isinstance(source, S3Prefix):
        return "aws"
    if isinstance(source, Prefix):
        return "internet" if isinstance(target, Folder) else "regions"
    return "free"
