"""E-mail over SMTP: plain text to one address. Its Message-ID is the message's, so that a repeat shows."""

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

READY = 220  #: a server's first word
#: what this side calls itself; a look for its own name may take as long as it likes
_GREETING = "[127.0.0.1]"


@dataclass(frozen=True, slots=True)
class SmtpServer:
    """The server that takes e-mail."""

    host: str
    port: int
    tls: Literal["starttls", "implicit", "none"] = "starttls"
    sender: str = ""  #: the address that mail comes from
    login: str = ""  #: empty: none is needed


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
        """`password`: asked at each try. `trusted`: left out, the authorities that this machine trusts."""
        self._server, self._to, self._password = server, to, password
        self._page, self._trusted = page, trusted

    def send(self, message: Message, *, timeout: float) -> Receipt:
        try:
            self._hand_in(mail(message, self._server.sender, self._to, self._page), timeout)
        except TpujobError as error:
            return Receipt(error.message)
        except smtplib.SMTPRecipientsRefused as error:
            code, answer = error.recipients[self._to]
            return _refused(code, answer)
        except smtplib.SMTPResponseException as error:
            return _refused(error.smtp_code, error.smtp_error)
        except smtplib.SMTPNotSupportedError as error:  # no STARTTLS, no AUTH: nothing was sent
            return Receipt(one_line(str(error), 200), permanent=True)
        except (smtplib.SMTPException, OSError, ValueError) as error:
            return Receipt(one_line(f"{self._server.host}: {error or type(error).__name__}", 200))
        return Receipt()

    def _hand_in(self, made: EmailMessage, timeout: float) -> None:
        server, context = self._server, self._trusted or ssl.create_default_context()
        smtp = (
            smtplib.SMTP_SSL(local_hostname=_GREETING, timeout=timeout, context=context)
            if server.tls == "implicit"
            else smtplib.SMTP(local_hostname=_GREETING, timeout=timeout)
        )
        # the name that certificates are compared with; only the constructor sets it, which would connect unbounded
        smtp._host = server.host  # pyright: ignore[reportAttributeAccessIssue]
        with cut_after(timeout, lambda: smtp.sock), contextlib.closing(smtp):
            code, answer = smtp.connect(server.host, server.port)
            if code != READY:
                raise smtplib.SMTPConnectError(code, answer)
            if server.tls == "starttls":
                smtp.starttls(context=context)
            if server.login:
                smtp.login(server.login, self._password())
            smtp.send_message(made, server.sender, [self._to])
            with contextlib.suppress(smtplib.SMTPException, OSError):
                smtp.quit()  # it is delivered, whatever comes of this


def mail(message: Message, sender: str, to: str, page: str) -> EmailMessage:
    """The e-mail. Its words are of one line each, so that nothing of them becomes a header."""
    made = EmailMessage()
    made["Subject"] = f"[tpujob] {messages.headline(message)}"
    made["From"], made["To"] = sender, to
    made["Date"] = format_datetime(datetime.fromtimestamp(message.at, UTC))
    made["Message-ID"] = f"<{message.id}@{sender.rpartition('@')[2]}>"
    made["Auto-Submitted"] = "auto-generated"
    below = [*messages.lines(message, page), "", messages.command(message.notification)]
    if link := messages.link(page, message.notification):
        below.append(link)
    made.set_content("\n".join([messages.headline(message), "", *below]) + "\n")
    return made


def _refused(code: int, answer: bytes | str) -> Receipt:
    """Return the receipt of a refusal: 5xx is permanent, 4xx temporary (RFC 5321, 4.2.1)."""
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
    return Receipt(one_line(f"SMTP {code}: {text}", 200), permanent=500 <= code < 600)
