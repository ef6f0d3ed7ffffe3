"""An environment of the bucket's cache, which any writer of the bucket may have made."""

import io
import tarfile
from pathlib import Path

import pytest

from tpujob.agent.setup.environments import unpack_archive

Entry = tuple[str, bytes, str]  # name, type, and text or where a link leads


def packed(at: Path, *entries: Entry) -> str:
    with tarfile.open(at, "w") as tar:
        for name, kind, content in entries:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0o4755
            if kind == tarfile.REGTYPE:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content.encode()))
            else:
                info.linkname = content
                tar.addfile(info)
    return str(at)


def test_an_environment_keeps_its_links_and_loses_its_privileges(tmp_path: Path) -> None:
    archive = packed(
        tmp_path / "env.tar",
        ("bin", tarfile.DIRTYPE, ""),
        ("links.json", tarfile.REGTYPE, '[["bin/python", "/usr/bin/python3"]]'),
        ("bin/python3", tarfile.SYMTYPE, "python"),
        ("lib/a.py", tarfile.REGTYPE, "1"),
        ("lib/b.py", tarfile.LNKTYPE, "lib/a.py"),
    )
    unpack_archive(archive, str(tmp_path / "env"))
    assert (tmp_path / "env/bin/python").readlink() == Path("/usr/bin/python3")
    assert (tmp_path / "env/lib/b.py").read_text() == "1"
    assert (tmp_path / "env/lib/a.py").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    "entries",
    [
        [("../outside", tarfile.REGTYPE, "stolen")],
        [("/tmp/tpujob-outside", tarfile.REGTYPE, "stolen")],
        [("out", tarfile.SYMTYPE, ".."), ("out/outside", tarfile.REGTYPE, "stolen")],
        [("out", tarfile.SYMTYPE, "../outside"), ("out", tarfile.REGTYPE, "stolen")],
        [("out", tarfile.LNKTYPE, "../secret")],
        [("up", tarfile.SYMTYPE, ".."), ("out", tarfile.LNKTYPE, "up/secret")],
        [("up", tarfile.SYMTYPE, ".."), ("up/link", tarfile.SYMTYPE, "x")],
        [("up", tarfile.SYMTYPE, ".."), ("up/folder", tarfile.DIRTYPE, "")],
        [("pipe", tarfile.FIFOTYPE, "")],
        [("device", tarfile.CHRTYPE, "")],
        [("out", tarfile.SYMTYPE, "/etc")],
        [("out", tarfile.SYMTYPE, "../secret")],
        [("links.json", tarfile.REGTYPE, '[["../outside", "/etc/passwd"]]')],
        [("links.json", tarfile.REGTYPE, '[["/tmp/tpujob-outside", "/etc/passwd"]]')],
        [("links.json", tarfile.REGTYPE, '[["out", ".."], ["out/outside", "/etc/passwd"]]')],
    ],
)
@pytest.mark.parametrize("filters", [True, False])
def test_nothing_is_written_outside_of_its_folder(
    tmp_path: Path, entries: list[Entry], filters: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not filters and hasattr(tarfile, "data_filter"):  # as in Python 3.11.3 and earlier
        monkeypatch.delattr(tarfile, "data_filter")
        monkeypatch.setattr(
            tarfile.TarFile, "extraction_filter", staticmethod(tarfile.fully_trusted_filter)
        )
    (tmp_path / "secret").write_text("of the host")
    with pytest.raises(ValueError, match=r"leaves it|neither"):
        unpack_archive(packed(tmp_path / "env.tar", *entries), str(tmp_path / "env"))
    assert {path.name for path in tmp_path.iterdir()} <= {"secret", "env.tar", "env"}
    assert (tmp_path / "secret").stat().st_nlink == 1


def test_folders_that_are_nested_without_end_are_refused(tmp_path: Path) -> None:
    archive = packed(tmp_path / "env.tar", ("d/" * 2000 + "f", tarfile.REGTYPE, "1"))
    with pytest.raises(ValueError, match="is too long"):
        unpack_archive(archive, str(tmp_path / "env"))
