"""An issuer of tokens for tests, in place of Google: keys that rotate, and a token endpoint. Real keys and signatures,
on loopback; each host of Google's is below its name, as `TPUJOB_GOOGLE_ENDPOINT` has it."""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tests.support.local_server import LocalServer
from tests.support.tls import self_signed

CLIENT = "1234-lab.apps.googleusercontent.com"
SECRET = "GOCSPX-of-a-desktop-client"
REMOVED = "SIGNATURE_REMOVED_BY_GOOGLE"
GOOGLE_KEYS = "/www.googleapis.com/oauth2/v1/certs"
IAP_KEYS = "/www.gstatic.com/iap/verify/public_key"


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def part(value: Any) -> str:
    return b64(json.dumps(value).encode())


def pem(key: Any) -> str:
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, spki).decode()


class Issuer:
    """Google's accounts and IAP in one: their keys and tokens."""

    def __init__(self) -> None:
        self.now: Callable[[], float] = time.time
        self.down, self.max_age = False, 600
        self.fetches: list[str] = []
        self.people: dict[str, dict[str, Any]] = {}  #: claims by code, and by refresh token
        self.revoked: list[str] = []
        self.at_the_browser = "ada@example.org"
        self.refuses = ""  #: an error of the token endpoint
        self._asked: dict[str, dict[str, str]] = {}  #: the request for which a code was issued
        self.ever: dict[str, str] = {}  #: public keys by their id; Google forgets none so soon
        self.kid = 0
        self.rotate()

    def rotate(self) -> None:
        """Replace the signing keys by new keys."""
        self.kid += 1
        self.rsa = rsa.generate_private_key(65537, 2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.ever[self.google_kid] = pem(self.rsa)

    @property
    def google_kid(self) -> str:
        return f"g{self.kid}"

    def documents(self) -> dict[str, bytes]:
        google = {self.google_kid: self_signed(self.rsa).decode()}
        return {
            GOOGLE_KEYS: json.dumps(google).encode(),
            IAP_KEYS: json.dumps({f"i{self.kid}": pem(self.ec)}).encode(),
        }

    def fetch(self, url: str) -> tuple[bytes, float]:
        """Return the keys without a network, as an authenticator fetches them."""
        self.fetches.append(url)
        if self.down:
            raise OSError("the issuer is down")
        return self.documents()["/" + url.removeprefix("https://")], float(self.max_age)

    # Tokens ----------------------------------------------------------------------------------------------------------

    def claims(self, email: str = "ada@example.org", /, **changes: Any) -> dict[str, Any]:
        """Return Google's claims of a user signed in through the lab's client. None removes a claim."""
        now = int(self.now())
        claims = {
            "iss": "https://accounts.google.com",
            "aud": CLIENT,
            "azp": CLIENT,
            "sub": subject(email),
            "email": email,
            "email_verified": True,
            "iat": now,
            "exp": now + 3600,
        }
        return {name: value for name, value in (claims | changes).items() if value is not None}

    def token(
        self,
        email: str = "ada@example.org",
        /,
        *,
        header: Mapping[str, Any] | None = None,
        payload: str = "",
        **changes: Any,
    ) -> str:
        """Return a signed ID token; `header` and `payload` (encoded) replace the usual parts."""
        head = {"alg": "RS256", "kid": self.google_kid, "typ": "JWT"} | dict(header or {})
        head = {name: value for name, value in head.items() if value is not None}
        signed = f"{part(head)}.{payload or part(self.claims(email, **changes))}"
        return f"{signed}.{b64(self.sign(signed.encode()))}"

    def sign(self, data: bytes) -> bytes:
        return self.rsa.sign(data, padding.PKCS1v15(), hashes.SHA256())

    def assertion(self, email: str = "ada@example.org", /, **changes: Any) -> str:
        """Return the assertion that IAP adds to a request."""
        claims = {
            "iss": "https://cloud.google.com/iap",
            "sub": f"accounts.google.com:{subject(email)}",
            "email": email,
            "iat": int(self.now()),
            "exp": int(self.now()) + 600,
        } | changes
        signed = f"{part({'alg': 'ES256', 'kid': f'i{self.kid}', 'typ': 'JWT'})}.{part(claims)}"
        r, s = decode_dss_signature(self.ec.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{b64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    # The token endpoint ----------------------------------------------------------------------------------------------

    def consent(self, url: str, email: str = "ada@example.org") -> str:
        """Sign a user in at that address; return the URL to which the browser is redirected."""
        params = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert urlsplit(url).path.endswith("/accounts.google.com/o/oauth2/v2/auth"), url
        assert params["scope"] == "openid email"
        assert (params["code_challenge_method"], params["response_type"]) == ("S256", "code")
        code = f"4/{secrets.token_urlsafe(16)}"
        self.people[code] = self.claims(email, nonce=params["nonce"], aud=params["client_id"])
        self._asked[code] = params
        return f"{params['redirect_uri']}?state={params['state']}&code={code}&scope=openid"

    def exchange(self, form: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """Answer `POST /token`."""
        if self.refuses:
            return 400, {"error": self.refuses}
        kind = form["grant_type"].rpartition(":")[2]
        if kind == "jwt-bearer":  # of a service account's key
            assertion = json.loads(base64.urlsafe_b64decode(form["assertion"].split(".")[1] + "=="))
            audience = {"aud": assertion["target_audience"], "azp": subject(assertion["iss"])}
            return 200, {"id_token": self.token(assertion["iss"], **audience)}
        if form["client_secret"] != SECRET:
            return 401, {"error": "invalid_client"}
        if kind == "authorization_code":
            consent, claims = self._asked.pop(form["code"], {}), self.people.pop(form["code"], {})
            hashed = b64(hashlib.sha256(form["code_verifier"].encode()).digest())
            if (consent.get("code_challenge"), consent.get("redirect_uri")) != (
                hashed,
                form["redirect_uri"],
            ):
                return 400, {"error": "invalid_grant"}
        else:
            person = self.people.get(form["refresh_token"])
            if person is None:
                return 400, {"error": "invalid_grant", "error_description": "Token revoked."}
            fresh = {"iat": int(self.now()), "exp": int(self.now()) + 3600}
            claims = {k: v for k, v in (person | fresh).items() if k != "nonce"}
            return 200, {"id_token": self.token(payload=part(claims)), "expires_in": 3599}
        refresh = f"1//{secrets.token_urlsafe(24)}"
        self.people[refresh] = claims
        token = self.token(payload=part(claims))
        return 200, {"id_token": token, "refresh_token": refresh, "expires_in": 3599}

    def answer(self, verb: str, path: str, form: Mapping[str, str]) -> tuple[int, Any]:
        """Answer a request as Google's servers do."""
        if verb == "GET" and (document := self.documents().get(path)):
            self.fetches.append(path)
            return (503, {}) if self.down else (200, json.loads(document))
        if path == "/oauth2.googleapis.com/token":
            return self.exchange(form)
        if path == "/oauth2.googleapis.com/revoke":
            self.revoked.append(form["token"])
            self.people.pop(form["token"], None)
            return 200, {}
        if path.endswith(":generateIdToken"):
            account = path.rpartition("/")[2].removesuffix(":generateIdToken")
            return 200, {"token": self.token(account, aud=form["audience"], azp=subject(account))}
        return 404, {}


def subject(email: str) -> str:
    """Return the number of an account, which never changes."""
    return str(int.from_bytes(hashlib.sha256(email.encode()).digest()[:8], "big"))


class IssuerServer(LocalServer):
    def __init__(self) -> None:
        issuer = self.issuer = Issuer()

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
                if self.headers.get("content-type", "").startswith("application/json"):
                    form = json.loads(body or "{}")
                else:
                    form = {name: values[0] for name, values in parse_qs(body).items()}
                if self.path.startswith("/accounts.google.com/o/oauth2/v2/auth?"):
                    self.send_response(302)  # the user agrees at once
                    self.send_header("location", issuer.consent(self.path, issuer.at_the_browser))
                    self.end_headers()
                    return
                status, document = issuer.answer(self.command, self.path, form)
                answer = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("cache-control", f"public, max-age={issuer.max_age}")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = _any  # noqa: N815

        super().__init__(Handler)
