"""The proxy in front of a deployed backend, on loopback and over TLS: Cloud Run, which checks a header and strips it,
or Identity-Aware Proxy, which demands a sign-in and adds its assertion."""

import http.client
import json
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from tests.support.issuer import CLIENT, REMOVED, Issuer
from tests.support.local_server import LocalServer
from tests.support.tls import server_tls
from tests.support.waiting import LONG
from tpujob.web.security import tokens

IAP_AUDIENCE = "/projects/1/locations/europe-west4/services/tpujob"


class Edge(LocalServer):
    """An edge at `url`, for clients that trust `certificate`. `port`: the backend's, once it runs."""

    def __init__(self, issuer: Issuer, folder: Path) -> None:
        self.issuer, self.port = issuer, 0
        self.invokers = {"ada@example.org"}  #: the users with roles/run.invoker
        self.iap = False
        self.asked: list[dict[str, str]] = []  #: the received headers of every request
        context, self.certificate = server_tls(folder)
        edge = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                edge._answer(self)

            do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815

        super().__init__(Handler, context)
        self.audiences = {CLIENT, self.url}  #: the URL, and the custom audiences

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = request.rfile.read(int(headers.get("content-length") or 0))
        self.asked.append(dict(headers))
        refused = self._refused(headers)
        if refused:
            status, extra = refused
            _send(request, status, {"content-type": "text/html", **extra}, b"<html>Error</html>")
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)
        try:
            connection.request(request.command, request.path, body=body, headers=headers)
            answer = connection.getresponse()
            answer_headers, content = dict(answer.getheaders()), answer.read()
        finally:
            connection.close()
        _send(request, answer.status, answer_headers, content)

    def _refused(self, headers: dict[str, str]) -> tuple[int, Mapping[str, str]] | None:
        """Return the edge's refusal, if any; change `headers` to those that the backend sees."""
        checked = "x-serverless-authorization"
        checked = checked if checked in headers and not self.iap else "authorization"
        login = {"location": "https://accounts.google.com/o/oauth2/v2/auth?client_id=iap"}
        token = headers.get(checked, "").removeprefix("Bearer ")
        if not token:
            return (302, login) if self.iap else (403, {})
        try:
            claims = tokens.verified(token, "RS256", self.issuer.ever.get, self.issuer.now())
            assert claims["aud"] in self.audiences
        except (tokens.Untrusted, AssertionError):
            return (302, login) if self.iap else (401, {})
        if claims["email"] not in self.invokers:
            return 403, {}
        headers[checked] = f"Bearer {token.rpartition('.')[0]}.{REMOVED}"
        if self.iap:
            assertion = self.issuer.assertion(claims["email"], aud=IAP_AUDIENCE)
            headers["x-goog-iap-jwt-assertion"] = assertion
        return None


def _send(
    request: BaseHTTPRequestHandler, status: int, headers: Mapping[str, str], body: bytes
) -> None:
    request.send_response(status)
    for name, value in headers.items():
        if name.lower() not in ("content-length", "connection", "date", "server"):
            request.send_header(name, value)
    request.send_header("content-length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


def service_account_key(issuer: Issuer, token_uri: str, email: str) -> str:
    """Return the text of a service account's key file, whose token endpoint is the issuer's."""
    form = serialization.PrivateFormat.PKCS8
    pem = issuer.rsa.private_bytes(
        serialization.Encoding.PEM, form, serialization.NoEncryption()
    ).decode()
    return json.dumps(
        {
            "type": "service_account",
            "client_email": email,
            "private_key": pem,
            "private_key_id": "1",
            "token_uri": token_uri,
        }
    )
