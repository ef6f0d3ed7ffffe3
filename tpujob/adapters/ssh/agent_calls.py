"""What is sent to the agent on one host, over one connection, and how its answer is read.

An answer is one line of JSON: `{"ok": true, "state": ...}` or `{"ok": false, "error": ..., "cause": ...}`.
"""

import hashlib
import io
import json
import re
import shlex
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import tpujob.agent
import tpujob.protocol
import workloads.contract
from tpujob.adapters.calling import Deadline
from tpujob.adapters.ssh.connection import Connection, Output
from tpujob.domain.actions import HostPlan
from tpujob.domain.model import Cause
from tpujob.domain.text import one_line
from tpujob.errors import Refused, Transient
from tpujob.protocol import Phase, live
from tpujob.protocol.paths import HOST_FOLDER

SILENCE = 4 * live.BEAT  #: seconds without a word, after which a stream is given up
LONGEST = 2 * 1024 * 1024  #: bytes of a message

#: what a host answers when the agent must be uploaded first
_NEED = "tpujob: no agent"

#: stdin becomes a file of mode 0600, whole or not at all. $1 folder, $2 file, $3 its bytes
_WRITE = """umask 077; new="$2.$$.tmp"
cd && { [ -d "$1" ] || mkdir -p "$1"; } && cd "$1" && cat > "$new" && [ "$(wc -c < "$new")" -eq "$3" ] &&
mv -f "$new" "$2" || { echo "$2 did not arrive whole"; rm -f "$new"; cat > /dev/null; exit 1; }"""

#: the same for a plan; then says whether the agent is there. People's certificates work from then on. Where that file
#: is not writable, the call goes on without it. $4 agent, $5 its bytes, $6 line for authorized_keys
_CARRY = f"""umask 077; cd || exit 1; keys=.ssh/authorized_keys
{{ mkdir -p .ssh && {{ grep -qxF "$6" $keys || printf '\\n%s\\n' "$6" >> $keys; }}; }} 2> /dev/null
{_WRITE}
[ -f "$4" ] && [ "$(wc -c < "$4")" -eq "$5" ] || echo '{_NEED}'"""

#: runs the agent, if it is there. $1 agent, $2 its bytes; the rest are words for it
_CALL = f"""cd && if [ -f "$1" ] && [ "$(wc -c < "$1")" -eq "$2" ]
then agent="$1"; shift 2; exec python3 "$agent" "$@"
else echo "{_NEED}"; fi"""


class AgentCalls:
    """Every call raises Transient, HostKeyChanged, or Refused with cause SETUP or the agent's own."""

    def __init__(self, archive: Path | None = None) -> None:
        """`archive`: sent instead of the real agent."""
        self._archive = archive

    def carry(
        self, on: Connection, document: Mapping[str, Any], deadline: Deadline, authority: str
    ) -> None:
        """Upload the plan, and the agent if the host does not have it. Otherwise one round trip. `authority`: a line
        for `authorized_keys`."""
        plan = json.dumps(dict(document)).encode()
        more = (self._name, self._size, authority)
        output = _write(on, _CARRY, plan_name(document), plan, deadline, *more)
        if _NEED in output.text:
            self._install(on, deadline)

    def start(
        self,
        on: Connection,
        document: Mapping[str, Any],
        deadline: Deadline,
        secrets: bytes,
    ) -> Mapping[str, Any]:
        """Start the program of an uploaded plan. `secrets` travels as input of the command: no file and no command line
        of the host has it."""
        words = ["start", f"{HOST_FOLDER}/{plan_name(document)}", "--told"]
        return self._call(on, words, deadline, stdin=secrets)

    def stop(
        self,
        on: Connection,
        grace: float,
        deadline: Deadline,
        *,
        discard: bool = False,
        ask: bool = False,
    ) -> Mapping[str, Any]:
        """`discard`: as `Hosts.stop` has it. `ask`: send the signal and do not wait for the end."""
        words = ["stop", "--grace", f"{grace:g}"]
        words += ["--discard"] * discard + ["--ask"] * ask
        return self._call(on, words, deadline)

    def wipe(self, on: Connection, epoch: int, key: str, deadline: Deadline) -> Mapping[str, Any]:
        """`epoch`: of the job that gives the slice. `key`: the slice's public key, which alone may log in afterwards,
        when a job of another owner is next; else empty."""
        return self._call(on, ["wipe", f"--epoch={epoch}", f"--key={key}"], deadline)

    def is_gone(self, on: Connection, job: str, attempt: int, deadline: Deadline) -> bool:
        """Whether the host knows that the daemon of that attempt runs no more, and has recorded no end."""
        known = self._call(on, ["status"], deadline)["attempts"]
        found = [one for one in known if (one["job"], one["attempt"]) == (job, attempt)]
        return any(not one["live"] and one["phase"] != Phase.EXITED for one in found)

    def listen(
        self, on: Connection, job: str, attempt: int, deadline: Deadline
    ) -> Iterator[Mapping[str, Any]]:
        """What the daemon of that attempt tells, as it comes (`protocol/live.py`)."""
        words = [f"{HOST_FOLDER}/{self._name}", self._size, "live", job, str(attempt)]
        for _ in range(2):
            needed = False
            for line in _lines(on.stream(_script(_CALL, words), deadline, silence=SILENCE)):
                needed = needed or _NEED.encode() in line
                report = _object(line)
                if report and "ok" in report:
                    raise Transient(one_line(str(report.get("error")), 500))
                if report:
                    yield report
            if not needed:
                return
            self._install(on, deadline)

    def _call(
        self, on: Connection, words: Sequence[str], deadline: Deadline, *, stdin: bytes = b""
    ) -> Mapping[str, Any]:
        """The agent's answer; it is uploaded where the host lacks it."""
        command = _script(_CALL, [f"{HOST_FOLDER}/{self._name}", self._size, *words])
        output = on.run(command, deadline, stdin=stdin)
        if _NEED in output.text:
            self._install(on, deadline)
            output = on.run(command, deadline, stdin=stdin)
        return _parsed(output)

    def _install(self, on: Connection, deadline: Deadline) -> None:
        _write(on, _WRITE, self._name, self._bytes, deadline)

    @property
    def _size(self) -> str:
        return str(len(self._bytes))

    @cached_property
    def _name(self) -> str:
        return f"agent-{hashlib.sha256(self._bytes).hexdigest()[:8]}"

    @cached_property
    def _bytes(self) -> bytes:
        return packed() if self._archive is None else self._archive.read_bytes()


