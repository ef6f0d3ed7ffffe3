"""The HTTP/1.1 server of the emulator: Cloud Storage, the metadata servers, the control interfaces.

Knows nothing of what is served; request bodies and files are streamed with bounded memory.
"""

from tpujob.emulator.http.messages import (
    Body,
    Cut,
    FilePart,
    Handler,
    Request,
    Response,
    TooLarge,
    head,
    json_response,
)
from tpujob.emulator.http.server import HttpServer, HttpThread

__all__ = [
    "Body",
    "Cut",
    "FilePart",
    "Handler",
    "HttpServer",
    "HttpThread",
    "Request",
    "Response",
    "TooLarge",
    "head",
    "json_response",
]
