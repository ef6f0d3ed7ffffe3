"""Standard Webhooks 1.0: JSON, signed with HMAC-SHA256. The id of a message is the same in each try, its time is that
of the try, and several keys can sign at once, so that the receiver can change from one to the next."""

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
#: bytes of a key, by the specification
_KEY = range(24, 65)


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
        """`url`, `keys`: asked at each try, so that what was changed is in force at once; keys begin with `whsec_`.
        `private`: it may be at an address that is not public."""
        self._url, self._keys, self._clock = url, keys, clock
        self._page, self._private = page, private

    def send(self, message: Message, *, timeout: float) -> Receipt:
        try:
            url, keys = self._url(), [key_of(text) for text in self._keys()]
        except (TpujobError, ValueError) as error:
            return Receipt(str(error), permanent=isinstance(error, ValueError))
        body = json.dumps(messages.document(message, self._page)).encode()
        headers = signed(message.id, round(self._clock.now()), body, keys)
        return post(url, body, headers, private=self._private, timeout=timeout)


def key_of(text: str) -> bytes:
    """Return the key in `whsec_` and base64. Raises ValueError, without a word of the key."""
    try:
        found = base64.b64decode(text.strip().removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        found = b""
    if not text.startswith(_PREFIX) or len(found) not in _KEY:
        raise ValueError("a signing key must be whsec_ and 24 to 64 bytes in base64")
    return found


def signed(id: str, at: int, body: bytes, keys: Sequence[bytes]) -> dict[str, str]:
    """Return the headers: one signature for each key."""
    content = f"{id}.{at}.".encode() + body
    found = [base64.b64encode(hmac.new(k, content, hashlib.sha256).digest()) for k in keys]
    signatures = " ".join(f"v1,{each.decode()}" for each in found)
    return {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": signatures}
