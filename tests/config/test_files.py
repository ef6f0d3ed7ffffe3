"""Files that cannot be read each get one clear error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tpujob.config import files
from tpujob.errors import BadSpec


def test_unreadable_context_files_are_reported(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"name: a\n# caf\xe9\n")
    utf16 = tmp_path / "utf16.yaml"
    utf16.write_text("name: a\n", encoding="utf-16")
    huge = tmp_path / "huge.yaml"
    huge.write_bytes(b"a: b\n" * 2_000_000)
    for path, says in [
        (tmp_path / "none.yaml", f"{tmp_path}/none.yaml: there is no such file"),
        (tmp_path, "is a folder; name the job file in it"),
        (latin, "latin.yaml:2: is not UTF-8 text"),
        (utf16, "utf16.yaml:1: is not UTF-8 text"),
        (huge, "huge.yaml: is longer than 256 KiB"),
        (latin / "below-a-file.yaml", "cannot be read: "),
    ]:
        with pytest.raises(BadSpec) as error:
            files.read(path)
        assert says in error.value.message
    if os.geteuid() != 0:  # root reads everything
        latin.chmod(0)
        with pytest.raises(BadSpec, match="cannot be read: Permission denied"):
            files.read(latin)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: a\r\n")
    assert files.read(path) == "name: a\r\n"
