"""Admission to a deployed backend: every token that must be refused is, with the status that says why; real keys, real
signatures, and an issuer that rotates them."""

import base64
import logging
import math
import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from tests.support.http import call_app
from tests.support.issuer import CLIENT, REMOVED, Issuer, b64, part, subject
from tests.support.tls import self_signed
from tests.support.waiting import LONG
from tpujob.domain.access import SCHEDULER, Principal, Role
from tpujob.errors import Forbidden, TpujobError
from tpujob.service import authorization
from tpujob.web.security.middleware import SecurityMiddleware
from tpujob.web.security.sign_in import GCLOUD, SignInAuthenticator, SignInPolicy
from tpujob.web.security.tokens import MAX_KEY_AGE, PAUSE, SKEW, Keys

HOST = "tpujob-123456789.europe-west4.run.app"
URL = f"https://{HOST}"
TICK = "tpujob-tick@my-lab-4711.iam.gserviceaccount.com"
IAP_AUDIENCE = "/projects/123456789/locations/europe-west4/services/tpujob"
ADA = "ada@example.org"
CI = "ci@my-lab-4711.iam.gserviceaccount.com"
MEMBERS = {ADA: Role.SUBMITTER, "root@example.org": Role.ADMIN, CI: Role.SUBMITTER}
JOBS = ("GET", "/v1/jobs")
PASS = ("POST", "/v1/tick")


@pytest.fixture(scope="module")
def keys() -> Issuer:
    return Issuer()


@pytest.fixture
def issuer(keys: Issuer) -> Issuer:
    keys.now, keys.down, keys.fetches = time.time, False, []
    return keys


class Members:
    """By address, each with the id under which they came first; as the backend keeps them."""

    def __init__(self) -> None:
        self.roles, self.ids = dict(MEMBERS), dict[str, str]()

    def __call__(self, id: str, name: str, *, again: bool = False) -> Principal:
        del again
        if name not in self.roles:
            raise Forbidden(f"{name} is not a member")
        if self.ids.setdefault(name, id) != id:
            raise Forbidden(f"{name} was somebody else")
        return Principal(id, name, self.roles[name])


class Backend:
    """The checks of a deployed backend, in front of an app that does what the table of rights allows."""

    def __init__(self, issuer: Issuer, kind: Any = "iam", **policy: Any) -> None:
        self.members = Members()
        options = {"clients": frozenset({CLIENT}), "urls": frozenset({URL}), "tick_account": TICK}
        if kind == "iap":
            options |= {"tick_account": "", "iap_audience": IAP_AUDIENCE}
        made = SignInPolicy(kind, **(options | policy))
        door = SignInAuthenticator(made, self.members, issuer.fetch, lambda: issuer.now())
        self.app = SecurityMiddleware(self._serve, authenticator=door, hosts=[HOST])
        self.came: list[Principal] = []

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        user, status = scope["state"]["principal"], 200
        try:
            action = {"/v1/tick": "tick", "/v1/sweep": "sweep"}.get(scope["path"], "list")
            authorization.authorize(user, action)
            self.came.append(user)
        except TpujobError as error:
            status = error.http_status
        await JSONResponse({}, status)(scope, receive, send)

    def ask(self, *headers: tuple[str, str], route: tuple[str, str] = JOBS) -> tuple[int, Any]:
        """Status and body that a request with these headers gets."""
        return call_app(self.app, *route, [("host", HOST), *headers])

    def status(self, *headers: tuple[str, str], route: tuple[str, str] = JOBS) -> int:
        return self.ask(*headers, route=route)[0]


