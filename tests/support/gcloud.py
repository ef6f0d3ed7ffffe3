"""The real gcloud, led to emulators, with a configuration of its own."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

needed = pytest.mark.skipif(
    shutil.which("gcloud") is None, reason="NOT TESTED: gcloud of the Cloud SDK is not installed"
)


class Gcloud:
    """Runs `gcloud ...` with these variables on top of the test's own, and with no account."""

    def __init__(self, variables: Mapping[str, str], folder: Path) -> None:
        self.folder = folder
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("CLOUDSDK_")}
        self.env = {
            **inherited,
            "HOME": str(folder),
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "true",
            **variables,
        }

    def __call__(self, *words: str, code: int = 0) -> str:
        """Standard output; what went wrong, if it has to end with another code than 0."""
        done = subprocess.run(
            ["gcloud", *words],
            env=self.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        transcript = f"gcloud {' '.join(words)}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == code, transcript
        return done.stdout if code == 0 else done.stderr

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--format=json"))


def folder() -> Path:
    """The folder of the Cloud SDK."""
    return Path(shutil.which("gcloud") or "").resolve().parents[1]
