"""Where the public keys are with which Google's tokens are verified: documents, and for how long they may be kept."""

import re
from collections.abc import Callable

import urllib3

from tpujob.errors import Transient

TIMEOUT = 5.0  #: seconds for one document; requests wait for it
MOST_BYTES = 1 << 18


def fetcher(endpoint: str = "") -> Callable[[str], tuple[bytes, float]]:
    """Return a function that fetches the document at a URL: its bytes, and the seconds that it may be kept (0: not
    stated). It raises Transient, and never follows a redirect. `endpoint`: the URL of a server that stands for all
    hosts, each below its name."""
    pool = urllib3.PoolManager(retries=False, timeout=TIMEOUT)

    def fetch(url: str) -> tuple[bytes, float]:
        place = f"{endpoint}/{url.removeprefix('https://')}" if endpoint else url
        try:
            answer = pool.request("GET", place, redirect=False, preload_content=False)
            try:
                document = answer.read(MOST_BYTES + 1)
            finally:
                answer.release_conn()
        except urllib3.exceptions.HTTPError as error:
            raise Transient(f"{url} cannot be fetched: {type(error).__name__}") from error
        if answer.status != 200 or len(document) > MOST_BYTES:
            raise Transient(f"{url} answers HTTP {answer.status}, {len(document)} bytes")
        return document, _max_age(answer.headers)

    return fetch


def _max_age(headers: urllib3.HTTPHeaderDict) -> float:
    """What is left of it, as a cache on the way may have kept the document for a while (RFC 9111, section 4.2)."""
    match = re.search(r"\bmax-age=(\d{1,9})", headers.get("cache-control", ""))
    age = headers.get("age", "0")
    return max(0.0, float(match[1]) - (float(age) if age.isdecimal() else 0.0)) if match else 0.0
