"""Slack, by an incoming webhook. What others have written is shown as plain text, in which nothing is a mention, a link
or markup; the one link is made here."""

import json
import re
from collections.abc import Callable
from typing import Any

from tpujob.adapters.notify.post import post
from tpujob.domain.notifications import messages
from tpujob.domain.notifications.model import Message, Receipt
from tpujob.errors import TpujobError

_OF_SLACK = re.compile(r"https://hooks\.slack(-gov)?\.com/\S+")
#: characters of a block's text, by Slack's reference
LONGEST = 3000


class Slack:
    """Implements `ports.Sink`."""

    def __init__(self, url: Callable[[], str], *, page: str = "", private: bool = False) -> None:
        """`url`: the webhook's, which is a secret; asked at each try. `private`: it may be anywhere."""
        self._url, self._page, self._private = url, page, private

    def send(self, message: Message, *, timeout: float) -> Receipt:
        try:
            url = self._url().strip()
        except TpujobError as error:
            return Receipt(error.message)
        if not self._private and not _OF_SLACK.fullmatch(url):
            return Receipt("the URL is not that of a webhook of Slack", permanent=True)
        body = json.dumps(payload(message, self._page)).encode()
        return post(url, body, {}, private=self._private, timeout=timeout)


def payload(message: Message, page: str) -> dict[str, Any]:
    """As Slack takes it. `text` is what a notification on a phone shows."""
    headline = messages.headline(message)
    command = f"`{messages.command(message.notification)}`"
    link = messages.link(page, message.notification)
    foot = f"<{link}|Open> {command}" if link else command
    below = "\n".join(messages.lines(message, page))[:LONGEST]
    return {
        "text": escaped(headline),
        "mrkdwn": False,
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": [
            {"type": "header", "text": _plain(headline)},
            {"type": "section", "text": _plain(below)},
            {"type": "context", "elements": [{"type": "mrkdwn", "text": foot}]},
        ],
    }


def escaped(text: str) -> str:
    """The three characters that have a meaning to Slack: without them there is no mention and no link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}
