"""What a pack or an unpack did, as a record and as lines, with what it costs to read the set as it was and as it is.
Pure."""

from collections.abc import Mapping
from typing import Any

from tpujob.cli.render.data.pages import problem_lines, problems
from tpujob.data.pack.run import PackOutcome, SourceSurvey
from tpujob.data.pack.unpack import UnpackOutcome
from tpujob.domain.prices import LIST
from tpujob.domain.text import amount_of_bytes, clean, many, usd

_LABELS = 8  #: that are named


def survey_record(found: SourceSurvey, epochs: int) -> dict[str, Any]:
    objects = found.shards + 2 + bool(found.labels)  # beside them: index, manifest, labels
    return {
        "files": found.files,
        "bytes": found.bytes,
        "shards": found.shards,
        "labels": list(found.labels),
        **_operations(found.files, found.shards, objects, epochs),
        "left_out": found.left_out,
        "conflicts": 0,
        "problems": problems(found.problems),
    }


def pack_record(made: PackOutcome, epochs: int) -> dict[str, Any]:
    manifest = made.manifest
    objects = len(manifest.files()) + 1
    return {
        "files": manifest.records,
        "bytes": manifest.content,
        "shards": len(manifest.shards),
        "shard_bytes": manifest.stored,
        "order": manifest.order,
        "labels": list(manifest.labels),
        **_operations(manifest.records, len(manifest.shards), objects, epochs),
        "left_out": made.left_out,
        "conflicts": 0,
        "problems": problems(made.problems),
    }


def unpack_record(found: UnpackOutcome) -> dict[str, Any]:
    return {
        "files": found.files,
        "bytes": found.bytes,
        "same": found.same,
        "left_out": found.left_out,
        "conflicts": found.conflicts,
        "problems": problems(found.problems),
    }


def survey_page(record: Mapping[str, Any]) -> str:
    head = f"To pack: {_files(record)}, into {_shards(record)}."
    return _page(head, record)


def pack_page(record: Mapping[str, Any]) -> str:
    stored = amount_of_bytes(record["shard_bytes"])
    head = f"Packed {_files(record)}, into {_shards(record)}, {stored}; each record was read back"
    return _page(head, record)


def _page(head: str, record: Mapping[str, Any]) -> str:
    lines = [head]
    if record["labels"]:
        named = map(clean, record["labels"][:_LABELS])
        more = ", ..." if len(record["labels"]) > _LABELS else ""
        lines.append(f"  labels            {len(record['labels'])}: {', '.join(named)}{more}")
    return "\n".join([*lines, *_price_lines(record), *problem_lines(record, "Not packed")])


def unpack_page(record: Mapping[str, Any]) -> str:
    head = f"Unpacked {_files(record)}, each verified by its CRC32C; {record['same']:,} were there already."
    return "\n".join([head, *problem_lines(record, "Not written")])


def _operations(files: int, shards: int, objects: int, epochs: int) -> dict[str, Any]:
    """To copy the set to a bucket once, and to read it so often: each file, or each shard as a whole."""
    as_files = LIST.usd_of_operations(files, files * epochs)
    as_shards = LIST.usd_of_operations(objects, shards * epochs)
    return {
        "epochs": epochs,
        "class_a_as_files": files,
        "class_b_as_files": files * epochs,
        "usd_as_files": float(as_files),
        "class_a_as_shards": objects,
        "class_b_as_shards": shards * epochs,
        "usd_as_shards": float(as_shards),
        "usd_saved": float(as_files - as_shards),
        "prices_as_of": LIST.class_a.source.as_of.isoformat(),
    }


def _price_lines(record: Mapping[str, Any]) -> list[str]:
    def line(title: str, form: str) -> str:
        return (
            f"  {title:18}{record[f'class_a_{form}']:,} class A to copy them to a bucket, "
            f"{record[f'class_b_{form}']:,} class B to read them {many(record['epochs'], 'time')}: "
            f"{usd(record[f'usd_{form}'])}"
        )

    saved = f"{usd(record['usd_saved'])} (list prices of {record['prices_as_of']}"
    return [
        line("as files", "as_files"),
        line("as shards", "as_shards"),
        f"  {'saved':18}{saved}; a shard is fetched as a whole, once an epoch)",
    ]


def _files(record: Mapping[str, Any]) -> str:
    return f"{many(record['files'], 'file')}, {amount_of_bytes(record['bytes'])}"


def _shards(record: Mapping[str, Any]) -> str:
    return many(record["shards"], "shard")