def auth(token: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {token}"


def checked(token: str) -> tuple[str, str]:
    return "X-Serverless-Authorization", f"Bearer {token}"


def stripped(token: str) -> str:
    """Return a token as Cloud Run passes it on after its check."""
    return f"{token.rpartition('.')[0]}.{REMOVED}"


# Who gets in ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["iam", "public"])
def test_a_member_is_known_by_a_token_that_google_has_signed(issuer: Issuer, kind: str) -> None:
    backend, token = Backend(issuer, kind), issuer.token()
    assert backend.status(auth(token), checked(stripped(token))) == 200, "as the command sends it"
    assert backend.status(auth(token)) == 200
    assert backend.status(("authorization", f"bearer  {token}")) == 200
    assert backend.status(auth(issuer.token(iss="accounts.google.com", azp=None))) == 200
    assert [user.name for user in backend.came] == [ADA] * 4
    assert backend.came[0] == Principal(f"google:{subject(ADA)}", ADA, Role.SUBMITTER)


def test_a_service_account_shows_a_token_for_the_backends_url(issuer: Issuer) -> None:
    backend = Backend(issuer)
    assert backend.status(auth(issuer.token(CI, aud=URL, azp=subject(CI)))) == 200
    assert backend.status(auth(issuer.token(CI, aud=URL, azp=None))) == 200
    other = "ci@another-lab.iam.gserviceaccount.com"
    assert backend.status(auth(issuer.token(other, aud=URL, azp=subject(other)))) == 403


def test_gcloud_tokens_are_believed_only_where_the_context_says_so(issuer: Issuer) -> None:
    token = auth(issuer.token(aud=GCLOUD, azp=GCLOUD))
    assert Backend(issuer).status(token) == 401
    assert Backend(issuer, clients=frozenset({CLIENT, GCLOUD})).status(token) == 200


def test_clocks_may_differ_by_less_than_the_skew_and_more_is_named(issuer: Issuer) -> None:
    now, backend = time.time(), Backend(issuer)
    for times in ({"iat": now + SKEW / 2}, {"exp": now - SKEW / 2}, {"nbf": now + SKEW / 2}):
        assert backend.status(auth(issuer.token(**times))) == 200
    token = auth(issuer.token())
    for apart, reason in ((600, "not valid yet"), (-600 - 3600, "expired")):
        issuer.now = lambda apart=apart: time.time() - apart
        status, body = backend.ask(token)
        assert (status, body["error"]["type"]) == (401, "Unauthorized")
        assert reason in body["error"]["message"]
        assert "UTC by the backend's clock" in body["error"]["message"]


def test_removal_takes_effect_at_the_next_request(issuer: Issuer) -> None:
    backend, token = Backend(issuer), auth(issuer.token())
    assert backend.status(token) == 200
    del backend.members.roles[ADA]
    assert backend.status(token) == 403


# The cases that must be refused --------------------------------------------------------------------------------------


def hs256(issuer: Issuer) -> str:
    """Signed with the public certificate as a shared secret."""
    signed = f"{part({'alg': 'HS256', 'kid': issuer.google_kid})}.{part(issuer.claims())}"
    mac = hmac.HMAC(self_signed(issuer.rsa), hashes.SHA256())
    mac.update(signed.encode())
    return f"{signed}.{b64(mac.finalize())}"


def swapped(issuer: Issuer, **claims: Any) -> str:
    """Other claims under a signature that was made for ours."""
    head, _, signature = issuer.token("eve@example.org").split(".")
    return f"{head}.{part(issuer.claims(**claims))}.{signature}"


def one_bit_off(issuer: Issuer) -> str:
    head, payload, signature = issuer.token().split(".")
    data = bytearray(base64.urlsafe_b64decode(signature + "=="))
    data[100] ^= 1
    return f"{head}.{payload}.{b64(bytes(data))}"


def other_spelling(issuer: Issuer) -> str:
    """The same signature, with other values in the bits that its last letter does not need."""
    token = issuer.token()
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return token[:-1] + letters[letters.index(token[-1]) ^ 1]


def raw(text: str) -> str:
    return b64(text.encode())


#: case: (token, the headers it is sent in are all of them `Authorization`)
REFUSED: dict[str, Callable[[Issuer], str]] = {
    "3 no algorithm": lambda i: f"{part({'alg': 'none', 'kid': i.google_kid})}.{part(i.claims())}.",
    "3 no algorithm, signed": lambda i: i.token(header={"alg": "none"}),
    "4 HS256 with the public key": hs256,
    "5 ES256 on an RSA key": lambda i: i.token(header={"alg": "ES256"}),
    "5 the assertion of IAP": lambda i: i.assertion(aud=IAP_AUDIENCE),
    "5 a list of algorithms": lambda i: i.token(header={"alg": ["RS256"]}),
    "5 a critical extension": lambda i: i.token(header={"crit": ["b64"], "b64": False}),
    "6 no kid": lambda i: i.token(header={"kid": None}),
    "6 a list as kid": lambda i: i.token(header={"kid": [i.google_kid]}),
    "6 an unknown kid": lambda i: i.token(header={"kid": "nobody's"}),
    "8 expired": lambda i: i.token(exp=time.time() - SKEW - 1),
    "8 issued in the future": lambda i: i.token(iat=time.time() + SKEW + 10),
    "8 not yet valid": lambda i: i.token(nbf=time.time() + SKEW + 10),
    "9 exp as text": lambda i: i.token(exp="9999999999"),
    "9 exp null": lambda i: i.token(payload=part(i.claims() | {"exp": None})),
    "9 exp true": lambda i: i.token(exp=True),
    "9 exp NaN": lambda i: i.token(exp=math.nan),
    "9 exp infinite": lambda i: i.token(exp=math.inf),
    "9 exp huge": lambda i: i.token(exp=10**400),
    "9 exp missing": lambda i: i.token(exp=None),
    "9 iat missing": lambda i: i.token(iat=None),
    "9 nested payload": lambda i: i.token(payload=raw("[" * 20_000 + "]" * 20_000)),
    "9 nested, and short enough": lambda i: i.token(payload=raw('{"a":' * 1000 + "1" + "}" * 1000)),
    "9 nested header": lambda i: f"{raw('[' * 5000)}.{part({})}.",
    "9 a megabyte": lambda i: i.token(note="a" * (1 << 20)),
    "9 no JSON": lambda i: i.token(payload=raw("{")),
    "9 a list": lambda i: i.token(payload=part([1])),
    "9 no base64": lambda i: i.token(payload="$$$$"),
    "9 no UTF-8": lambda i: i.token(payload=b64(b'{"a": "\xff"}')),
    "9 two parts": lambda i: i.token().rpartition(".")[0],
    "9 four parts": lambda i: f"{i.token()}.x",
    "9 letters of Latin-1": lambda i: "é.é.é",
    "10 for another client": lambda i: i.token(aud="9-x.apps.googleusercontent.com"),
    "10 for another service": lambda i: i.token(aud="https://other-123456789.run.app"),
    "10 for gcloud": lambda i: i.token(aud=GCLOUD, azp=GCLOUD),
    "10 for a list with us": lambda i: i.token(aud=[CLIENT]),
    "10 for nobody": lambda i: i.token(aud=None),
    "10 through another client": lambda i: i.token(azp="9-x.apps.googleusercontent.com"),
    "10 through a list": lambda i: i.token(azp=[CLIENT]),
    "11 of Firebase": lambda i: i.token(iss="https://securetoken.google.com/my-lab-4711"),
    "11 of another issuer": lambda i: i.token(iss="https://evil.example"),
    "11 of a list": lambda i: i.token(iss=["https://accounts.google.com"]),
    "12 not verified": lambda i: i.token(email_verified=False),
    "12 verified: missing": lambda i: i.token(email_verified=None),
    "12 verified: a text": lambda i: i.token(email_verified="true"),
    "12 no address": lambda i: i.token(email=None),
    "12 no sub": lambda i: i.token(sub=None),
    "12 a sub with a newline": lambda i: i.token(sub="1\n2"),
    "13 swapped claims": swapped,
    "13 one bit off": one_bit_off,
    "13 spelled in another way": other_spelling,
    "14 stripped": lambda i: stripped(i.token()),
    "14 stripped, for our URL": lambda i: stripped(i.token(aud=URL, azp=None)),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["iam", "public"])
@pytest.mark.parametrize("name", REFUSED)
def test_any_other_token_is_refused(
    issuer: Issuer, kind: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    backend, token = Backend(issuer, kind), REFUSED[name](issuer)
    for route in (JOBS, ("POST", "/v1/jobs"), ("GET", "/v1/tick/")):
        status, body = backend.ask(auth(token), checked(issuer.token()), route=route)
        assert (status, body["error"]["type"]) == (401, "Unauthorized"), body
    assert backend.came == []
    lines = [r.getMessage() for r in caplog.records if "refused" in r.getMessage()]
    assert len(lines) == 3, "each refusal is a line of the log"
    assert "'POST /v1/jobs'" in lines[1]
    for part_ in [p for p in token.split(".") if len(p) > 12 and p != REMOVED]:
        assert part_[:12] not in caplog.text, "no part of a token is logged"


def test_who_shows_no_token_or_two_is_refused(issuer: Issuer) -> None:
    backend, token = Backend(issuer), issuer.token()
    for headers in (
        (),
        (checked(token),),
        (checked(stripped(token)),),
        (auth(token), auth(token)),
        (auth(token), ("authorization", f"Basic {token}")),
        (("authorization", f"Basic {b64(f'me:{token}'.encode())}"),),
        (("authorization", token),),
        (("authorization", ""),),
        (("authorization", "Bearer"),),
        (("authorization", "Bearer "),),
        (("authorization", f"Bearer {token}, Bearer {token}"),),
        (("proxy-authorization", f"Bearer {token}"),),
        (("x-goog-authenticated-user-email", f"accounts.google.com:{ADA}"),),
    ):
        assert backend.status(*headers) == 401, headers
    assert backend.came == []


def test_a_signed_in_stranger_is_refused(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    backend = Backend(issuer)
    assert backend.status(auth(issuer.token())) == 200
    for subject_, claims in (
        ("eve@example.org", {}),
        (ADA, {"sub": "1234567890"}),
        ("ada@other.example", {"hd": "other.example"}),
        (f"{ADA}\nINFO all is well\x1b[2J", {}),
    ):
        status, body = backend.ask(auth(issuer.token(subject_, **claims)))
        assert (status, body["error"]["type"]) == (403, "Forbidden")
    lines = [r.getMessage() for r in caplog.records if "refused" in r.getMessage()]
    assert len(lines) == 4
    assert all(line.isprintable() for line in lines), "a stranger cannot forge a line"


# Cloud Scheduler -----------------------------------------------------------------------------------------------------


def tick(issuer: Issuer, **claims: Any) -> str:
    return issuer.token(TICK, **({"aud": URL, "azp": subject(TICK)} | claims))


def test_the_scheduler_is_known_by_a_token_that_cloud_run_has_checked(issuer: Issuer) -> None:
    backend = Backend(issuer)
    assert backend.status(auth(stripped(tick(issuer))), route=PASS) == 200
    assert backend.status(auth(tick(issuer)), route=PASS) == 200, "or by one that we check"
    assert set(backend.came) == {SCHEDULER}
    assert issuer.fetches == [CERTIFICATES]


@pytest.mark.parametrize(("kind", "account", "signed"), [("public", TICK, 200), ("iam", "", 403)])
def test_no_stripped_token_counts_without_cloud_runs_check_or_a_scheduler(
    issuer: Issuer, kind: str, account: str, signed: int
) -> None:
    backend = Backend(issuer, kind, tick_account=account)
    assert backend.status(auth(tick(issuer)), route=PASS) == signed
    assert backend.status(auth(stripped(tick(issuer))), route=PASS) == 401


#: of a stripped token, which anybody may write
FORGED: dict[str, dict[str, Any]] = {
    "for another": {"aud": "https://somebody-else.run.app"},
    "for the lab's client": {"aud": CLIENT, "azp": CLIENT},
    "of another": {"email": "eve@my-lab-4711.iam.gserviceaccount.com"},
    "of a member": {"email": ADA},
    "not verified": {"email_verified": "true"},
    "issuer": {"iss": "https://evil.example"},
    "expired": {"exp": 1_600_000_000},
    "without an end": {"exp": None},
    "strange end": {"exp": True},
    "endless": {"exp": 10**400},
    "from the future": {"iat": 9_999_999_999},
    "without a beginning": {"iat": None},
    "without a sub": {"sub": None},
    "a list of issuers": {"iss": [1]},
}


MALFORMED = (
    REMOVED, f".{REMOVED}", f"..{REMOVED}", f"a.$$$.{REMOVED}", f"a.{'W' * 40_000}.{REMOVED}",
    f"{part({})}.{part({})}.{REMOVED}", f"a.{raw('[' * 6000)}.{REMOVED}", f"a.{part([1])}.{REMOVED}",
)  # fmt: skip


def test_any_other_stripped_token_makes_no_pass(issuer: Issuer) -> None:
    backend = Backend(issuer)
    forged = {name: stripped(tick(issuer, **claims)) for name, claims in FORGED.items()}
    for name, token in {**forged, **{text[:50]: text for text in MALFORMED}}.items():
        assert backend.status(auth(token), route=PASS) == 401, name
    assert backend.came == []


def test_a_tick_that_cloud_run_did_not_check_is_a_forgery(issuer: Issuer) -> None:
    """Whoever may invoke the service can write the first header, as Cloud Run then checks the second alone."""
    backend = Backend(issuer)
    for other in (issuer.token(), stripped(issuer.token()), ""):
        assert backend.status(auth(stripped(tick(issuer))), checked(other), route=PASS) == 401


def test_the_scheduler_may_do_nothing_else_and_members_make_no_passes(issuer: Issuer) -> None:
    backend = Backend(issuer)
    for route in (JOBS, ("POST", "/v1/jobs"), ("GET", "/v1/tick/x")):
        assert backend.status(auth(tick(issuer)), route=route) == 403
        assert backend.status(auth(stripped(tick(issuer))), route=route) == 401
    assert backend.status(auth(issuer.token()), route=PASS) == 403
    assert backend.status(auth(issuer.token()), route=("POST", "/v1/sweep")) == 403
    root = auth(issuer.token("root@example.org"))
    assert backend.status(root, route=("POST", "/v1/sweep")) == 200


# Identity-Aware Proxy ------------------------------------------------------------------------------------------------


def iap(issuer: Issuer, **claims: Any) -> tuple[str, str]:
    return "x-goog-iap-jwt-assertion", issuer.assertion(**({"aud": IAP_AUDIENCE} | claims))


def test_behind_iap_its_assertion_says_who_it_is(issuer: Issuer) -> None:
    backend = Backend(issuer, "iap")
    assert backend.status(iap(issuer)) == 200
    assert backend.came == [Principal(f"google:{subject(ADA)}", ADA, Role.SUBMITTER)]
    assert backend.status(iap(issuer, email="eve@example.org")) == 403


ASSERTED: dict[str, dict[str, Any]] = {
    "the form of the IAM resource": {
        "aud": "/projects/123456789/iap_web/cloud_run-europe-west4/services/tpujob"
    },
    "another service": {"aud": IAP_AUDIENCE + "2"},
    "a list": {"aud": [IAP_AUDIENCE]},
    "another issuer": {"iss": "https://accounts.google.com"},
    "no account of Google": {"sub": "sts.google.com:123"},
    "no prefix": {"sub": "123"},
    "expired": {"exp": 1_600_000_000},
}


def test_behind_iap_nothing_else_is_believed(issuer: Issuer) -> None:
    backend, (header, assertion) = Backend(issuer, "iap"), iap(issuer)
    head, _, signature = assertion.split(".")
    _, payload, _ = issuer.assertion("root@example.org", aud=IAP_AUDIENCE).split(".")
    assert backend.status((header, f"{head}.{payload}.{signature}")) == 401, "of another assertion"
    for name, claims in ASSERTED.items():
        assert backend.status(iap(issuer, **claims)) == 401, name
    for headers in (
        (("x-goog-authenticated-user-email", f"accounts.google.com:{ADA}"),),
        (auth(issuer.token()),),
        (auth(assertion),),
        (iap(issuer), iap(issuer)),
        (("x-goog-iap-jwt-assertion", issuer.token()),),
        (("x-goog-iap-jwt-assertion", stripped(assertion)),),
    ):
        assert backend.status(*headers) == 401, headers
    assert backend.status(auth(stripped(tick(issuer))), route=PASS) == 401
    assert Backend(issuer).status(iap(issuer)) == 401, "nor the assertion where IAP is not"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"origin": URL}, 200),
        ({}, 403),
        ({"sec-fetch-site": "cross-site", "origin": URL}, 403),
        ({"sec-fetch-site": "none"}, 403),
        ({"origin": f"http://{HOST}"}, 403),
        ({"origin": f"https://{HOST}.evil.example"}, 403),
    ],
)
def test_behind_iap_a_page_of_another_origin_changes_nothing(
    issuer: Issuer, headers: Mapping[str, str], status: int
) -> None:
    """A browser shows a person's cookie of IAP with whatever any page sends."""
    backend = Backend(issuer, "iap")
    assert backend.status(iap(issuer), *headers.items(), route=("POST", "/v1/jobs")) == status
    assert backend.status(iap(issuer)) == 200, "reading changes nothing"


