"""The Cloud TPU API over HTTP and JSON: the rules of translation, and the server. What the calls do is not here."""

from tpujob.emulator.tpu.rest.server import RestServer, handler

__all__ = ["RestServer", "handler"]
