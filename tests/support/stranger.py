"""Another user of this machine, who tries to get in."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.support.waiting import LONG

needed = pytest.mark.skipif(
    os.geteuid() != 0, reason="NOT TESTED: another user at the doors, as only root can become one"
)
UID = 65534
#: what was imported before stays; files that only root can read do not
_BECOME = """
import encodings.idna, http.client, json, os, socket, sys
given = json.loads(sys.argv[1])
os.setgroups([])
os.setgid({uid})
os.setuid({uid})
"""


def run(script: str, argument: Any = None) -> Any:
    """Run a script as another user; return the JSON that it prints. The script has `given` and some imports."""
    words = [sys.executable, "-I", "-c", _BECOME.format(uid=UID) + script, json.dumps(argument)]
    done = subprocess.run(words, cwd="/", capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
