"""Files on the web: one by its URL, or many by a list as Google's Storage Transfer Service takes it.

The first line of a list is `TsvHttpData-1.0`; each other one has a URL, and after tabs, where known, its bytes and the
base64 of its MD5 (documented; there both are needed).
"""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tpujob.data.checksums import Hash, from_base64
from tpujob.data.places import Folder, Place, Url, UrlList, checked_url, without_query
from tpujob.errors import BadRequest, NotFound

HEADER = "TsvHttpData-1.0"


@dataclass(frozen=True, slots=True)
class WebFile:
    key: str  #: its name below the target
    url: str
    size: int | None = None  #: as the list says
    md5: Hash | None = None


def listed(place: Place) -> Place:
    """The place; but a file of this machine that begins as a list of URLs is one."""
    if not isinstance(place, Folder):
        return place
    path = Path(place.path)
    if not path.is_file():
        return place
    with path.open("rb") as file:
        first = file.read(len(HEADER) + 2).decode("utf-8", "replace")
    return UrlList(place.path) if first.split("\n")[0].rstrip("\r") == HEADER else place


def files_of(place: Url | UrlList) -> list[WebFile]:
    """In the order of the keys' UTF-8 bytes. Raises BadRequest, which names the line; NotFound, OSError."""
    if isinstance(place, Url):
        return [WebFile(urlsplit(place.url).path.rpartition("/")[2], place.url)]
    try:
        text = Path(place.path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {place.path}") from error
    except UnicodeDecodeError as error:
        raise BadRequest(f"{place.path} is no UTF-8") from error
    return parse_list(text, place.path)


def parse_list(text: str, path: str) -> list[WebFile]:
    """Pure. A file is named after its host and path, as Storage Transfer Service does."""
    lines = text.split("\n")
    if lines[0].rstrip("\r") != HEADER:
        raise BadRequest(f"{path} is no list of URLs: its first line is not {HEADER}")
    found: dict[str, tuple[int, WebFile]] = {}
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        try:
            file = _file(line.rstrip("\r"))
        except BadRequest as error:
            raise BadRequest(f"{path}, line {number}: {error.message}", hint=error.hint) from error
        if file.key in found:
            before = found[file.key][0]
            raise BadRequest(
                f"{path}, lines {before} and {number}: both would be named {file.key}",
                hint="a query or a port is no part of the name: list them apart, and sync each to its own prefix",
            )
        found[file.key] = number, file
    if not found:
        raise BadRequest(f"{path} lists no URL")
    return sorted((file for _, file in found.values()), key=lambda file: file.key.encode())


def _file(line: str) -> WebFile:
    url, *rest = line.split("\t")
    place = urlsplit(checked_url(url))
    key = f"{place.hostname}{place.path}"
    if len(rest) > 2:
        raise BadRequest("there are more than three fields", hint="URL, bytes, base64 of the MD5")
    size = rest[0].strip() if rest else ""
    if size and not (size.isascii() and size.isdigit()):
        raise BadRequest(f"{size[:40]!r} is no number of bytes of {without_query(url)}")
    digest = rest[1].strip() if len(rest) > 1 else ""
    md5 = from_base64("md5", digest)
    if digest and md5 is None:
        raise BadRequest(f"{digest[:40]!r} is not the base64 of an MD5 of {without_query(url)}")
    return WebFile(key, url, int(size) if size else None, md5)
