"""Records to and from JSON text, those of old versions too. What a store's documents look like around the text is the
store's; what a user is sent is made in `service/views.py`."""

from tpujob.domain.codec.codec import (
    event_from_text,
    job_from_text,
    message_from_text,
    suspect_from_json,
    to_json,
    to_text,
)
from tpujob.domain.model import SCHEMA_VERSION

__all__ = [
    "SCHEMA_VERSION",
    "event_from_text",
    "job_from_text",
    "message_from_text",
    "suspect_from_json",
    "to_json",
    "to_text",
]
