"""Other users of this machine who type commands: processes that root starts, one for each user."""

import contextlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

from tests.support.commands import Output

#: imports first, as another user may not read Python's folder; then becomes the user, and runs commands
_SCRIPT = """
import encodings.ascii, encodings.idna, encodings.latin_1, encodings.utf_8_sig
import contextlib, importlib, io, json, os, pkgutil, resource, socket, sys
import asyncio, concurrent.futures.thread, fabric, fcntl, http.client, paramiko, ssl, tempfile, termios, tty, yaml
import tpujob.adapters.http.client, tpujob.adapters.ssh, tpujob.cli.app, tpujob.wiring.client
for package in ("tpujob.api", "tpujob.cli", "tpujob.config", "tpujob.domain", "tpujob.submit"):
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        importlib.import_module(found.name)
uid, gid, home = json.loads(sys.argv[1])
os.setgroups([])
os.setgid(gid)
os.setuid(uid)
os.umask(0o022)
os.chdir(home)
sys.path[:] = []
for line in sys.stdin:
    words = json.loads(line)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if words[0] == "a script, and no command":
            code = 0
            exec(words[1])
        else:
            code = tpujob.cli.app.run(words)
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


class User:
    def __init__(self, name: str, folder: Path) -> None:
        account = pwd.getpwnam(name)
        self.name, self.uid = name, account.pw_uid
        self.home = folder / name
        self.home.mkdir()
        os.chown(self.home, account.pw_uid, account.pw_gid)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TPUJOB_", "XDG_"))}
        env |= {"HOME": str(self.home), "USER": name, "LOGNAME": name, "NO_COLOR": "1"}
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _SCRIPT,
                json.dumps([account.pw_uid, account.pw_gid, str(self.home)]),
            ],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str, code: int | None = 0) -> Output:
        """Run a command line, which must end with `code` (None: any)."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        ended, out, err = json.loads(self._process.stdout.readline())
        transcript = f"{self.name}: tpujob {' '.join(words)} ended with {ended}\n{out}\n{err}"
        assert code is None or ended == code, transcript
        return Output(ended, out, err)

    def python(self, script: str) -> Any:
        """Return the JSON that a script prints."""
        return self("a script, and no command", script).json

    def leave(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def users(*names: str) -> Generator[list[User]]:
    """Make these users, with homes in a folder that every user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="users-", dir="/tmp"))
    folder.chmod(0o755)
    people = [User(name, folder) for name in names]
    try:
        yield people
    finally:
        for user in people:
            user.leave()
        shutil.rmtree(folder)
