"""`tpujob data` as a user types it, and docs/data.md: what the page shows is what the commands print."""

import base64
import hashlib
import json
import os
import random
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.data import moto
from tests.contract.data.web import WebServer, serving
from tests.contract.emulator.storage_rig import ask
from tests.support.paths import ROOT
from tpujob.cli.app import run
from tpujob.cli.commands.data.pack import pack_page, pack_record
from tpujob.data.locations import HEADER
from tpujob.data.pack import Labels, PackSummary

PAGE = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")


@pytest.fixture
def reader(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data, and in place of Google Cloud the emulated storage."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server)
    monkeypatch.setenv("TPUJOB_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("TPUJOB_CONTEXT", raising=False)
    monkeypatch.chdir(tmp_path)
    for i in range(4):
        file = tmp_path / "fineweb" / f"part-{i}"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"x" * (24 << 10))
    chance = random.Random(1)
    for i in range(600):
        file = tmp_path / "photos" / ("cat", "dog")[i % 2] / f"{i:04d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(chance.randbytes(4096))
    return tmp_path


def steps() -> list[tuple[str, list[str]]]:
    commands: list[tuple[str, list[str]]] = []
    for line in "".join(re.findall(r"```console\n(.*?)```", PAGE, re.S)).splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], []))
        else:
            commands[-1][1].append(line)
    return commands


@pytest.fixture
def elsewhere(
    server: str, reader: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """The buckets of the page, those of S3, and its web server; by which URL in place of that of the page."""
    for name, location in (("datasets", "us-central2"), ("datasets-eu", "europe-west4")):
        made = json.dumps({"name": name, "location": location}).encode()
        ask(server, "POST", "/storage/v1/b?project=p", made)
    web = WebServer(files={"corpus.tar": b"c" * (300 << 10)})
    web.files |= {f"shard-{i}": b"s" * (24 << 10) for i in range(2)}
    md5 = base64.b64encode(hashlib.md5(web.files["shard-0"]).digest()).decode()
    assert f"https://data.example.org/shard-0\t{24 << 10}\t{md5}\n" in PAGE
    with moto.running() as url, serving(web):
        for name, value in moto.settings(url, reader).items():
            monkeypatch.setenv(name, value)
        s3 = moto.client()
        s3.create_bucket(Bucket="corpora")
        for i in range(3):
            s3.put_object(Bucket="corpora", Key=f"books/{i}", Body=b"b" * (24 << 10))
        s3.close()
        lines = [HEADER, *(f"{web.url}/shard-{i}\t{24 << 10}\t{md5}" for i in range(2))]
        (reader / "urls.tsv").write_text("\n".join(lines))
        yield {"https://data.example.org": web.url}


def test_the_commands_of_the_page_print_what_it_shows(
    elsewhere: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(steps()) >= 10
    for command, shown in steps():
        for ours, theirs in elsewhere.items():
            command = command.replace(ours, theirs)
        words = shlex.split(command)
        if words[0] == "ln":
            os.symlink(words[2], words[3])
            continue
        capsys.readouterr()
        code = run(words[1:])
        out = capsys.readouterr().out
        assert code == (6 if "Not copied" in out else 0), out
        assert shown, command
        for line in shown:
            assert line in out, f"$ {command}\n{out}\ndoes not say\n{line}"
    assert not [*Path().rglob(".tpujob-parts/*")], "ended commands leave nothing behind"


def test_grain_reads_a_set_as_documented(reader: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "pack", "photos", "packed"]) == 0
    os.replace("photos", "originals")
    os.replace("packed", "photos")
    names: dict[str, Any] = {}
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    exec(snippet, names)
    originals = sorted((reader / "originals").rglob("*.jpg"))
    labels = names["manifest"]["labels"]
    for i in (0, 299, 300, 599):
        assert names["images"][i] == originals[i].read_bytes()
        assert labels[names["labels"][i]] == originals[i].parent.name
    image, label = names["rows"][7]
    assert (reader / "originals" / labels[label]).is_dir()
    assert len(image) == 4096


def test_a_million_images_cost_as_stated(reader: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = Labels()
    labels.add("cat/1.jpg")
    summary = PackSummary(files=10**6, bytes=110 * 10**9, labels=labels, shards=205)
    record = pack_record(summary, epochs=90)
    assert (record["class_a_as_files"], record["class_b_as_files"]) == (1_000_000, 90_000_000)
    assert record["usd_as_files"] == 5 + 36
    assert record["class_a_as_shards"] + record["class_b_as_shards"] == 18_658
    assert "$0.0084" in pack_page(record)
    loss = pack_page(pack_record(PackSummary(files=1, shards=1), epochs=1))
    assert "  lost              under $0.0001 (list prices" in loss
    assert "91,000,000 operations for $41.00, against 18,658 for" in " ".join(PAGE.split())
    assert run(["data", "pack", "photos", "packed", "--dry-run", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["files"], record["shards"], record["labels"]) == (600, 1, ["cat", "dog"])
    assert (record["class_a_as_shards"], record["class_b_as_shards"]) == (4, 90)
    assert not (reader / "packed").exists()


def test_errors_of_pack_have_exit_codes(reader: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, code, text in (
        (["pack", "missing", "packed"], 3, "there is no folder missing"),
        (["pack", "gs://datasets/x", "packed"], 2, "tpujob data sync gs://datasets/x FOLDER"),
        (["pack", "photos", "gs://datasets/x"], 2, "tpujob data sync FOLDER gs://datasets/x"),
        (["unpack", "gs://datasets/x", "back"], 2, "tpujob data sync gs://datasets/x FOLDER"),
        (["unpack", "photos", "back"], 3, "no packed set"),
    ):
        assert run(["data", *words]) == code
        assert text in capsys.readouterr().err
    os.symlink("/etc/hostname", "photos/link")
    assert run(["data", "pack", "photos", "packed"]) == 6
    assert "Not packed: 1 name\n  link: it is a link" in capsys.readouterr().out


def test_the_local_stack_makes_the_bucket(reader: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "sync", "fineweb", "gs://made-at-first-use/x", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["objects"] == 4
    assert record["bytes"] == record["bytes_moved"] == 4 * (24 << 10)
    assert (record["class_a"], record["class_b"]) == (5, 0)
    assert (record["conflicts"], record["problems"]) == (0, [])
    assert record["usd_operations"] == pytest.approx(5 * 0.005 / 1000)


def test_errors_have_their_exit_codes(reader: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "sync", "missing", "gs://no-such-bucket/x"]) == 3
    assert "there is no folder missing" in capsys.readouterr().err, "not the bucket's fault"
    assert run(["data", "sync", "fineweb", "ftp://datasets/x"]) == 2
    assert run(["data", "sync", "--dry-run", "fineweb", "gs://no-such-bucket/x"]) == 3
    assert "bucket does not exist" in capsys.readouterr().err
