"""Replaces the values of secrets in what leaves a host: whole lines of the program's output, and single texts.

A value is also found as a URL and base64 spell it: HTTP clients log these. A value that was changed in another way
(spelt backwards, compressed) is not found: this prevents accidents, and does not stop a program that wants to tell.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Dict, Iterator, List, Mapping, Tuple
from urllib.parse import quote, quote_plus

_ERRORS = "surrogateescape"
_CODE = re.compile("%..")  #: as a URL spells a byte; some clients spell it in lower case
SHORTEST = 8  #: characters of a value; shorter ones are parts of ordinary words and numbers


class Redactor:
    """Knows which texts are to be replaced. Any number of threads may share it."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        """`secrets`: by name, which stands in the value's place. Of a value of several lines each line counts, as logs
        are made of lines."""
        found: Dict[bytes, bytes] = {}
        for name, value in secrets.items():
            for form in _forms(value):
                found.setdefault(form, b"[secret %s]" % name.encode("utf-8", "replace"))
        #: the longer first: of two at one place it is the one to name
        self.marks: List[Tuple[bytes, bytes]] = sorted(
            found.items(), key=lambda pair: -len(pair[0])
        )
        self.longest = len(self.marks[0][0]) if self.marks else 0

    def redact(self, data: bytes) -> bytes:
        """The same without secrets."""
        if not any(value in data for value, _ in self.marks):
            return data
        out: List[bytes] = []
        done = 0  #: up to here everything is in `out` or replaced
        for start, end, mark in self._found(data):
            if start >= done:
                out += [data[done:start], mark]
            done = max(done, end)
        return b"".join([*out, data[done:]])

    def redact_text(self, text: str) -> str:
        return self.redact(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    def _found(self, data: bytes) -> List[Tuple[int, int, bytes]]:
        """Every place of every value, in order; places may overlap."""
        found: List[Tuple[int, int, bytes]] = []
        for value, mark in self.marks:
            at = data.find(value)
            while at >= 0:
                found.append((at, at + len(value), mark))
                at = data.find(value, at + 1)
        return sorted(found, key=lambda one: (one[0], -one[1]))


def _forms(value: str) -> List[bytes]:
    """Return how a value may look in a log, line by line: as it is, as JSON and as URLs escape it, and in base64."""
    forms: List[bytes] = []
    for line in [value, *value.splitlines()]:
        text = line.strip()
        urls = [quote(text, safe, errors=_ERRORS) for safe in ("", "/")]
        urls.append(quote_plus(text, errors=_ERRORS))
        lower = [_CODE.sub(lambda code: code[0].lower(), url) for url in urls]
        for form in (text, json.dumps(text)[1:-1], *urls, *lower):
            if len(form) >= SHORTEST and "\n" not in form and "\r" not in form:
                forms.append(form.encode("utf-8", _ERRORS))
    for text in (value, value.strip()):
        if len(text) >= SHORTEST:
            forms += _in_base64(text.encode("utf-8", _ERRORS))
    return forms


def _in_base64(value: bytes) -> Iterator[bytes]:
    """Yield what any text that contains the value contains in base64: the letters that the value alone decides, for
    each place of its first byte among three."""
    for before in range(3):
        first, end = -(-before * 8 // 6), (before + len(value)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(bytes(before) + value)[first:end]
