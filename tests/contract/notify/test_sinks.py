"""Each sink against a real receiver: what arrives, what the answers mean, and addresses that are never called."""

import ipaddress
import json
import socket
import ssl
import time
from dataclasses import replace
from pathlib import Path

import pytest
from standardwebhooks import Webhook as Reference

from tests.support.tls import https, server_tls
from tests.support.waiting import LONG
from tests.unit.notify.receivers import Web, a_message, post, web
from tpujob.adapters.calling import SystemClock
from tpujob.adapters.notify import Mail, Slack, SmtpServer, Webhook
from tpujob.adapters.notify.post import addresses, is_public, receipt_for
from tpujob.adapters.notify.smtp import mail
from tpujob.domain.notifications.delivery import message_for
from tpujob.domain.notifications.model import Notification, NotificationKind, Receipt
from tpujob.errors import NotFound, Refused, Transient

OLD = "whsec_" + "b2xkLW9sZC1vbGQtb2xkLW9sZC1vbGQtb2xkLW9sZA=="
NEW = "whsec_" + "bmV3LW5ldy1uZXctbmV3LW5ldy1uZXctbmV3LW5ldw=="
OTHER = "whsec_" + "b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXItb3Ro"
PAGE = "https://tpujob.example.org"


def webhook(url: str, *keys: str, private: bool = True) -> Webhook:
    return Webhook(lambda: url, lambda: keys or (NEW,), SystemClock(), page=PAGE, private=private)


@pytest.fixture
def receiver():
    with web() as server:
        yield server


# Standard Webhooks ---------------------------------------------------------------------------------------------------


def test_the_reference_verifier_accepts_what_either_key_signed(receiver: Web) -> None:
    message = a_message(text='<b>"ä"</b> & \u202e')
    assert webhook(receiver.url, NEW, OLD).send(message, timeout=LONG) == Receipt()
    (request,) = receiver.got
    for key in (OLD, NEW):
        data = Reference(key).verify(request.body, request.headers)
    with pytest.raises(Exception, match="No matching signature"):
        Reference(OTHER).verify(request.body, request.headers)
    assert data["type"] == "job.failed"
    assert data["data"]["notes"][0]["url"] == f"{PAGE}/jobs/000042"
    assert data["data"]["notes"][0]["command"] == "tpujob why 000042"
    assert "\u202e" not in request.body.decode()


def test_each_try_has_the_same_id_and_body_and_a_time_of_its_own(receiver: Web) -> None:
    message, now = a_message(), [1000.0]

    class Clock(SystemClock):
        def now(self) -> float:
            return now[0]

    sink = Webhook(lambda: receiver.url, lambda: (NEW,), Clock(), private=True)
    for at in (1000.0, 4600.0):
        now[0] = at
        sink.send(message, timeout=LONG)
    first, second = receiver.got
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == message.id
    assert first.body == second.body
    assert [g.headers["webhook-timestamp"] for g in receiver.got] == ["1000", "4600"]
    assert first.headers["webhook-signature"] != second.headers["webhook-signature"]


def test_a_payload_stays_below_20_kB_and_counts_its_burst(receiver: Web) -> None:
    long = "ä" * 5000
    webhook(receiver.url).send(a_message(text=long, lines=(long,), further=49), timeout=LONG)
    (request,) = receiver.got
    assert len(request.body) < 20_000, "the limit of Standard Webhooks"
    assert json.loads(request.body)["data"]["count"] == 50


@pytest.mark.parametrize("key", ["whsec_YQ==", "b2xkLW9sZC1vbGQtb2xkLW9sZC1vbGQtb2xkLW9sZA==", "x"])
def test_a_key_that_is_none_is_refused_without_a_word_of_it(receiver: Web, key: str) -> None:
    receipt = webhook(receiver.url, key).send(a_message(), timeout=LONG)
    assert receipt.permanent
    assert key not in receipt.error
    assert receiver.got == []


def test_a_secret_that_is_not_set_is_tried_again_later(receiver: Web) -> None:
    def missing() -> list[str]:
        raise NotFound("the secret OPS_KEY is not set")

    sink = Webhook(lambda: receiver.url, missing, SystemClock(), private=True)
    assert sink.send(a_message(), timeout=LONG) == Receipt("the secret OPS_KEY is not set")


