"""A web server whose files can change, and which can be as poor as servers are: no ranges, no HEAD, no length."""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler

from tests.support.local_server import LocalServer


@dataclass
class WebServer:
    """`files` by path without the slash. `asked`: method, path and Range of each request."""

    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    headers: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    redirects: dict[str, str] = field(default_factory=dict[str, str])
    statuses: dict[str, int] = field(default_factory=dict[str, int])
    etags: bool = True
    times: bool = True
    ranges: bool = True
    heads: bool = True
    lengths: bool = True
    cut_after: int = 0  #: bytes after which the next bodies end early
    cuts: int = 0  #: how many
    at_cut: Callable[[], object] = lambda: None  #: called before a body ends early
    asked: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    url: str = ""

    def fetched(self) -> int:
        return sum(method == "GET" for method, _, _ in self.asked)


@contextmanager
def serving(server: WebServer) -> Iterator[WebServer]:
    class Handler(_Handler):
        web = server

    with LocalServer(Handler) as http:
        server.url = http.url
        yield server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"  # a connection each, so that no thread outlives its test
    web: WebServer

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        web, path = self.web, self.path.lstrip("/")
        range_ = self.headers.get("Range", "")
        web.asked.append((self.command, path, range_))
        name = path.partition("?")[0]
        if not body and not web.heads:
            self.send_error(405)
            return
        if status := web.statuses.get(name):
            self.send_error(status)
            return
        if name in web.redirects:
            self.send_response(302)
            self.send_header("Location", web.redirects[name])
            self.end_headers()
            return
        if name not in web.files:
            self.send_error(404)
            return
        self._file(web, name, range_, body=body)

    def _file(self, web: WebServer, name: str, range_: str, *, body: bool) -> None:
        data = web.files[name]
        etag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        time = formatdate(1_700_000_000 + sum(data[:64]), usegmt=True)
        tag = self.headers.get("If-Range", "")
        fits = not tag or (tag == etag and web.etags) or (tag == time and web.times)
        begin = re.fullmatch(r"bytes=(\d+)-(\d*)", range_) if web.ranges and fits else None
        start = int(begin[1]) if begin else 0
        end = min(len(data), int(begin[2]) + 1) if begin and begin[2] else len(data)
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        if web.lengths:
            self.send_header("Content-Length", str(end - start))
        if web.etags:
            self.send_header("ETag", etag)
        if web.times:
            self.send_header("Last-Modified", time)
        for key, value in web.headers.get(name, {}).items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            sent = data[start:end]
            if web.cuts and web.cut_after < len(sent):
                web.at_cut()
                web.cuts -= 1
                sent = sent[: web.cut_after]
            self.wfile.write(sent)
