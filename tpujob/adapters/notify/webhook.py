"""Sends notifications as Standard Webhooks 1.0: JSON, signed with HMAC-SHA256. Every try of a message has the same id
and the time of the try. Several keys can sign at once, for key rotation."""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable, Sequence

from tpujob.adapters.notify.post import post
from tpujob.domain.notifications import messages
from tpujob.domain.notifications.model import Message, Receipt
from tpujob.errors import TpujobError
from tpujob.ports import Clock

_PREFIX = "whsec_"
_KEY_LENGTHS = range(24, 65)  #: bytes, by the specification


class Webhook:
    """Implements `ports.Sink`."""

    def __init__(
        self,
        url: Callable[[], str],
        keys: Callable[[], Sequence[str]],
        clock: Clock,
        *,
        page: str = "",
        private: bool = False,
    ) -> None:
        """`url`, `keys`: called at each try, so that changes are in force at once; keys begin with `whsec_`. `private`:
        allow an address that is not public."""
        self._url, self._keys, self._clock = url, keys, clock
        self._page, self._private = page, private

    def send(self, message: Message, *, timeout: float) -> Receipt:
        try:
            url = self._url()
            keys = [parse_key(text) for text in self._keys()]
        except (TpujobError, ValueError) as error:
            return Receipt(str(error), permanent=isinstance(error, ValueError))
        body = json.dumps(messages.document(message, self._page)).encode()
        headers = signature_headers(message.id, round(self._clock.now()), body, keys)
        return post(url, body, headers, private=self._private, timeout=timeout)


def parse_key(text: str) -> bytes:
    """Return the bytes of a key: `whsec_` and base64. Raises ValueError, whose text has nothing of the key."""
    try:
        key = base64.b64decode(text.strip().removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not text.startswith(_PREFIX) or len(key) not in _KEY_LENGTHS:
        raise ValueError("a signing key must be whsec_ and 24 to 64 bytes in base64")
    return key


def signature_headers(id: str, at: int, body: bytes, keys: Sequence[bytes]) -> dict[str, str]:
    """Return the headers of a message, with a signature for each key."""
    content = f"{id}.{at}.".encode() + body
    digests = [hmac.new(key, content, hashlib.sha256).digest() for key in keys]
    signatures = " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
    return {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": signatures}
