"""The variables of a job that say where tools get things from: an index, a mirror, a proxy. A job that is given others
gets the same environment from elsewhere, so they are no part of its key.
"""

from __future__ import annotations

from typing import Dict

from tpujob.protocol import Plan

PLACES = frozenset((
    "UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS", "UV_DOWNLOAD_URL", "UV_PYTHON_INSTALL_MIRROR",
    "UV_PYTHON_DOWNLOADS_JSON_URL", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE",
))  # fmt: skip


def places(plan: Plan) -> Dict[str, str]:
    """Those that the job's `run.env` sets."""
    return {name: value for name, value in plan["env"].items() if name in PLACES}
