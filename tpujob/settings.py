"""Where tpujob keeps its things and who uses it: the only reader of the environment.

Reading settings makes nothing and checks nothing; `prepare` makes the folders, for whoever is about to write.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpujob.errors import BadRequest, StoreError

LOCAL = "local"  #: the context of the stack on this machine


@dataclass(frozen=True, slots=True)
class Settings:
    state: Path  #: everything below is in here, for the user's eyes only
    user: str  #: who submits: small letters, digits, `-` and `_`
    project: str  #: the cloud project; the emulator takes any name
    context: str = LOCAL  #: or the URL of a deployed backend
    report_every: float = (
        2.0  #: seconds between two reports of a host; in the cloud each costs money
    )

    store: str = (
        "sqlite"  #: what keeps the jobs: `sqlite`, a file in `state`, or `firestore`, of `project`
    )
    database: str = "(default)"  #: of Firestore
    firestore_emulator: str = ""  #: host and port; empty: Google's own service

    @property
    def run(self) -> Path:
        return self.state / "run"  #: ready files and logs of the local stack

    @property
    def db(self) -> Path:
        return self.state / "jobs.db"

    @property
    def keys(self) -> Path:
        return self.state / "keys"  #: SSH keys and pinned host keys, by slice

    @property
    def emulator_state(self) -> Path:
        return self.state / "emulator"

    @property
    def farm_state(self) -> Path:
        return self.state / "farm"

    @property
    def token_file(self) -> Path:
        return self.state / "token"

    @property
    def backend_ready(self) -> Path:
        return self.ready_file("backend")

    @property
    def emulator_ready(self) -> Path:
        return self.ready_file("emulator")

    @property
    def farm_ready(self) -> Path:
        return self.ready_file("farm")

    def ready_file(self, process: str) -> Path:
        """Where a process of the local stack says that it is up, and where it listens."""
        return self.run / f"{process}.json"

    def process_file(self, process: str) -> Path:
        """Which process was started for it."""
        return self.run / f"{process}.process"

    def log_file(self, process: str) -> Path:
        return self.run / f"{process}.log"

    def token(self) -> str:
        """What a client shows to the backend. Made on the first call; the same for all callers, also at once."""
        if not self.token_file.exists():
            prepare(self)
            _put_first(self.token_file, os.urandom(32).hex())
        return self.token_file.read_text(encoding="utf-8").strip()


def load(state: Path | None = None, *, env: Mapping[str, str] | None = None) -> Settings:
    """The settings of this environment; `state` is stronger than what it says. Raises BadRequest for a value that
    cannot be one."""
    env = os.environ if env is None else env
    state = _state(env) if state is None else state.absolute()
    return Settings(
        state=state,
        user=_user(env),
        project=env.get("TPUJOB_PROJECT") or "tpujob-local",
        context=_context(state / "context.json"),
        store=_store(env),
        database=env.get("TPUJOB_DATABASE") or "(default)",
        firestore_emulator=env.get("FIRESTORE_EMULATOR_HOST", ""),
    )


def no_color(env: Mapping[str, str] | None = None) -> bool:
    """Whether the user wants no colours (https://no-color.org), or the terminal has none."""
    env = os.environ if env is None else env
    return bool(env.get("NO_COLOR")) or env.get("TERM") == "dumb"


def prepare(settings: Settings) -> None:
    """Afterwards the folders are there, owned by the user and closed to everybody else. Raises StoreError when one is
    a link or somebody else's: secrets would land where the user did not put them."""
    for folder in (
        settings.state,
        settings.run,
        settings.keys,
        settings.emulator_state,
        settings.farm_state,
    ):
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
        except OSError as error:
            raise StoreError(
                f"cannot make the folder {folder}: {error.strerror}", hint=_ELSEWHERE
            ) from error
        if not stat.S_ISDIR(found.st_mode):
            raise StoreError(f"{folder} is a link, not a folder", hint=_ELSEWHERE)
        if found.st_uid != os.geteuid():
            raise StoreError(f"{folder} belongs to another user", hint=_ELSEWHERE)
        if stat.S_IMODE(found.st_mode) & 0o077:
            _close(folder)


def _close(folder: Path) -> None:
    try:
        folder.chmod(0o700)
    except OSError as error:
        raise StoreError(
            f"cannot close the folder {folder} to others: {error.strerror}", hint=_ELSEWHERE
        ) from error


_ELSEWHERE = "set TPUJOB_STATE to a folder of your own"


def _state(env: Mapping[str, str]) -> Path:
    if given := env.get("TPUJOB_STATE"):
        return Path(given).expanduser().absolute()
    base = env.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):  # the XDG specification: a relative path is to be ignored
        home = env.get("HOME", "")
        base = f"{home if home.startswith('/') else _account().pw_dir}/.local/state"
    return Path(base) / "tpujob"


def _store(env: Mapping[str, str]) -> str:
    given = env.get("TPUJOB_STORE") or "sqlite"
    if given not in ("sqlite", "firestore"):
        raise BadRequest(
            f"TPUJOB_STORE is {given!r}", hint="it can be sqlite (also when unset) or firestore"
        )
    return given


def _user(env: Mapping[str, str]) -> str:
    """A name that may be part of a label or a column, whatever the account is called."""
    given = env.get("TPUJOB_USER") or env.get("LOGNAME") or env.get("USER") or _account().pw_name
    return re.sub(r"[^a-z0-9_-]+", "-", given.lower()).strip("-_")[:40] or "user"


def _account() -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(os.getuid())
    except KeyError:  # a container that runs under a number
        return pwd.struct_passwd(("user", "", os.getuid(), os.getgid(), "", "/tmp", ""))  # noqa: S108


def _context(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return LOCAL
    try:
        found: Any = json.loads(text)["context"]
    except (ValueError, TypeError, KeyError):
        found = None
    if not isinstance(found, str):
        raise BadRequest(f"{path} does not name a context", hint="remove it to use the local stack")
    return found


def _put_first(path: Path, text: str) -> None:
    """Put a file in place whole, unless somebody else was quicker."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()
