"""The real gcloud, led to emulators, with a separate configuration."""

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
    """A runner of `gcloud ...` with these variables added to the test's, and without an account."""

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
        """Return standard output; for an expected `code` other than 0, standard error."""
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
    """Return the folder of the Cloud SDK, which may be absent."""
    return Path(shutil.which("gcloud") or "/usr/bin/gcloud").resolve().parents[1]
