"""Environments with the trainers of other projects, as the files of `configs/` ask for them. All runs share them."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tpujob.agent.setup.installers import FOR_TPU_ONLY

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tpujob" / "trainers"
PYENV = Path.home() / ".pyenv" / "versions"


def environment(name: str, requirements: Path, python: str) -> Path:
    """Return the `bin` folder of an environment with those packages, without what is for TPUs only. The first call
    downloads them. Skips the test where they, or that Python, cannot be had."""
    key = hashlib.sha256(f"{python}\n{requirements.read_text()}".encode()).hexdigest()[:8]
    folder = CACHE / f"{name}-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several tests, one installs
        if not (folder / "installed").exists():
            for old in set(CACHE.glob(f"{name}-*")) - {folder}:
                shutil.rmtree(old)
            if problem := _install(folder, requirements, python):
                pytest.skip(f"NOT TESTED: {name}, which cannot be installed here: {problem}")
            (folder / "installed").touch()
    return folder / "venv" / "bin"


def _install(folder: Path, requirements: Path, python: str) -> str:
    """Return the problem; empty: none."""
    (folder / "without.txt").write_text("\n".join(FOR_TPU_ONLY))
    path = [os.environ["PATH"], *map(str, PYENV.glob(f"{python}.*/bin"))]
    env = {
        **os.environ,
        "PATH": os.pathsep.join(path),
        "UV_EXCLUDE": str(folder / "without.txt"),
        "UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", ""),  # such as a PyTorch without CUDA
        "UV_PYTHON_DOWNLOADS": "never",
    }
    venv, uv = folder / "venv", Path(sys.executable).with_name("uv")
    for words in (
        ["venv", "--clear", "--no-project", "--python", python, venv],
        ["pip", "install", "--python", venv / "bin" / "python", "-r", requirements],
    ):
        ended = subprocess.run([uv, "--quiet", *words], env=env, capture_output=True, text=True)
        if ended.returncode != 0:
            return ended.stderr.strip()
    return ""
