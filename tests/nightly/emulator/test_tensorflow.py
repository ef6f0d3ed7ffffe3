"""TensorFlow's file system, by which MaxText and big_vision save, reads and writes the emulated bucket."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.emulator.storage.test_proxy import proxied
from tests.contract.emulator.storage_rig import BUCKET

#: Its argument: a folder in the bucket. It ends with what it has found there.
PROGRAM = """
import os, sys
import tensorflow as tf
from etils import epath
root, files = sys.argv[1], tf.io.gfile
files.makedirs(root + "/folder")
large = os.urandom(9_000_000)  # more than a piece of an upload
for name, content in (("small", b"hello"), ("large", large)):
    with files.GFile(f"{root}/folder/{name}", "wb") as file:
        file.write(content)
    with files.GFile(f"{root}/folder/{name}", "rb") as file:
        assert file.read() == content, name
files.rename(root + "/folder/small", root + "/folder/renamed")
place = epath.Path(root) / "folder"
(place / "text").write_text("written")
assert (place / "text").read_text() == "written"
assert files.stat(root + "/folder/large").length == len(large)
print(sorted(path.name for path in place.iterdir()), files.glob(root + "/*/text"))
files.rmtree(root)
print(files.exists(root + "/folder/large"))
"""


@pytest.mark.timeout(1800)
def test_tensorflow_works_in_the_emulated_bucket(tmp_path: Path) -> None:
    python = tmp_path / "env/bin/python"
    uv = (sys.executable, "-m", "uv", "--quiet")
    subprocess.run([*uv, "venv", "--python", sys.executable, python.parents[1]], check=True)
    install = [*uv, "pip", "install", "--python", python, "tensorflow-cpu", "etils[epath]"]
    if subprocess.run(install, check=False).returncode != 0:
        pytest.skip("NOT TESTED: no index has tensorflow-cpu for this Python")
    root = f"gs://{BUCKET}/run"
    with proxied(tmp_path) as env:
        done = subprocess.run(
            [python, "-c", PROGRAM, root],
            env={**env, "HOME": str(tmp_path), "NO_GCE_CHECK": "true"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stdout.splitlines() == [
        f"['large', 'renamed', 'text'] ['{root}/folder/text']",
        "False",
    ], done.stderr
