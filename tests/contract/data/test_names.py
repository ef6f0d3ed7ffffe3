"""Names are opaque: what has a counterpart round-trips, what has none is refused by name. Pure parts of `data`."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpujob.data.keys import FoldersAndFiles, why_no_file
from tpujob.data.locations import Folder, Prefix, S3Prefix, Url, overlap, parse
from tpujob.data.objects import LocalFile
from tpujob.data.sync.endpoints import files_of
from tpujob.data.sync.workers import pairs
from tpujob.errors import BadRequest, TpujobError
from tpujob.protocol.left_out import LeftOut, why_no_object

NAMES = st.sets(
    st.text(alphabet="ab/.\u00e9\ud7ff\U0001f600-0", min_size=1, max_size=6), max_size=12
)


@pytest.mark.parametrize(
    "key", ["a", "a b/c", "%2F", "e\u0301", "\u00e9", "..a/b.", "x" * 255, "a\tb"]
)
def test_a_key_that_a_path_can_have_is_a_file(key: str) -> None:
    assert why_no_file(key) == ""


@pytest.mark.parametrize(
    "key", ["", "a//b", "/x", "dir/", ".", "a/../b", "a/./b", "a\0b", "x" * 256, ".tpujob-parts/x"]
)
def test_a_key_that_no_path_can_have_is_refused_with_a_reason(key: str) -> None:
    assert why_no_file(key)


@pytest.mark.parametrize(
    "name", ["a\nb", "a\rb", "é" * 513, "\udcff", ".well-known/acme-challenge/x"]
)
def test_a_name_that_the_storage_does_not_take_is_refused(name: str) -> None:
    assert why_no_object(name)
    assert not why_no_object("é" * 512)


@given(NAMES)
def test_of_two_keys_that_cannot_both_be_files_the_shorter_one_is(keys: set[str]) -> None:
    rule = FoldersAndFiles()
    files = {key for key in sorted(keys, key=str.encode) if not rule.why_not(key)}
    for key in keys:
        assert (key in files) == (not any(key.startswith(other + "/") for other in keys)), key


@given(NAMES, NAMES)
def test_the_merge_gives_each_key_once_and_in_order(mine: set[str], theirs: set[str]) -> None:
    source = [(key, f"mine {key}") for key in sorted(mine, key=str.encode)]
    target = [(key, f"theirs {key}") for key in sorted(theirs, key=str.encode)]
    matched = list(pairs(source, target))
    assert [pair.key for pair in matched] == sorted(mine, key=str.encode)
    assert all(pair.source == f"mine {pair.key}" for pair in matched)
    assert {pair.key: pair.target for pair in matched if pair.target} == {
        key: f"theirs {key}" for key in mine & theirs
    }


@pytest.mark.parametrize("side", [0, 1])
def test_a_list_out_of_order_is_refused_as_keys_would_be_missed(side: int) -> None:
    sides = [[("a", 1), ("d", 1)], [("a", 1), ("d", 1)]]
    sides[side] = [("c", 1), ("b", 1), ("d", 1)]
    with pytest.raises(TpujobError, match="not in the order"):
        list(pairs(*sides))


def test_files_come_in_the_order_of_a_list_of_objects(tmp_path: Path) -> None:
    names = ["a-b", "a.txt", "a/b", "a/b-/c", "a/b0", "a0", "é", "\U0001f600", "\uffee"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("x")
    keys = [entry.key for entry in files_of(os.fsencode(tmp_path)) if isinstance(entry, LocalFile)]
    assert keys == sorted(names, key=str.encode)


def test_no_link_is_followed_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    (folder / "file").write_text("inside")
    for name, to in {
        "out": "../secret",
        "folder-out": "..",
        "absolute": "/etc/hostname",
        "around": "below",
        "nowhere": "missing",
        "self": "self",
    }.items():
        (folder / name).symlink_to(to)
    (folder / "inside").symlink_to("file")
    os.mkfifo(folder / "pipe")
    entries = list(files_of(os.fsencode(folder)))
    files = {entry.key: entry.path for entry in entries if isinstance(entry, LocalFile)}
    assert files == {name: os.fsencode(folder.resolve() / "file") for name in ("file", "inside")}
    left_out = {entry.name for entry in entries if isinstance(entry, LeftOut)}
    assert left_out == {"out", "folder-out", "absolute", "around", "nowhere", "self", "pipe"}


def test_places_are_folders_and_prefixes() -> None:
    assert parse("data") == Folder("data")
    assert parse("gs://b") == Prefix("b", "")
    assert parse("gs://b/a") == parse("gs://b/a/") == Prefix("b", "a/")
    assert parse("gs://b/a//") == Prefix("b", "a//"), "an empty part belongs to the name"
    assert parse("s3://b/a") == S3Prefix("b", "a/")
    assert parse("https://h/a/b.tar?x=1") == Url("https://h/a/b.tar?x=1")
    assert str(parse("https://h/a/b.tar?x=1")) == "https://h/a/b.tar", "a query may be a secret"
    assert parse("http://127.0.0.1:1/f") == Url("http://127.0.0.1:1/f")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("", "empty"),
        ("gs://", "copied from or to"),
        ("gs:///x", "copied from or to"),
        ("ftp://b/a", "copied from or to"),
        ("http://example.com/f", "no TLS"),
        ("https://user:secret@example.com/f", "password"),
        ("https://example.com/folder/", "no file"),
        ("https://example.com", "no file"),
        ("https://:x/f", "not a URL"),
        ("https://h/a b", "not the URL"),
    ],
)
def test_what_is_no_place_is_refused_with_the_reason(wrong: str, why: str) -> None:
    with pytest.raises(BadRequest, match=why) as raised:
        parse(wrong)
    assert "secret" not in str(raised.value)


def test_one_prefix_lies_in_another_only_at_a_slash() -> None:
    assert overlap(Prefix("b", ""), Prefix("b", "a/"))
    assert overlap(Prefix("b", "a/c/"), Prefix("b", "a/"))
    assert not overlap(Prefix("b", "a/"), Prefix("b", "ab/"))
    assert not overlap(Prefix("b", "a/"), Prefix("c", "a/"))
