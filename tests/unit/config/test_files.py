"""Files that cannot be read each get one clear error."""

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
    for path, text in [
        (tmp_path / "none.yaml", f"{tmp_path}/none.yaml: there is no such file"),
        (tmp_path, "is a folder; name the file in it"),
        (latin, "latin.yaml:2: is not UTF-8 text"),
        (utf16, "utf16.yaml:1: is not UTF-8 text"),
        (huge, "huge.yaml: is longer than 256 KiB"),
        (latin / "below-a-file.yaml", "cannot be read: "),
    ]:
        with pytest.raises(BadSpec) as error:
            files.read(path)
        assert text in error.value.message
    if os.geteuid() != 0:  # root reads everything
        latin.chmod(0)
        with pytest.raises(BadSpec, match="cannot be read: Permission denied"):
            files.read(latin)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("helo.yaml", "Did you mean hello.yaml?"),
        (
            "other.yaml",
            "In this folder there are 1.yaml, 2.yaml, 3.yaml, 4.yaml, 5.yaml and 1 more.",
        ),
        ("other.**", "There is no .** file in this folder: check the path"),
        ("below/other.yaml", "In below there are mlp.yaml."),
        ("nowhere/other.yaml", "There is no folder nowhere either: check the path"),
    ],
)
def test_the_error_of_a_missing_file_names_similar_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, hint: str
) -> None:
    (tmp_path / "below").mkdir()
    for file in ("hello.yaml", *(f"{n}.yaml" for n in range(1, 6)), "notes.txt", "below/mlp.yaml"):
        (tmp_path / file).touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadSpec) as error:
        files.read(Path(name))
    assert hint in error.value.hint, error.value.hint


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: a\r\n")
    assert files.read(path) == "name: a\r\n"
