"""Calls to the agent on one host, over one connection; the archive of the agent.

An answer is one line of JSON: `{"ok": true, "state": ...}` or `{"ok": false, "error": ..., "cause": ...}`.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shlex
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tpujob.agent
import tpujob.contract
import tpujob.protocol
from tpujob.domain.actions import HostPlan
from tpujob.domain.model import Cause
from tpujob.domain.text import one_line
from tpujob.errors import Refused, Transient
from tpujob.lib import threads
from tpujob.lib.tries import Deadline
from tpujob.protocol import Phase, live
from tpujob.protocol.paths import HOST_FOLDER

if TYPE_CHECKING:
    from tpujob.adapters.ssh.connection import Connection, Output

SILENCE = 4 * live.BEAT  #: seconds without a message after which a stream is given up
MAX_MESSAGE = 2 * 1024 * 1024  #: bytes of a message, at most

#: printed by a host that lacks the agent
_NO_AGENT = "tpujob: no agent"

#: writes stdin to a file of mode 0600, atomically. $1: folder, $2: file, $3: number of bytes
_WRITE = """umask 077; new="$2.$$.tmp"
cd && { [ -d "$1" ] || mkdir -p "$1"; } && cd "$1" && cat > "$new" && [ "$(wc -c < "$new")" -eq "$3" ] &&
mv -f "$new" "$2" || { echo "$2 did not arrive whole"; rm -f "$new"; cat > /dev/null; exit 1; }"""

#: writes the plan, and prints _NO_AGENT if the host lacks the agent. Before, adds a line to authorized_keys, by which
#: people's certificates work; ignores it if that file is not writable. $4: agent, $5: its bytes, $6: the line
_UPLOAD_PLAN = f"""umask 077; cd || exit 1; keys=.ssh/authorized_keys
{{ mkdir -p .ssh && {{ grep -qxF "$6" $keys || printf '\\n%s\\n' "$6" >> $keys; }}; }} 2> /dev/null
{_WRITE}
[ -f "$4" ] && [ "$(wc -c < "$4")" -eq "$5" ] || echo '{_NO_AGENT}'"""

#: runs the agent, or prints _NO_AGENT. $1: agent, $2: its bytes; then the arguments of the agent
_CALL = f"""cd && if [ -f "$1" ] && [ "$(wc -c < "$1")" -eq "$2" ]
then agent="$1"; shift 2; exec python3 "$agent" "$@"
else echo "{_NO_AGENT}"; fi"""


class AgentCalls:
    """The calls to an agent. Each raises Transient, HostKeyChanged, or Refused with the agent's cause or SETUP."""

    def __init__(self, archive: Path | None = None) -> None:
        """`archive`: uploaded in place of the real agent."""
        self._archive = archive

    def upload_plan(
        self, connection: Connection, plan: HostPlan, deadline: Deadline, authority: str
    ) -> None:
        """Upload the plan, in one round trip, then the agent if the host lacks it. `authority`: a line for
        `authorized_keys`."""
        name, data = plan_name(plan.document), json.dumps(dict(plan.document)).encode()
        args = (self._name, self._size, authority)
        output = _write(connection, _UPLOAD_PLAN, name, data, deadline, *args)
        if _NO_AGENT in output.text:
            self._install(connection, deadline)

    def start(
        self, connection: Connection, plan: HostPlan, deadline: Deadline
    ) -> Mapping[str, Any]:
        """Start the program of an uploaded plan. Keys and secrets are the input of the command: the host has them in
        memory, but in no file and no command line."""
        words = ["start", f"{HOST_FOLDER}/{plan_name(plan.document)}", "--secrets-on-stdin"]
        secrets = {"key": plan.key, "cache_key": plan.cache_key, "secrets": dict(plan.secrets)}
        return self._call(connection, words, deadline, stdin=json.dumps(secrets).encode())

    def stop(
        self,
        connection: Connection,
        grace: float,
        deadline: Deadline,
        *,
        discard: bool = False,
        ask: bool = False,
    ) -> Mapping[str, Any]:
        """Stop the program. `discard`: see `Hosts.stop`. `ask`: send the signal without waiting for the end."""
        words = ["stop", "--grace", f"{grace:g}"]
        words += ["--discard"] * discard + ["--ask"] * ask
        return self._call(connection, words, deadline)

    def wipe(
        self, connection: Connection, epoch: int, key: str, deadline: Deadline
    ) -> Mapping[str, Any]:
        """Remove what the last job has left. `epoch`: of that job. `key`: if the next job has another owner, the
        slice's public key, which alone may log in afterwards; else empty."""
        return self._call(connection, ["wipe", f"--epoch={epoch}", f"--key={key}"], deadline)

    def has_died(self, connection: Connection, job: str, attempt: int, deadline: Deadline) -> bool:
        """Return whether the host knows that the daemon of an attempt has ended without recording the program's end."""
        statuses = self._call(connection, ["status"], deadline)["attempts"]
        matches = [s for s in statuses if (s["job"], s["attempt"]) == (job, attempt)]
        return any(not s["live"] and s["phase"] != Phase.EXITED for s in matches)

    def listen(
        self, connection: Connection, job: str, attempt: int, deadline: Deadline
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the live messages of an attempt's daemon (`protocol/live.py`), after uploading a missing agent."""
        words = [f"{HOST_FOLDER}/{self._name}", self._size, "live", job, str(attempt)]
        for _ in range(2):
            missing = False
            for line in _lines(connection.stream(_script(_CALL, words), deadline, silence=SILENCE)):
                missing = missing or _NO_AGENT.encode() in line
                message = _parse_object(line)
                if message and "ok" in message:
                    raise Transient(one_line(str(message.get("error")), 500))
                if message:
                    yield message
            if not missing:
                return
            self._install(connection, deadline)

    def _call(
        self,
        connection: Connection,
        words: Sequence[str],
        deadline: Deadline,
        *,
        stdin: bytes = b"",
    ) -> Mapping[str, Any]:
        """Run the agent, after uploading it if it is missing, and return its answer."""
        command = _script(_CALL, [f"{HOST_FOLDER}/{self._name}", self._size, *words])
        output = connection.run(command, deadline, stdin=stdin)
        if _NO_AGENT in output.text:
            self._install(connection, deadline)
            output = connection.run(command, deadline, stdin=stdin)
        return _parse_answer(output)

    def _install(self, connection: Connection, deadline: Deadline) -> None:
        _write(connection, _WRITE, self._name, self._bytes, deadline)

    @property
    def _size(self) -> str:
        return str(len(self._bytes))

    @cached_property
    def _name(self) -> str:
        return f"agent-{hashlib.sha256(self._bytes).hexdigest()[:8]}"

    @cached_property
    def _bytes(self) -> bytes:
        return build_archive() if self._archive is None else self._archive.read_bytes()


def plan_name(document: Mapping[str, Any]) -> str:
    """Return a safe name for a plan's file, from its job and attempt."""
    parts = (str(document.get(key, "0")) for key in ("job", "attempt"))
    return f"plan-{'-'.join(re.sub(r'[^A-Za-z0-9]', '_', part)[:40] for part in parts)}.json"


def _script(text: str, words: Sequence[str]) -> str:
    """Return a line for any login shell that runs a script in `sh`, with its arguments unchanged."""
    return "exec " + shlex.join(["sh", "-c", text, "sh", *words])


def _write(
    connection: Connection, text: str, name: str, data: bytes, deadline: Deadline, *args: str
) -> Output:
    """Run a script that writes a file. Raises Refused when the host cannot write it."""
    words = [HOST_FOLDER, name, str(len(data)), *args]
    output = connection.run(_script(text, words), deadline, stdin=data)
    if output.code != 0:
        reason = one_line(output.text[-300:], 500) or f"exit code {output.code}"
        raise Refused(f"cannot write to the host: {reason}", cause=Cause.SETUP)
    return output


def _parse_answer(output: Output) -> Mapping[str, Any]:
    """Return the agent's answer: the last line that is a JSON object with `ok`. A login shell may print lines before.
    Raises Refused if it is a refusal, or there is none; Transient if the agent was killed."""
    objects = map(_parse_object, reversed(output.text.splitlines()))
    answer = next((value for value in objects if value and "ok" in value), None)
    if answer is not None:
        if answer["ok"] is True:
            return answer
        cause = str(answer.get("cause") or "")
        cause = cause if cause in Cause.__members__ else Cause.SETUP
        message = str(answer.get("error") or "the agent refused without a reason")
        raise Refused(one_line(message, 500), cause=cause)
    if output.code > 128:
        raise Transient(f"the agent was killed (exit code {output.code})")
    if output.code == 127:
        text = "the host has no python3, which everything here runs with; take a runtime_version that has it"
        raise Refused(text, cause=Cause.SETUP)
    reason = one_line(output.text[-300:], 500) or "nothing"
    text = f"the agent gave no answer (exit code {output.code}): {reason}"
    raise Refused(text, cause=Cause.SETUP)


def _parse_object(line: str | bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]


def _lines(stream: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream. Raises Transient for a line that is too long."""
    rest = b""
    for data in stream:
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
        if len(rest) > MAX_MESSAGE:
            raise Transient(f"the agent has sent more than {MAX_MESSAGE >> 20} MiB in one message")


# The agent's archive -------------------------------------------------------------------------------------------------


#: the packages in the archive, which import the standard library only
PACKAGES = (tpujob.agent, tpujob.protocol, tpujob.contract)
_MAIN = """import sys

if sys.version_info < (3, 8):
    message = "the host has Python %d.%d, and the agent needs 3.8; take a later runtime_version" % sys.version_info[:2]
    sys.exit(print('{"ok": false, "cause": "SETUP", "error": "%s"}' % message))

from tpujob.agent.agent import main

sys.exit(main())
"""
#: time of all files: the archive is named by its hash, so its bytes must not depend on the clock
_EPOCH = (1980, 1, 1, 0, 0, 0)


@cache
def build_archive() -> bytes:
    """Return the archive; not compressed, so that a Python without zlib runs it."""
    content = {"__main__.py": _MAIN}
    for package in PACKAGES:
        folder, root = Path(package.__path__[0]), Path(*package.__name__.split("."))
        content[f"{root.parts[0]}/__init__.py"] = ""
        for path in sorted(folder.rglob("*.py")):
            content[(root / path.relative_to(folder)).as_posix()] = path.read_text()
    content["tpujob/lib/__init__.py"] = ""
    content["tpujob/lib/threads.py"] = Path(threads.__file__).read_text()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        for name, text in content.items():
            file.writestr(zipfile.ZipInfo(name, _EPOCH), text)
    return archive.getvalue()
