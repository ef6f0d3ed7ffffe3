"""How fast `tpujob data sync` is against the emulated Cloud Storage, beside `gcloud storage cp` where that is
installed. Run: python -m tests.bench.bench_data [files] [MiB of the large file]"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tests.contract.data.web import WebServer, serving


def main() -> None:
    files = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    mebibytes = int(sys.argv[2]) if len(sys.argv) > 2 else 1024
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _make(folder, files, mebibytes)
        url, stop = _server(folder / "state")
        try:
            client = storage.Client(
                "bench", credentials=AnonymousCredentials(), client_options={"api_endpoint": url}
            )
            client.create_bucket("bench-bucket", location="us-central2")
            client.create_bucket("bench-far", location="europe-west4")
            _compare(folder, url, files, mebibytes)
            _from_the_web(folder, url, mebibytes)
        finally:
            stop()


def _server(state: Path) -> tuple[str, Callable[[], None]]:
    """In a process of its own, as in the local stack; else client and server would share one interpreter."""
    code = (
        "import sys, pathlib; from tpujob.emulator.storage import StorageServer;"
        " s = StorageServer(pathlib.Path(sys.argv[1])); print(s.url, flush=True); sys.stdin.read(); s.stop()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout

    def stop() -> None:
        process.communicate()

    return process.stdout.readline().strip(), stop


def _make(folder: Path, files: int, mebibytes: int) -> None:
    data = os.urandom(4096 + files)
    for i in range(files):
        part = folder / "small" / f"part-{i // 1000:03d}"
        if i % 1000 == 0:
            part.mkdir(parents=True)
        (part / f"{i:06d}").write_bytes(data[i : i + 4096])
    (folder / "large").mkdir()
    (folder / "large" / "file").write_bytes(os.urandom(1 << 20) * mebibytes)


def _compare(folder: Path, url: str, files: int, mebibytes: int) -> None:
    for kind, what in (
        ("small", f"{files} files of 4 KiB"),
        ("large", f"a file of {mebibytes} MiB"),
    ):
        bucket = f"gs://bench-bucket/{kind}"
        _run(f"sync up, {what}", folder, url, _sync(folder / kind, bucket))
        _run(f"sync up again, {what}", folder, url, _sync(folder / kind, bucket))
        _run(f"sync down, {what}", folder, url, _sync(bucket, folder / "down" / kind))
        _run(
            f"sync to another region, {what}", folder, url, _sync(bucket, f"gs://bench-far/{kind}")
        )
        if shutil.which("gcloud"):
            copy = ["gcloud", "storage", "cp", "-r", "-q"]
            _run(f"gcloud up, {what}", folder, url, [*copy, str(folder / kind), f"{bucket}-gcloud"])
            (folder / "back").mkdir(exist_ok=True)
            _run(
                f"gcloud down, {what}",
                folder,
                url,
                [*copy, f"{bucket}-gcloud", str(folder / "back")],
            )


def _from_the_web(folder: Path, url: str, mebibytes: int) -> None:
    """Through the memory of the process, with nothing to verify it by but the length."""
    files = {"file": (folder / "large" / "file").read_bytes()}
    with serving(WebServer(files=files)) as web:
        what = f"a file of {mebibytes} MiB"
        _run(
            f"web to bucket, {what}", folder, url, _sync(f"{web.url}/file", "gs://bench-bucket/web")
        )
        _run(f"web to folder, {what}", folder, url, _sync(f"{web.url}/file", folder / "web"))


def _sync(source: object, target: object) -> list[str]:
    return [sys.executable, "-m", "tpujob", "data", "sync", str(source), str(target)]


def _run(what: str, folder: Path, url: str, command: list[str]) -> None:
    env = {
        **os.environ,
        "TPUJOB_STATE": str(folder / "tpujob"),
        "STORAGE_EMULATOR_HOST": url,
        "CLOUDSDK_CONFIG": str(folder / "gcloud"),
        "CLOUDSDK_CORE_PROJECT": "bench",
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{url}/storage/v1/",
    }
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    said = done.stdout.strip().replace("\n", "; ") if done.returncode == 0 else done.stderr.strip()
    print(f"{what:42} {seconds:7.2f} s {cpu:7.2f} s CPU   {said[:160]}", flush=True)


if __name__ == "__main__":
    main()