# Answers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "permanent"),
    [
        (204, None),
        (301, True),
        (307, True),
        (400, True),
        (404, True),
        (408, False),
        (410, True),
        (429, False),
        (500, False),
        (502, False),
        (503, False),
        (504, False),
    ],
)
def test_what_an_answer_means(receiver: Web, status: int, permanent: bool | None) -> None:
    receiver.status, receiver.text = status, "" if status == 204 else "said\nso"
    receiver.more = {"Location": "http://127.0.0.1:1/elsewhere", "Retry-After": "7"}
    receipt = webhook(receiver.url).send(a_message(), timeout=LONG)
    assert len(receiver.got) == 1, "no redirect is followed"
    if permanent is None:
        assert receipt == Receipt()
        return
    assert receipt.error == f"HTTP {status}: said so"
    assert receipt.permanent == permanent
    assert receipt.retry_after == (7.0 if not permanent else receipt.retry_after)


def test_a_time_to_come_back_may_be_a_date() -> None:
    from email.utils import formatdate

    soon = receipt_for(503, "", formatdate(time.time() + 90, usegmt=True)).retry_after
    assert 80 < soon <= 90
    late = "Mon, 1 Jan 2026 00:00:00 +" + "9" * 20
    for nonsense in ("", "soon", "-5", "Mon, 99 Foo 2026", late, "9" * 20 + late[4:]):
        assert receipt_for(503, "", nonsense).retry_after == 0.0


@pytest.mark.parametrize("end", [" ", "\n", " x", "\x7f", "é", "\0x"])
def test_a_url_is_a_secret_also_when_it_was_pasted_badly(receiver: Web, end: str) -> None:
    """Characters around it are taken away; characters within it are refused, and the error shows nothing of it."""
    receipt = webhook(f"{receiver.url}/T0KEN{end}").send(a_message(), timeout=LONG)
    if end.strip():
        assert receipt.permanent
        assert receipt.error == "the URL is invalid"
    else:
        assert receipt == Receipt()
        assert receiver.got[0].path.endswith("/T0KEN")


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.0 500 No\r\n\r\n"], ids=["head", "body"])
def test_a_receiver_that_says_nothing_or_drips_for_ever_is_cut_off(
    receiver: Web, begin: bytes
) -> None:
    receiver.drip = begin
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        mail = Mail(server_at(port), "ada@example.org", lambda: "")
        for sink in (webhook(receiver.url), webhook(f"http://127.0.0.1:{port}"), mail):
            receipt = sink.send(a_message(), timeout=0.3)
            assert receipt.error
            assert not receipt.permanent
    assert time.monotonic() - began < LONG


def test_nobody_there_is_an_error_for_now() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        receipt = webhook(url).send(a_message(), timeout=LONG)
    assert "refused" in receipt.error
    assert not receipt.permanent


# Addresses that are never called ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.9.1", "10.0.0.1", "172.16.5.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "224.0.0.1", "255.255.255.255", "192.0.2.1", "::1", "::", "fe80::1", "fd00:ec2::254", "ff02::1", "fec0::1",
        "3fff::1",
        "192.0.0.192", "::ffff:192.0.0.192",
        "::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe", "2002:7f00:1::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public_are_refused_however_they_are_written(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "127.1", "2130706433", "0x7f.1", "[::1]"]
)
def test_a_url_that_leads_to_this_machine_is_never_called(receiver: Web, host: str) -> None:
    port = receiver.url.rpartition(":")[2]
    receipt = webhook(f"https://{host}:{port}", private=False).send(a_message(), timeout=LONG)
    assert receipt.permanent
    assert "not a public address" in receipt.error
    assert receiver.got == []


@pytest.mark.parametrize(
    "url", ["http://example.org/", "ftp://example.org/", "https://", "https://[::", "x"]
)
def test_what_is_no_safe_url_is_refused(url: str) -> None:
    assert webhook(url, private=False).send(a_message(), timeout=LONG).permanent


