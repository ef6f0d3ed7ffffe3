"""Sends notifications to an incoming webhook of Slack. Texts that users wrote are sent as plain text, without mentions,
links and markup; the only link is to tpujob's page."""

import json
import re
from collections.abc import Callable
from typing import Any

from tpujob.adapters.notify.post import post
from tpujob.domain.notifications import messages
from tpujob.domain.notifications.model import Message, Receipt
from tpujob.errors import TpujobError

_WEBHOOK = re.compile(r"https://hooks\.slack(-gov)?\.com/\S+")
#: limit of Slack on the characters of a block's text (documented)
MAX_BLOCK = 3000


class Slack:
    """Implements `ports.Sink`."""

    def __init__(self, url: Callable[[], str], *, page: str = "", private: bool = False) -> None:
        """`url`: returns that of the webhook, a secret; called at each try. `private`: allow any URL."""
        self._url, self._page, self._private = url, page, private

    def send(self, message: Message, *, timeout: float) -> Receipt:
        try:
            url = self._url().strip()
        except TpujobError as error:
            return Receipt(error.message)
        if not self._private and not _WEBHOOK.fullmatch(url):
            return Receipt("the URL is not that of a webhook of Slack", permanent=True)
        body = json.dumps(payload(message, self._page)).encode()
        return post(url, body, {}, private=self._private, timeout=timeout)


def payload(message: Message, page: str) -> dict[str, Any]:
    """Return the JSON document for Slack. A phone shows its `text` in the notification."""
    headline = messages.headline(message)
    command = f"`{messages.command(message.notification)}`"
    link = messages.link(page, message.notification)
    footer = f"<{link}|Open> {command}" if link else command
    body = "\n".join(messages.lines(message, page))[:MAX_BLOCK]
    return {
        "text": escaped(headline),
        "mrkdwn": False,
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": [
            {"type": "header", "text": _plain_text(headline)},
            {"type": "section", "text": _plain_text(body)},
            {"type": "context", "elements": [{"type": "mrkdwn", "text": footer}]},
        ],
    }


def escaped(text: str) -> str:
    """Escape the three characters that Slack interprets, so that the text has no mention and no link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _plain_text(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}
