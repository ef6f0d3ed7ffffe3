"""`tpujob data pack` and `unpack`: pack many small files into a few shards, and restore them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from tpujob.cli.commands.data.pages import problem_fields, problem_lines
from tpujob.cli.errors import PROBLEM_FOUND, on_interrupt
from tpujob.cli.options import Json, argument, flag, option
from tpujob.cli.output import say, say_json
from tpujob.domain.hardware.prices import LIST
from tpujob.domain.text import amount_of_bytes, clean, many, usd
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.data.pack import PackSummary

_ENDED = "Nothing is damaged: run the same command again."


def pack(
    source: Annotated[str, argument("SRC", "A folder.")],
    target: Annotated[str, argument("DST", "A folder.")],
    shard_mib: Annotated[
        int, option("N", "Size of a shard, in MiB of files.", "--shard-mib", min=1, max=1024)
    ] = 512,
    shuffle: Annotated[
        int | None, option("SEED", "Shuffle the records. Default: sort them by name.")
    ] = None,
    epochs: Annotated[int, option("N", "Epochs to price reading for.", min=1)] = 90,
    replace: Annotated[bool, flag("Overwrite another packed set at DST.", "--replace")] = False,
    dry_run: Annotated[
        bool, flag("Print files, shards and cost; write nothing.", "--dry-run")
    ] = False,
    as_json: Json = False,
) -> int:
    """Pack the files of SRC into verified ArrayRecord shards. Safe to repeat."""
    from tpujob.cli.commands.data.sync import ProgressBar
    from tpujob.data.pack import Pack

    source = _folder(source, f"copy it here first: tpujob data sync {source} FOLDER")
    target = _folder(target, f"pack to a folder, then upload it: tpujob data sync FOLDER {target}")
    job = Pack(source, shard_bytes=shard_mib << 20, seed=shuffle)
    if dry_run:
        summary = job.survey()
    else:
        with ProgressBar(shown=True) as progress, on_interrupt(_ENDED):
            summary = job.run(target, progress, replace=replace)
    record = pack_record(summary, epochs)
    say_json(record) if as_json else say(pack_page(record))
    return PROBLEM_FOUND if record["left_out"] else 0


def unpack(
    source: Annotated[str, argument("SRC", "A folder with a packed set.")],
    target: Annotated[str, argument("DST", "A folder.")],
    as_json: Json = False,
) -> int:
    """Restore the files of a packed set in DST, byte for byte. Overwrites nothing; safe to repeat."""
    from tpujob.cli.commands.data.sync import ProgressBar
    from tpujob.data.unpack import Unpack

    source = _folder(source, f"copy it here first: tpujob data sync {source} FOLDER")
    hint = f"unpack to a folder, then upload it: tpujob data sync FOLDER {target}"
    target = _folder(target, hint)
    with ProgressBar(shown=True) as progress, on_interrupt(_ENDED):
        summary = Unpack(source, target, progress).run()
    record = {
        "files": summary.files,
        "bytes": summary.bytes,
        "same": summary.same,
        **problem_fields(summary),
    }
    say_json(record) if as_json else say(unpack_page(record))
    return PROBLEM_FOUND if record["left_out"] + record["conflicts"] else 0


def _folder(text: str, hint: str) -> str:
    from tpujob.data import locations

    place = locations.parse(text)
    if isinstance(place, locations.Folder):
        return place.path
    raise BadRequest(f"{text} is not a folder of this machine", hint=hint)


# The pages -----------------------------------------------------------------------------------------------------------


_LABELS = 8  #: labels that are listed


def pack_record(summary: PackSummary, epochs: int) -> dict[str, Any]:
    """Return the JSON form of a packed set, or of a set that would be packed."""
    labels = summary.labels.names()
    objects = summary.shards + 2 + bool(labels)  # beside them: index, manifest, labels
    written = {"shard_bytes": summary.shard_bytes, "order": summary.order}
    return {
        "files": summary.files,
        "bytes": summary.bytes,
        "shards": summary.shards,
        **(written if summary.shard_bytes else {}),
        "labels": list(labels),
        **_operations(summary.files, summary.shards, objects, epochs),
        **problem_fields(summary),
    }


def pack_page(record: Mapping[str, Any]) -> str:
    lines = [f"To pack: {_files(record)}, into {many(record['shards'], 'shard')}."]
    if "shard_bytes" in record:
        into = f"{many(record['shards'], 'shard')}, {amount_of_bytes(record['shard_bytes'])}"
        lines = [f"Packed {_files(record)}, into {into}; each record was read back"]
    if record["labels"]:
        names = map(clean, record["labels"][:_LABELS])
        ellipsis = ", ..." if len(record["labels"]) > _LABELS else ""
        lines.append(f"  labels            {len(record['labels'])}: {', '.join(names)}{ellipsis}")
    return "\n".join([*lines, *_price_lines(record), *problem_lines(record, "Not packed")])


def unpack_page(record: Mapping[str, Any]) -> str:
    head = f"Unpacked {_files(record)}, each verified by its CRC32C; {record['same']:,} were there already."
    return "\n".join([head, *problem_lines(record, "Not written")])


def _operations(files: int, shards: int, objects: int, epochs: int) -> dict[str, Any]:
    """Return the cost of copying a set to a bucket once and reading it `epochs` times, as files and as whole shards."""
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

    saved = record["usd_saved"]
    text = f"{usd(abs(saved))} (list prices of {record['prices_as_of']}"
    return [
        line("as files", "as_files"),
        line("as shards", "as_shards"),
        f"  {'saved' if saved >= 0 else 'lost':18}{text}; a shard is fetched as a whole, once an epoch)",
    ]


def _files(record: Mapping[str, Any]) -> str:
    return f"{many(record['files'], 'file')}, {amount_of_bytes(record['bytes'])}"
