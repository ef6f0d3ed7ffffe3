"""Replaces the values of secrets in output and texts before they leave a host.

Values are also found in the encodings of URLs, JSON and base64, which HTTP clients log. Values that were changed in
another way (reversed, compressed) are not found: redaction prevents accidents, and does not stop a hostile program.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Dict, Iterator, List, Mapping, Tuple
from urllib.parse import quote, quote_plus

_ERRORS = "surrogateescape"
_CODE = re.compile("%..")  #: a byte in a URL, which some clients write in lower case
SHORTEST = 8  #: least characters of a value; shorter ones are parts of ordinary words and numbers


class Redactor:
    """A set of secrets to replace. Threads may share it."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        """`secrets` are values by name; `[secret NAME]` replaces a value. Each line of a value counts, too."""
        marks: Dict[bytes, bytes] = {}
        for name, value in secrets.items():
            for form in _forms(value):
                marks.setdefault(form, b"[secret %s]" % name.encode("utf-8", "replace"))
        #: forms of values and their replacements, the longest form first
        self.marks: List[Tuple[bytes, bytes]] = sorted(
            marks.items(), key=lambda pair: -len(pair[0])
        )
        self.longest = len(self.marks[0][0]) if self.marks else 0

    def redact(self, data: bytes) -> bytes:
        """Return the data with all secrets replaced."""
        if not any(value in data for value, _ in self.marks):
            return data
        out: List[bytes] = []
        done = 0  # bytes of `data` that are in `out` or replaced
        for start, end, mark in self._find(data):
            if start >= done:
                out += [data[done:start], mark]
            done = max(done, end)
        return b"".join([*out, data[done:]])

    def redact_text(self, text: str) -> str:
        return self.redact(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    def _find(self, data: bytes) -> List[Tuple[int, int, bytes]]:
        """Return start, end and replacement of all matches, in order, the longest first. Matches may overlap."""
        matches: List[Tuple[int, int, bytes]] = []
        for value, mark in self.marks:
            start = data.find(value)
            while start >= 0:
                matches.append((start, start + len(value), mark))
                start = data.find(value, start + 1)
        return sorted(matches, key=lambda match: (match[0], -match[1]))


def _forms(value: str) -> List[bytes]:
    """Return the forms of a value in logs, line by line: plain, escaped for JSON and URLs, and in base64."""
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
    """Yield the base64 letters that the value alone decides, for each position of its first byte among three."""
    for before in range(3):
        first, end = -(-before * 8 // 6), (before + len(value)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(bytes(before) + value)[first:end]
