"""Where data is: a folder of this machine, or a prefix of a bucket. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tpujob.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Folder:
    path: str


@dataclass(frozen=True, slots=True)
class Prefix:
    bucket: str
    prefix: str  #: empty, or with a slash at its end


def parse(text: str) -> Folder | Prefix:
    """Raises BadRequest for the address of a storage that is not known."""
    if not text:
        raise BadRequest("the place is empty", hint="name a folder, or gs://BUCKET/PREFIX")
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Folder(text)
    bucket, _, prefix = rest.partition("/")
    if scheme != "gs" or not bucket:
        raise BadRequest(
            f"{text!r} is no place that data can be copied from or to",
            hint="name a folder, or gs://BUCKET/PREFIX",
        )
    return Prefix(bucket, prefix if not prefix or prefix.endswith("/") else prefix + "/")
