"""tpujob keeps training jobs alive on Cloud TPUs until they are done."""

from typing import TYPE_CHECKING, Any

from tpujob.version import __version__ as __version__

if TYPE_CHECKING:
    from tpujob.client import Client as Client


def __getattr__(name: str) -> Any:
    """Import `tpujob.Client` on its first use, so that commands do not pay for it."""
    if name != "Client":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tpujob.client import Client

    return Client
