"""How fast the agent takes in a program's output, without and with secrets to look for: MB/s of one CPU.

.venv/bin/python -m tests.bench.bench_redact
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path

from tpujob.agent.metadata import MetadataClient
from tpujob.agent.storage import Storage
from tpujob.agent.upload import Log, Redactor

LINE = b"step %07d loss 2.3456 grad_norm 0.789 tokens_per_s 123456.7 mfu 0.456\n"
TEXT = b"".join(LINE % number for number in range(20_000))
KNOWN = {f"SECRET_{number}": f"{number}{os.urandom(20).hex()}" for number in range(8)}


class Nowhere(Storage):
    """Takes everything at once."""

    def put(self, *_: object, **__: object) -> None: ...


def rate(known: dict[str, str], text: bytes, write: int) -> float:
    """MB of output a second of this process, from a pipe that is written to in pieces of so many bytes."""
    with tempfile.TemporaryDirectory() as folder:
        spool, storage = str(Path(folder, "spool")), Nowhere(MetadataClient())
        log = Log(storage, str, spool, 1 << 40, Redactor(known), 300)
        reader, writer = os.pipe()
        pump = log.follow(reader)

        def feed() -> None:
            for start in range(0, len(text), write):
                os.write(writer, text[start : start + write])
            os.close(writer)

        began = time.process_time()
        thread = threading.Thread(target=feed)
        thread.start()
        thread.join()
        pump.join()
        took = time.process_time() - began
        log.finish(10)
    return len(text) / took / 1e6


def main() -> None:
    rare = TEXT.replace(b"0.456\n", b"0.456 " + next(iter(KNOWN.values())).encode() + b"\n", 200)
    print("output of a program      pieces   no secrets   8 secrets")
    for name, text, write in (
        ("lines in blocks", TEXT * 20, 65536),
        ("one line at a time", TEXT * 2, len(LINE % 1)),
        ("with 200 values in it", rare * 20, 65536),
    ):
        figures = [max(rate(known, text, write) for _ in range(3)) for known in ({}, KNOWN)]
        print(f"{name:24} {write:6}   {figures[0]:8.0f}   {figures[1]:9.0f} MB/s")


if __name__ == "__main__":
    main()