def test_one_private_address_among_public_ones_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    infos = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, 443)) for a in ("8.8.8.8", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: infos)
    with pytest.raises(Refused, match=r"at 10\.0\.0\.1"):
        addresses("rebound.example.org", 443, private=False)


def test_the_address_that_was_seen_is_used(receiver: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads elsewhere at the second look changes nothing: there is none."""
    port, looks = int(receiver.url.split(":")[2].partition("/")[0]), []

    def resolve(host: str, *_: object, **__: object):
        looks.append(host)
        address = "127.0.0.1" if len(looks) == 1 else "127.0.0.99"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *a, **k: resolve(host) if host == "hook.example.org" else real(host, *a, **k),
    )
    assert webhook(f"http://hook.example.org:{port}/").send(a_message(), timeout=LONG) == Receipt()
    assert looks == ["hook.example.org"]
    assert receiver.got[0].headers["Host"] == f"hook.example.org:{port}"


def test_a_name_that_nobody_knows_is_an_error_for_now() -> None:
    with pytest.raises(Transient, match="has no address"):
        addresses("no-such-host.invalid", 443, private=False)


def test_a_certificate_must_be_trusted_and_of_that_name(
    receiver: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with https(receiver.url, tmp_path) as (url, authority):
        refused = webhook(f"{url}/x").send(a_message(), timeout=LONG)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        taken = webhook(f"{url}/x").send(a_message(), timeout=LONG)
        other = webhook(url.replace("127.0.0.1", "localhost")).send(a_message(), timeout=LONG)
    assert "certificate" in refused.error.lower()
    assert taken == Receipt()
    assert "certificate" in other.error.lower()
    assert len(receiver.got) == 1


# Slack ---------------------------------------------------------------------------------------------------------------


def test_slack_gets_plain_text_one_link_and_the_command(receiver: Web) -> None:
    evil = "<!channel> <https://evil.example|click> *bold* `code` &amp; :smile:\n<@U123>"
    message = a_message(name="<!here>&<@U1>", text=evil)
    assert (
        Slack(lambda: receiver.url, page=PAGE, private=True).send(message, timeout=LONG)
        == Receipt()
    )
    body = json.loads(receiver.got[0].body)
    header, section, context = body["blocks"]
    assert header["text"]["text"] == "<!here>&<@U1> (000042) failed: CRASH in us-central2-b"
    assert body["text"].startswith("&lt;!here&gt;&amp;"), "on a phone"
    assert "<" not in body["text"]
    for block in (header, section):
        assert (block["text"]["type"], block["text"]["emoji"]) == ("plain_text", False)
    assert "<!channel>" in section["text"]["text"], "shown as it is, in text that means nothing"
    (foot,) = context["elements"]
    assert foot["text"] == f"<{PAGE}/jobs/000042|Open> `tpujob why 000042`"
    assert body["unfurl_links"] is False


def test_a_url_that_is_not_slacks_is_refused(receiver: Web) -> None:
    for url in (receiver.url, "https://hooks.slack.com.evil.example/x", "https://evil.example/"):
        receipt = Slack(lambda url=url: url).send(a_message(), timeout=LONG)
        assert receipt.permanent
        assert url not in receipt.error, "it is a secret"
    assert receiver.got == []


@pytest.mark.parametrize("kind", list(NotificationKind))
def test_every_kind_has_its_words(receiver: Web, kind: NotificationKind) -> None:
    for fact in (
        Notification("k", kind, 0.0, "what happened", lines=("one", "two")),
        Notification("k", kind, 0.0, "what happened", job="000042", name="llama", cause="X"),
    ):
        message = replace(message_for("lab", fact), more=36)
        for sink in (Slack(lambda: receiver.url, page=PAGE, private=True), webhook(receiver.url)):
            assert sink.send(message, timeout=LONG) == Receipt()
    slack = json.loads(receiver.got[0].body)
    assert all(0 < len(block["text"]["text"]) <= 3000 for block in slack["blocks"][:2])
    assert slack["blocks"][1]["text"]["text"].endswith(f"and 36 more: {PAGE}/events")


# E-mail --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server, and of a client that trusts it."""
    server, file = server_tls(tmp_path)
    return server, ssl.create_default_context(cafile=str(file))


def server_at(port: int, tls: str = "none", login: str = "") -> SmtpServer:
    return SmtpServer("127.0.0.1", port, tls, "tpujob@example.org", login)  # type: ignore[arg-type]


def test_mail_is_plain_text_with_a_link_and_an_id_that_stays() -> None:
    with post() as server:
        sink = Mail(server_at(server.port), "ada@example.org", lambda: "", page=PAGE)
        for _ in range(2):
            assert sink.send(a_message(), timeout=LONG) == Receipt()
    first, second = server.got
    assert first["Message-ID"] == second["Message-ID"]
    assert first["Subject"] == "[tpujob] llama (000042) failed: CRASH in us-central2-b"
    assert (
        mail(a_message(kind=NotificationKind.TEST), "a@b.org", "c@d.org", "")["Subject"]
        == "[tpujob] test"
    )
    assert first["Auto-Submitted"] == "auto-generated"
    assert first.get_content_type() == "text/plain"
    text = first.get_content()
    for part in ("KeyError", "tpujob why 000042", f"{PAGE}/jobs/000042"):
        assert part in text
    assert server.envelopes[0] == ("tpujob@example.org", ["ada@example.org"])


def test_nothing_that_others_wrote_becomes_a_header_or_markup() -> None:
    evil = "llama\r\nBcc: eve@example.org\r\n\r\n<script>alert(1)</script>\r\n.\r\nQUIT"
    with post() as server:
        sink = Mail(server_at(server.port), "ada@example.org", lambda: "")
        assert sink.send(a_message(name=evil, text=evil, cause=evil), timeout=LONG) == Receipt()
    (message,) = server.got
    ours = {"Subject", "From", "To", "Date", "Message-ID", "Auto-Submitted"}
    of_mime = {"Content-Type", "Content-Transfer-Encoding", "MIME-Version"}
    assert set(message.keys()) == ours | of_mime
    assert server.envelopes == [("tpujob@example.org", ["ada@example.org"])]
    assert message.get_content_type() == "text/plain"


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
def test_mail_logs_in_over_tls_to_a_server_that_it_trusts(
    certificate: tuple[ssl.SSLContext, ssl.SSLContext], tls: str
) -> None:
    server, trusted = certificate
    with post(server, implicit=tls == "implicit") as mails:
        at = server_at(mails.port, tls, "tpujob")
        right = Mail(at, "ada@example.org", lambda: "right", trusted=trusted)
        assert right.send(a_message(), timeout=LONG) == Receipt()
        wrong = Mail(at, "ada@example.org", lambda: "wrong", trusted=trusted)
        refused = wrong.send(a_message(), timeout=LONG)
        strange = Mail(at, "ada@example.org", lambda: "right").send(a_message(), timeout=LONG)
    assert mails.logins[0] == (b"tpujob", b"right")
    assert set(mails.logins[1:]) == {(b"tpujob", b"wrong")}
    assert refused.permanent
    assert "535" in refused.error
    assert "certificate" in strange.error.lower()
    assert not strange.permanent
    assert len(mails.got) == 1


def test_without_tls_nothing_is_sent_to_a_server_that_should_have_it() -> None:
    with post() as mta:
        sink = Mail(server_at(mta.port, "starttls", "tpujob"), "ada@example.org", lambda: "right")
        receipt = sink.send(a_message(), timeout=LONG)
    assert receipt.permanent
    assert "STARTTLS" in receipt.error
    assert mta.got == mta.logins == []


@pytest.mark.parametrize(("answer", "permanent"), [("451 later", False), ("554 spam", True)])
def test_a_mail_servers_no_is_for_now_or_for_good(answer: str, permanent: bool) -> None:
    with post() as server:
        server.answer = answer
        sink = Mail(server_at(server.port), "ada@example.org", lambda: "")
        receipt = sink.send(a_message(), timeout=LONG)
    assert receipt == Receipt(f"SMTP {answer[:3]}: {answer[4:]}", permanent=permanent)