def test_behind_iap_a_browser_comes_back_from_googles_sign_in_to_a_page(issuer: Issuer) -> None:
    backend, back = Backend(issuer, "iap"), {"sec-fetch-site": "cross-site"}
    back |= {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    page = ("GET", "/jobs/000042")
    assert backend.status(iap(issuer), *back.items(), route=page) == 200
    backend.members.roles.clear()
    assert backend.status(iap(issuer), *back.items(), route=page) == 403


# The keys ------------------------------------------------------------------------------------------------------------


CERTIFICATES = "https://www.googleapis.com/oauth2/v1/certs"


class Turned:
    """A clock that is turned by hand, and the keys that go by it."""

    def __init__(self, max_age: int = 600) -> None:
        self.at, self.issuer = 0.0, Issuer()
        self.issuer.max_age = max_age
        self.keys = Keys(lambda: self.issuer.fetch(CERTIFICATES), lambda: self.at)

    def knows(self, kid: str, at: float | None = None) -> bool:
        """Whether a key of that id is found, at that time or now."""
        self.at = self.at if at is None else at
        return self.keys.find(kid) is not None


def test_keys_are_fetched_once_for_as_long_as_their_issuer_says() -> None:
    turned = Turned()
    issuer, kid = turned.issuer, turned.issuer.google_kid
    assert all(turned.knows(kid, at) for at in (0.0, 10.0, 599.0))
    assert len(issuer.fetches) == 1
    issuer.rotate()
    assert turned.knows(kid), "a cached key is believed until its time is over"
    assert not turned.knows(kid, 700.0), "it was taken out of the set"
    assert turned.knows(issuer.google_kid)


def test_an_issuer_that_says_nothing_or_too_much_is_asked_again_in_time() -> None:
    for max_age, until in ((0, 300.0), (10, 300.0), (10**8, MAX_KEY_AGE)):
        turned = Turned(max_age=max_age)
        for at, fetches in ((0.0, 1), (until - 1, 1), (until, 2)):
            assert turned.knows(turned.issuer.google_kid, at)
            assert len(turned.issuer.fetches) == fetches


def test_unknown_keys_make_at_most_one_fetch_in_thirty_seconds() -> None:
    turned = Turned()
    issuer = turned.issuer
    assert turned.knows(issuer.google_kid)
    assert not any(turned.knows(f"unknown-{n}", PAUSE) for n in range(100))
    assert len(issuer.fetches) == 2
    issuer.rotate()
    assert not turned.knows(issuer.google_kid), "a rotation right after is seen later"
    assert turned.knows(issuer.google_kid, 2 * PAUSE)
    assert len(issuer.fetches) == 3


def test_while_the_issuer_is_down_known_keys_work_for_a_day_and_unknown_ones_do_not() -> None:
    turned = Turned()
    issuer, kid = turned.issuer, turned.issuer.google_kid
    assert turned.knows(kid)
    issuer.down = True
    assert turned.knows(kid, 5000.0)
    assert not turned.knows("unknown")
    assert len(issuer.fetches) == 2
    assert not turned.knows(kid, MAX_KEY_AGE), "it was not confirmed for too long"
    issuer.down = False
    assert turned.knows(kid, MAX_KEY_AGE + PAUSE)


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"a": "no key"}', b'{"a": 1}', b"\xff"])
def test_a_document_that_holds_no_keys_changes_nothing(document: bytes) -> None:
    turned = Turned()
    answers = [turned.issuer.fetch(CERTIFICATES), (document, 600.0)]
    turned.keys = Keys(lambda: answers.pop(0), lambda: turned.at)
    assert turned.knows(turned.issuer.google_kid)
    assert turned.knows(turned.issuer.google_kid, 700.0)
    assert answers == [], "the broken document was looked at"


