"""Settings of this machine: folders, user, current context. The only reader of the environment.

`load` writes nothing; `prepare` makes the folders, before something is written. Of the current context, only the name
is read here, as every command needs it; `config/context.py` reads its file.
"""

import contextlib
import json
import os
import pwd
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpujob.config.files import private_folder, put
from tpujob.errors import BadRequest

#: prefixes of variables that a backend always gets
_OF_THE_CLOUD = ("TPUJOB_", "GOOGLE_", "CLOUDSDK_")

REPLACE_STORE = "TPUJOB_REPLACE_STORE"
LOCAL = "local"  #: the context of the stack on this machine
#: pattern of a context's name, which is also part of a path
CONTEXT_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Settings:
    state: Path  #: the folder of all files, closed to other users
    user: str  #: name of the user who submits: small letters, digits, `-` and `_`
    project: str  #: the cloud project; the emulator takes any name
    context: str = LOCAL  #: `local`, or the name of a context that has a file
    report_every: float = 2.0  #: seconds between two reports of a host; in the cloud, each costs

    store: str = "sqlite"  #: place of the jobs: `sqlite`, a file, or `firestore`, of `project`
    database: str = "(default)"  #: the Firestore database
    replace_store: str = ""  #: the identity of a lost store that a new one replaces
    firestore_emulator: str = ""  #: host and port; empty: Google's own service
    storage_endpoint: str = ""  #: URL of an emulated Cloud Storage; empty: Google's own
    tpu_endpoint: str = ""  #: gRPC endpoint of an emulated Cloud TPU API; empty: Google's own
    google_endpoint: str = ""  #: URL in place of Google's other REST APIs; empty: Google's own
    ssh_port: int = 22  #: port of the hosts of a named context
    keys_in: str = "files"  #: place of SSH keys: `files`, in `state`, or `secret-manager`
    tunnel: str = "gcloud"  #: the program that carries SSH through IAP, with its first words
    service: str = ""  #: the Cloud Run service of this process; empty: it runs elsewhere
    socket: str = ""  #: path of the socket of `tpujob serve`
    page: bool = True  #: whether the backend on this machine shows its page at a port of loopback
    page_url: str = ""  #: the URL under which the status page is known, for links in notifications
    port: int = 0  #: port of Cloud Run's requests; 0: any
    only_called: bool = False  #: ticks run only while a request is being answered

    @property
    def local(self) -> bool:
        """Whether jobs run in the emulator on this machine."""
        return self.context == LOCAL

    @property
    def cache(self) -> Path:
        return self.state / "cache"  #: files of all contexts that can be made again

    @property
    def contexts(self) -> Path:
        return self.state / "contexts"  #: a file and a folder for each context but the local one

    @property
    def context_file(self) -> Path:
        return self.contexts / f"{self.context}.yaml"

    def context_stamp(self) -> str:
        """Return a stamp that changes with the context's file; empty if the file is missing."""
        try:
            status = self.context_file.stat()
        except OSError:
            return ""
        return f"{status.st_mtime_ns}-{status.st_size}"

    @property
    def home(self) -> Path:
        """The folder of the current context: no two contexts share jobs, keys or a token."""
        return self.state if self.local else self.contexts / self.context

    @property
    def run(self) -> Path:
        return self.home / "run"  #: ready files and logs of its processes

    @property
    def db(self) -> Path:
        return self.home / "jobs.db"

    @property
    def keys(self) -> Path:
        return self.home / "keys"  #: SSH keys and pinned host keys, by slice

    @property
    def secrets(self) -> Path:
        return self.home / "secrets"  #: secrets of the local stack's users

    @property
    def page_port(self) -> Path:
        return self.run / "page.port"  #: the page's port of loopback, kept from run to run

    @property
    def emulator_state(self) -> Path:
        return self.state / "emulator"

    @property
    def farm_state(self) -> Path:
        return self.state / "farm"

    def ready_file(self, process: str) -> Path:
        """Return the file in which a process of the local stack reports that it is up, and its addresses."""
        return self.run / f"{process}.json"

    def process_file(self, process: str) -> Path:
        """Return the file that records the pid of the started process."""
        return self.run / f"{process}.process"

    def log_file(self, process: str) -> Path:
        return self.run / f"{process}.log"


