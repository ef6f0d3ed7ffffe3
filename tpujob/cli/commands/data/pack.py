"""`tpujob data pack` and `unpack`: many small files as a few shards, and back."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.cli.commands.data.sync import settings
from tpujob.cli.errors import FOUND, on_interrupt
from tpujob.cli.options import Json
from tpujob.cli.output import say, say_json
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.data.pack.places import SetSource, SetTarget
    from tpujob.data.places import Folder, Prefix

_ENDED = "What is whole stays. The same command goes on."


def pack(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A folder.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="A folder, or gs://BUCKET/PREFIX.")],
    shard_mib: Annotated[
        int,
        typer.Option("--shard-mib", metavar="N", min=1, max=1024, help="MiB of files in a shard."),
    ] = 512,
    shuffle: Annotated[
        int | None,
        typer.Option(metavar="SEED", help="Mix the records; without it they are sorted by name."),
    ] = None,
    epochs: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="How often the set will be read, for the prices."),
    ] = 90,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace another packed set at DST.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing: print files, shards and dollars.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Pack the files of SRC into ArrayRecord shards, verified. Safe to repeat; goes on where it was killed."""
    from tpujob.cli.render.data import packed as render
    from tpujob.cli.render.data.progress import Bar
    from tpujob.data.pack.run import Pack

    job = Pack(_folder(source, "SRC"), shard_bytes=shard_mib << 20, seed=shuffle)
    if dry_run:
        survey = job.survey()
        record, page = render.survey_record(survey, epochs), render.survey_page
    else:
        with _target(source, target) as to, Bar(shown=True) as progress, on_interrupt(_ENDED):
            made = job.run(to, progress, replace=replace)
        record, page = render.pack_record(made, epochs), render.pack_page
    say_json(record) if as_json else say(page(record))
    return FOUND if record["left_out"] else 0


def unpack(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A folder, or gs://BUCKET/PREFIX.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="A folder.")],
    as_json: Json = False,
) -> int:
    """Write the files of a packed set to DST again, byte for byte. Overwrites nothing; safe to repeat."""
    from tpujob.cli.render.data import packed as render
    from tpujob.cli.render.data.progress import Bar
    from tpujob.data.pack.unpack import Unpack

    folder = _folder(target, "DST").path
    with _source(source, target) as from_, Bar(shown=True) as progress, on_interrupt(_ENDED):
        record = render.unpack_record(Unpack(from_, folder, progress).run())
    say_json(record) if as_json else say(render.unpack_page(record))
    return FOUND if record["left_out"] + record["conflicts"] else 0


def _folder(text: str, which: str) -> Folder:
    from tpujob.data import places

    place = places.parse(text)
    if isinstance(place, places.Folder):
        return place
    raise BadRequest(
        f"{which} is a folder here, and {text} is none",
        hint="`tpujob data sync` copies between a folder and other places",
    )


def _bucket_or_folder(text: str) -> Folder | Prefix:
    from tpujob.data import places

    place = places.parse(text)
    if isinstance(place, places.Folder | places.Prefix):
        return place
    raise BadRequest(
        f"a packed set lies in a folder or in a bucket of Cloud Storage, not at {place}",
        hint="`tpujob data sync` copies between a folder and other places",
    )


@contextmanager
def _target(source: str, text: str) -> Generator[SetTarget]:
    from tpujob.data import places
    from tpujob.data.pack.places import BucketTarget, FolderTarget
    from tpujob.wiring.data import copying, stage

    place = _bucket_or_folder(text)
    if isinstance(place, places.Folder):
        yield FolderTarget(place.path)
        return
    now = settings()
    with copying(now, place.bucket) as (objects, ledger):
        yield BucketTarget(place, objects, ledger, stage(now, os.path.abspath(source), text))


@contextmanager
def _source(text: str, target: str) -> Generator[SetSource]:
    from tpujob.data import places
    from tpujob.data.pack.places import BucketSource, FolderSource, remove_stage
    from tpujob.wiring.data import copying, stage

    place = _bucket_or_folder(text)
    if isinstance(place, places.Folder):
        yield FolderSource(place.path)
        return
    now = settings()
    waiting = stage(now, text, os.path.abspath(target))
    with copying(now) as (objects, ledger):
        yield BucketSource(place, objects, ledger, waiting)
    remove_stage(waiting)