def test_a_small_key_is_not_believed() -> None:
    weak = Issuer()
    weak.rsa = rsa.generate_private_key(65537, 1024)
    assert Backend(weak).status(auth(weak.token())) == 401


def test_a_key_of_another_kind_verifies_nothing() -> None:
    mixed: Any = Issuer()
    assertion = iap(mixed)
    mixed.ec = mixed.rsa
    assert Backend(mixed, "iap").status(assertion) == 401


def test_twenty_callers_at_once_make_one_fetch(issuer: Issuer) -> None:
    fetches, together = threading.Semaphore(0), threading.Event()

    def fetch() -> tuple[bytes, float]:
        fetches.release()
        together.wait(LONG)
        return issuer.fetch(CERTIFICATES)

    keys = Keys(fetch)
    with ThreadPoolExecutor(20) as pool:
        lookups = [pool.submit(keys.find, issuer.google_kid) for _ in range(20)]
        assert fetches.acquire(timeout=LONG)
        together.set()
        assert all(lookup.result(LONG) for lookup in lookups)
    assert not fetches.acquire(blocking=False), "a second caller asked, too"


def test_no_mangled_token_gets_in(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    """A real token, cut, doubled and with letters changed, in any way that comes to mind."""
    backend, draw, whole = Backend(issuer), random.Random(12), issuer.token()
    caplog.set_level(logging.ERROR)
    for _ in range(300):
        token = list(whole)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(token))
            token[at] = draw.choice(["", "A", ".", "=", "+", "_", "é", token[at] * 2])
        mangled = "".join(token)
        assert mangled == whole or backend.status(auth(mangled)) == 401, mangled
    assert backend.came == []