def load(
    state: Path | None = None, *, context: str = "", env: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings of this environment; `state` and `context` override its variables. Raise BadRequest for an
    invalid value."""
    env = os.environ if env is None else env
    state = _state(env) if state is None else state.absolute()
    context = context or env.get("TPUJOB_CONTEXT") or _context(state / "context.json")
    if not CONTEXT_NAME.fullmatch(context):
        raise BadRequest(
            f"{context[:60]!r} is not a valid name of a context",
            hint="1 to 40 of a-z, 0-9 and -; `tpujob use` lists those that there are",
        )
    # an instance of Cloud Run has no disk that outlives it
    default_keys = "secret-manager" if env.get("K_SERVICE") else "files"
    return Settings(
        state=state,
        user=_user(env),
        project=env.get("TPUJOB_PROJECT") or "tpujob-local",
        context=context,
        report_every=_number(env, "TPUJOB_REPORT_EVERY", 1, 60)
        or (2.0 if context == LOCAL else 60.0),
        store=_choice(env, "TPUJOB_STORE", ("sqlite", "firestore"), "sqlite"),
        database=env.get("TPUJOB_DATABASE") or "(default)",
        replace_store=env.get(REPLACE_STORE, ""),
        firestore_emulator=env.get("FIRESTORE_EMULATOR_HOST", ""),
        storage_endpoint=_url(env.get("STORAGE_EMULATOR_HOST", "")),
        tpu_endpoint=env.get("TPUJOB_TPU_ENDPOINT", ""),
        google_endpoint=_url(env.get("TPUJOB_GOOGLE_ENDPOINT", "")),
        ssh_port=int(_number(env, "TPUJOB_SSH_PORT", 1, 65535) or 22),
        keys_in=_choice(env, "TPUJOB_KEYS", ("files", "secret-manager"), default_keys),
        tunnel=env.get("TPUJOB_TUNNEL") or "gcloud",
        service=env.get("K_SERVICE", ""),
        socket=env.get("TPUJOB_SOCKET", ""),
        page=_choice(env, "TPUJOB_PAGE", ("on", "off"), "on") == "on",
        port=int(_number(env, "PORT", 1, 65535)) if env.get("K_SERVICE") else 0,
    )


def choose(settings: Settings, context: str) -> None:
    """Make this the current context of all terminals that do not set another."""
    prepare(settings)
    put(settings.state / "context.json", json.dumps({"context": context}))


def no_color(env: Mapping[str, str] | None = None) -> bool:
    """Return whether the user disabled colours (https://no-color.org), or the terminal has none."""
    env = os.environ if env is None else env
    return bool(env.get("NO_COLOR")) or env.get("TERM") == "dumb"


def variable(name: str) -> str:
    """Return the variable that a user names; empty if it is not set."""
    return os.environ.get(name, "")


def for_processes(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a process of the stack: this one without secrets, which are for commands. Credentials
    of tpujob and of Google's clients stay."""
    from tpujob.protocol.limits import secret_variables

    env = os.environ if env is None else env
    return {
        k: v for k, v in env.items() if k.startswith(_OF_THE_CLOUD) or not secret_variables({k: v})
    }


def has_screen() -> bool:
    """Return whether a browser can be shown to the user; False on a login node, for example."""
    if sys.platform == "darwin":
        return not os.environ.get("SSH_CONNECTION")
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def prepare(settings: Settings) -> None:
    """Make the folders, owned by the user and closed to other users. Raise StoreError if one is a link or belongs to
    another user, as secrets would be written there."""
    local = (settings.emulator_state, settings.farm_state) if settings.local else ()
    needed = (settings.state, settings.contexts, settings.home, settings.run, settings.keys, *local)
    for folder in needed:
        private_folder(folder)


def _state(env: Mapping[str, str]) -> Path:
    if folder := env.get("TPUJOB_STATE"):
        return Path(folder).expanduser().absolute()
    base = env.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):  # the XDG specification: a relative path is to be ignored
        home = env.get("HOME", "")
        base = f"{home if home.startswith('/') else _account().pw_dir}/.local/state"
    return Path(base) / "tpujob"


def _choice(env: Mapping[str, str], name: str, allowed: Sequence[str], default: str) -> str:
    value = env.get(name) or default
    if value not in allowed:
        raise BadRequest(f"{name} is {value!r}", hint=f"it can be {' or '.join(allowed)}, or unset")
    return value


def _url(address: str) -> str:
    """Return the address as a URL; host and port alone become one with `http://`."""
    return f"http://{address}" if address and "://" not in address else address.rstrip("/")


def _number(env: Mapping[str, str], name: str, least: int, greatest: int) -> float:
    """Return the number in a variable; 0 if it is not set."""
    value = env.get(name, "")
    if not value:
        return 0.0
    with contextlib.suppress(ValueError):
        if least <= float(value) <= greatest:
            return float(value)
    raise BadRequest(f"{name} is {value!r}", hint=f"it can be a number from {least} to {greatest}")


def _user(env: Mapping[str, str]) -> str:
    """Return the user's name, with the characters that the name of a member may have."""
    name = env.get("TPUJOB_USER") or env.get("LOGNAME") or env.get("USER") or _account().pw_name
    return re.sub(r"[^a-z0-9_.@+-]+", "-", name.lower()).strip("-_.@+")[:64] or "user"


def _account() -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(os.getuid())
    except KeyError:  # a container's user id that has no account
        return pwd.struct_passwd(("user", "", os.getuid(), os.getgid(), "", "/tmp", ""))  # noqa: S108, nowhere else


def _context(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return LOCAL
    try:
        name: Any = json.loads(text)["context"]
    except (ValueError, TypeError, KeyError):
        name = None
    if not isinstance(name, str) or not CONTEXT_NAME.fullmatch(name):
        raise BadRequest(f"{path} does not name a context", hint="remove it to use the local stack")
    return name
