"""`tpujob emulator env`: in a terminal with these variables, Google's clients use the local stack."""

import json
import re
import subprocess
import sys

from tests.support import gcloud as sdk
from tests.support.gcloud import Gcloud
from tests.support.local_stack import LocalStack, stack
from tests.support.paths import ROOT

__all__ = ["stack"]  # the fixture


ZONE = "us-central2-b"


def exported(local: LocalStack) -> dict[str, str]:
    """Return the variables that a shell has after the `eval` of the page, and not before."""
    script = local.run("emulator", "env")
    look = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    result = subprocess.run(
        ["bash", "-euc", 'eval "$1"; shift; exec "$@"', "bash", script, *look],
        env={"PATH": local.env["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    variables: dict[str, str] = json.loads(result.stdout)
    return {k: v for k, v in variables.items() if f"export {k}=" in script}


def test_a_shell_exports_what_json_says_and_unsets_all_of_it(stack: LocalStack) -> None:
    variables = stack.json("emulator", "env")
    assert exported(stack) == variables
    assert variables["CLOUDSDK_CORE_PROJECT"] == "tpujob-local"
    assert variables["CLOUDSDK_CONFIG"].startswith(str(stack.state)), "not the person's own"
    assert stack.run("emulator", "env", "--off").split() == ["unset", *variables]


def test_a_context_brings_its_project_and_a_project_can_be_given(stack: LocalStack) -> None:
    stack.run("init", "--name", "lab", "--project", "my-lab-4711", "--zone", ZONE)
    try:
        assert stack.json("emulator", "env")["CLOUDSDK_CORE_PROJECT"] == "my-lab-4711"
        other = stack.json("emulator", "env", "--project", "my-lab-4712")
        assert other["CLOUDSDK_CORE_PROJECT"] == "my-lab-4712"
    finally:
        stack.run("use", "local")


PAGE = ROOT / "docs" / "google-cloud.md"
#: a usual client of Cloud Storage, and the page's example for Cloud TPU
PYTHON = """
from google.cloud import storage

bucket = storage.Client().create_bucket("of-python", location="us-central2")
bucket.blob("a").upload_from_string("hello")
""" + re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)[-1]


def test_googles_python_clients_find_the_emulator(stack: LocalStack) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PYTHON],
        env={"PATH": stack.env["PATH"], **exported(stack)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "v4-32" in done.stdout.split()


@sdk.needed
def test_gcloud_finds_storage_tpus_and_their_hosts(stack: LocalStack) -> None:
    gcloud = Gcloud(exported(stack), stack.folder)
    gcloud("storage", "buckets", "create", "gs://of-gcloud", "--location=us-central2")
    (stack.folder / "hello").write_text("hello from gcloud")
    gcloud("storage", "cp", "hello", "gs://of-gcloud/greetings/")
    assert gcloud("storage", "cat", "gs://of-gcloud/greetings/hello") == "hello from gcloud"

    queued = ("compute", "tpus", "queued-resources")
    options = ("--accelerator-type=v4-16", "--runtime-version=tpu-ubuntu2204-base", "--spot")
    gcloud(*queued, "create", "mine", "--node-id=mine", *options, f"--zone={ZONE}")
    (slice,) = stack.json("emulator", "status")["slices"]
    assert (slice["name"], slice["type"], slice["pricing"]) == ("mine", "v4-16", "spot")
    gcloud(*queued, "delete", "mine", "--force", f"--zone={ZONE}")
    assert stack.json("emulator", "status")["slices"] == []
