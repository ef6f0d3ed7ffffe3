"""The client of a running emulator's control interface, the ready files of its processes, and the environment variables
by which other programs find it. Standard library only, for the command line's start time."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tpujob.errors import BackendGone, BadRequest, IllegalInState, NotFound, TpujobError
from tpujob.lib.http import HttpRequest, fetch
from tpujob.lib.plain_http import PlainHttp, UnixConnection

_TIMEOUT_S = 10.0
_START_IT = "Start it with `tpujob up`."
_ERRORS: dict[int, type[TpujobError]] = {400: BadRequest, 404: NotFound, 409: IllegalInState}


class EmulatorClient:
    """A client of one emulator. Every method raises BackendGone when no emulator answers, and BadRequest, NotFound or
    IllegalInState when the emulator refuses. A `target` is a slice's name or a job's id; empty: the only ready
    slice."""

    def __init__(self, control: Path) -> None:
        """`control`: the path of the socket of the emulator's control interface."""
        self._socket = control

    @staticmethod
    def from_ready(file: Path) -> EmulatorClient:
        """Return a client of the emulator that wrote this ready file. Raise BackendGone if there is no file."""
        try:
            return EmulatorClient(read_ready_file(file))
        except (OSError, ValueError) as error:
            raise BackendGone("the emulator is not running", hint=_START_IT) from error

    def status(self) -> dict[str, Any]:
        return self._call("GET", "/status")

    def do(self, command: str, **values: Any) -> dict[str, Any]:
        """Carry out a command: one of `fault_commands.py` or of `control.Control`, such as `chaos`. `values`
        are the parameters of the command's function."""
        return self._call("POST", f"/{command}", **values)

    def _call(self, verb: str, path: str, /, **body: Any) -> dict[str, Any]:
        try:
            status, raw = call_control(self._socket, verb, path, body, timeout=_TIMEOUT_S)
            answer: dict[str, Any] = json.loads(raw)
        except (OSError, ValueError) as error:
            raise BackendGone("the emulator does not answer", hint=_START_IT) from error
        if status != 200:
            raise _ERRORS.get(status, TpujobError)(str(answer.get("error", "")))
        return answer


# Ready files, and JSON over HTTP on Unix sockets ---------------------------------------------------------------------


def write_ready_file(path: Path, content: dict[str, Any]) -> None:
    """Write, in one step, the file that says that a process listens. Only its owner can read it."""
    temporary = path.with_suffix(".tmp")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(content, file)
    temporary.replace(path)


def read_ready_file(path: Path) -> Path:
    """Return the socket of a control interface. Raise FileNotFoundError, other OSErrors, ValueError."""
    try:
        return Path(json.loads(path.read_text(encoding="utf-8"))["control"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a ready file") from error


def call_control(
    socket_path: Path, method: str, path: str, body: Any = None, *, timeout: float
) -> tuple[int, bytes]:
    """Return the status and the body of the response. Raise OSError."""
    text = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = HttpRequest(method, f"http://localhost{path}", headers, text, timeout)
    http = PlainHttp(lambda: UnixConnection(str(socket_path)))
    try:
        status, _, answer = fetch(http, request)
        return status, answer
    finally:
        http.close()


# Environment variables with which programs find the emulator in place of Google, on its hosts and in a shell ----------


def storage_variables(url: str) -> dict[str, str]:
    """Return variables that lead every client library's `gs://` to the emulated storage."""
    return {
        "STORAGE_EMULATOR_HOST": url,
        "TENSORSTORE_GCS_HTTP_URL": url,
        "CLOUD_STORAGE_EMULATOR_ENDPOINT": url,  # of the C++ library, which ArrayRecord uses
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # else it tries TLS for a minute first
    }


def proxy_variables(url: str, bundle: Path) -> dict[str, str]:
    """Return variables that lead TensorFlow's `gs://` to the emulated storage: the proxy at `url`, and in `bundle` the
    authorities to trust. In capitals: gRPC, by which JAX's hosts meet, obeys the other spelling."""
    return {
        "HTTPS_PROXY": url,
        "NO_PROXY": "localhost,127.0.0.0/8,127.0.0.1,metadata.google.internal",
        "CURL_CA_BUNDLE": str(bundle),
        "JAX_CHECK_PROXY_ENVS": "false",  # else JAX warns of a proxy at each start
    }


def shell_variables(
    emulator: Mapping[str, Any], farm: Mapping[str, Any], *, project: str, gcloud: Path
) -> dict[str, str]:
    """Return variables for Google's Python clients, for gcloud, and for a context of tpujob. `emulator` and `farm` are
    the contents of their ready files. `gcloud` is a folder for gcloud's configuration, which keeps the user's accounts
    and settings untouched."""
    return {
        **storage_variables(emulator["storage"]),
        "TPUJOB_TPU_ENDPOINT": emulator["tpu"],
        "TPUJOB_SSH_PORT": str(farm["ssh_port"]),
        "CLOUDSDK_CONFIG": str(gcloud),
        "CLOUDSDK_CORE_PROJECT": project,
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{emulator['tpu_rest']}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{emulator['storage']}/storage/v1/",
    }


def shell_variable_names() -> list[str]:
    """Return the names of the variables that `shell_variables` sets."""
    no_urls = {"storage": "", "tpu": "", "tpu_rest": ""}
    return list(shell_variables(no_urls, {"ssh_port": 0}, project="", gcloud=Path()))
