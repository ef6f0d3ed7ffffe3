"""How fast the emulated Cloud Storage is with the official client. Run: python tests/bench/bench_storage.py [MiB]"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tpujob.adapters.gcs import GcsBlobs


def main() -> None:
    mebibytes = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    size = mebibytes << 20
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "source"), Path(folder, "target")
        source.write_bytes(os.urandom(1 << 20) * mebibytes)
        url, server = _server(Path(folder, "state"))
        try:
            client = storage.Client(
                "bench", credentials=AnonymousCredentials(), client_options={"api_endpoint": url}
            )
            bucket = client.create_bucket("bench-bucket", location="us-central2")
            blob = bucket.blob("large")
            for _ in range(2):
                _rate("upload", size, lambda: blob.upload_from_filename(source))
                _rate("download", size, lambda: blob.download_to_filename(target))
            assert target.read_bytes() == source.read_bytes()
            _small(GcsBlobs("bench", url))
        finally:
            server()


def _server(state: Path) -> tuple[str, Callable[[], None]]:
    """In a process of its own, as in the local stack; else client and server would share one interpreter."""
    import subprocess

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
    assert process.stdin
    assert process.stdout
    url = process.stdout.readline().strip()

    def stop() -> None:
        process.communicate()

    return url, stop


def _small(blobs: GcsBlobs) -> None:
    count, data = 1000, os.urandom(4096)

    def put(i: int) -> None:
        path = f"gs://bench-bucket/reports/host-{i:04d}"
        blobs.put(path, data, metadata={"report": "x" * 400}, timeout=10)

    _each("put of 4 KiB", count, lambda: [put(i) for i in range(count)])
    with ThreadPoolExecutor(8) as pool:
        _each("put of 4 KiB, 8 threads", count, lambda: list(pool.map(put, range(count))))
    for _ in range(2):
        _each(
            "listed with metadata",
            count,
            lambda: blobs.list("gs://bench-bucket/reports/", timeout=10),
        )
    path = "gs://bench-bucket/reports/host-0000"
    _each("get of 4 KiB", count, lambda: [blobs.get(path, timeout=10) for _ in range(count)])


def _rate(what: str, size: int, work: Callable[[], object]) -> None:
    print(f"{what:36} {size / _seconds(work) / 1e6:8.0f} MB/s")


def _each(what: str, count: int, work: Callable[[], object]) -> None:
    print(f"{what:36} {count / _seconds(work):8.0f} /s")


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
