"""Sends notifications by e-mail over SMTP: plain text to one address. A repeat has the same Message-ID."""

import contextlib
import smtplib
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Literal

from tpujob.adapters.notify.post import cut_after
from tpujob.domain.notifications import messages
from tpujob.domain.notifications.model import Message, Receipt
from tpujob.domain.text import one_line
from tpujob.errors import TpujobError

READY = 220  #: the code of a server's greeting
#: our host name in EHLO; the default would look it up, which may take long
_GREETING = "[127.0.0.1]"


@dataclass(frozen=True, slots=True)
class SmtpServer:
    """The server that accepts our e-mail."""

    host: str
    port: int
    tls: Literal["starttls", "implicit", "none"] = "starttls"
    sender: str = ""  #: address of the sender
    login: str = ""  #: empty: the server needs none


class Mail:
    """Implements `ports.Sink`."""

    def __init__(
        self,
        server: SmtpServer,
        to: str,
        password: Callable[[], str],
        *,
        page: str = "",
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        """`password`: called at each try. `trusted`: the trusted authorities, by default those of this machine."""
        self._server, self._to, self._password = server, to, password
        self._page, self._trusted = page, trusted

    def send(self, message: Message, *, timeout: float) -> Receipt:
        try:
            self._send(mail(message, self._server.sender, self._to, self._page), timeout)
        except TpujobError as error:
            return Receipt(error.message)
        except smtplib.SMTPRecipientsRefused as error:
            code, answer = error.recipients[self._to]
            return _refusal_receipt(code, answer)
        except smtplib.SMTPResponseException as error:
            return _refusal_receipt(error.smtp_code, error.smtp_error)
        except smtplib.SMTPNotSupportedError as error:  # without STARTTLS or AUTH nothing was sent
            return Receipt(one_line(str(error), 200), permanent=True)
        except (smtplib.SMTPException, OSError, ValueError) as error:
            return Receipt(one_line(f"{self._server.host}: {error or type(error).__name__}", 200))
        return Receipt()

    def _send(self, email: EmailMessage, timeout: float) -> None:
        server = self._server
        context = self._trusted or ssl.create_default_context()
        smtp = (
            smtplib.SMTP_SSL(local_hostname=_GREETING, timeout=timeout, context=context)
            if server.tls == "implicit"
            else smtplib.SMTP(local_hostname=_GREETING, timeout=timeout)
        )
        # the host name for certificates; only the constructor sets it, which would connect without our time limit
        smtp._host = server.host  # pyright: ignore[reportAttributeAccessIssue]
        with cut_after(timeout, lambda: smtp.sock), contextlib.closing(smtp):
            code, answer = smtp.connect(server.host, server.port)
            if code != READY:
                raise smtplib.SMTPConnectError(code, answer)
            if server.tls == "starttls":
                smtp.starttls(context=context)
            if server.login:
                smtp.login(server.login, self._password())
            smtp.send_message(email, server.sender, [self._to])
            with contextlib.suppress(smtplib.SMTPException, OSError):
                smtp.quit()  # the message is delivered in any case


def mail(message: Message, sender: str, to: str, page: str) -> EmailMessage:
    """Return the e-mail. Each of its texts is one line, so that none can add a header."""
    email = EmailMessage()
    email["Subject"] = f"[tpujob] {messages.headline(message).removeprefix('tpujob: ')}"
    email["From"], email["To"] = sender, to
    email["Date"] = format_datetime(datetime.fromtimestamp(message.at, UTC))
    email["Message-ID"] = f"<{message.id}@{sender.rpartition('@')[2]}>"
    email["Auto-Submitted"] = "auto-generated"
    body = [*messages.lines(message, page), "", messages.command(message.notification)]
    if link := messages.link(page, message.notification):
        body.append(link)
    email.set_content("\n".join([messages.headline(message), "", *body]) + "\n")
    return email


def _refusal_receipt(code: int, answer: bytes | str) -> Receipt:
    """Return the receipt for a refusal: 5xx is permanent, 4xx temporary (RFC 5321, 4.2.1)."""
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
    return Receipt(one_line(f"SMTP {code}: {text}", 200), permanent=500 <= code < 600)