def launch_secrets(plan: HostPlan) -> bytes:
    """Return the keys and secrets of a plan, which a host keeps in memory alone."""
    launched = {"key": plan.key, "cache_key": plan.cache_key, "secrets": dict(plan.secrets)}
    return json.dumps(launched).encode()


def plan_name(document: Mapping[str, Any]) -> str:
    """The name of a plan's file, whatever the plan says."""
    parts = (str(document.get(key, "0")) for key in ("job", "attempt"))
    return f"plan-{'-'.join(re.sub(r'[^A-Za-z0-9]', '_', part)[:40] for part in parts)}.json"


def _script(text: str, words: Sequence[str]) -> str:
    """A line for any login shell that runs this text in `sh`; every word arrives unchanged."""
    return "exec " + shlex.join(["sh", "-c", text, "sh", *words])


def _write(
    on: Connection, text: str, name: str, data: bytes, deadline: Deadline, *more: str
) -> Output:
    """Run a script that writes a file. Raises Refused when the host cannot take it."""
    words = [HOST_FOLDER, name, str(len(data)), *more]
    output = on.run(_script(text, words), deadline, stdin=data)
    if output.code != 0:
        reason = one_line(output.text[-300:], 500) or f"exit code {output.code}"
        raise Refused(f"cannot write to the host: {reason}", cause=Cause.SETUP)
    return output


def _parsed(output: Output) -> Mapping[str, Any]:
    """The agent's answer: the last line that is a JSON object with `ok`. A login shell may print lines before it."""
    objects = map(_object, reversed(output.text.splitlines()))
    answer = next((one for one in objects if one and "ok" in one), None)
    if answer is not None and answer["ok"] is True:
        return answer
    if answer is not None:
        cause = str(answer.get("cause") or "")
        known = cause if cause in Cause.__members__ else Cause.SETUP
        message = str(answer.get("error") or "the agent refused without a reason")
        raise Refused(one_line(message, 500), cause=known)
    if output.code > 128:
        raise Transient(f"the agent was killed (exit code {output.code})")
    if output.code == 127:
        raise Refused(
            "the host has no python3, which everything here runs with; take a runtime_version that has it",
            cause=Cause.SETUP,
        )
    reason = one_line(output.text[-300:], 500) or "nothing"
    raise Refused(
        f"the agent gave no answer (exit code {output.code}): {reason}", cause=Cause.SETUP
    )


def _object(line: str | bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]


def _lines(stream: Iterator[bytes]) -> Iterator[bytes]:
    """Raises Transient for one that is too long."""
    rest = b""
    for data in stream:
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
        if len(rest) > LONGEST:
            raise Transient(f"the agent has sent more than {LONGEST >> 20} MiB in one message")


# The agent's archive -------------------------------------------------------------------------------------------------


#: what is in it, with everything below; all of it standard library only
PACKAGES = (tpujob.agent, tpujob.protocol, workloads.contract)
_MAIN = """import sys

if sys.version_info < (3, 8):
    message = "the host has Python %d.%d, and the agent needs 3.8; take a later runtime_version" % sys.version_info[:2]
    sys.exit(print('{"ok": false, "cause": "SETUP", "error": "%s"}' % message))

from tpujob.agent.agent import main

sys.exit(main())
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)  #: the archive's hash is its name on a host: no time may be in it


@cache
def packed() -> bytes:
    """The archive. Not compressed, as a Python without zlib runs it too."""
    content = {"__main__.py": _MAIN}
    for package in PACKAGES:
        folder, root = Path(package.__path__[0]), Path(*package.__name__.split("."))
        content[f"{root.parts[0]}/__init__.py"] = ""
        for path in sorted(folder.rglob("*.py")):
            content[(root / path.relative_to(folder)).as_posix()] = path.read_text()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        for name, text in content.items():
            file.writestr(zipfile.ZipInfo(name, _EPOCH), text)
    return archive.getvalue()
