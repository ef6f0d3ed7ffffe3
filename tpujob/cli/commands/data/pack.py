"""`tpujob data pack` and `unpack`: many small files as a few shards, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.cli.errors import FOUND, on_interrupt
from tpujob.cli.options import Json
from tpujob.cli.output import say, say_json
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.data.places import Folder

_ENDED = "Finished files are kept. The same command goes on."


def pack(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A folder.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="A folder.")],
    shard_mib: Annotated[
        int,
        typer.Option(
            "--shard-mib", metavar="N", min=1, max=1024, help="Size of a shard, in MiB of files."
        ),
    ] = 512,
    shuffle: Annotated[
        int | None,
        typer.Option(metavar="SEED", help="Shuffle the records. Default: sort them by name."),
    ] = None,
    epochs: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Epochs for which reading is priced."),
    ] = 90,
    replace: Annotated[
        bool, typer.Option("--replace", help="Overwrite another packed set at DST.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print files, shards and cost; write nothing.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Pack the files of SRC into verified ArrayRecord shards. Safe to repeat: finished shards are kept."""
    from tpujob.cli.render.data import packed as render
    from tpujob.cli.render.data.progress import ProgressBar
    from tpujob.data.pack.places import FolderTarget
    from tpujob.data.pack.run import Pack

    from_ = _folder(source, f"copy it here first: tpujob data sync {source} FOLDER")
    to = _folder(target, f"pack to a folder, then upload it: tpujob data sync FOLDER {target}")
    job = Pack(from_, shard_bytes=shard_mib << 20, seed=shuffle)
    if dry_run:
        survey = job.survey()
        record, page = render.survey_record(survey, epochs), render.survey_page
    else:
        with ProgressBar(shown=True) as progress, on_interrupt(_ENDED):
            made = job.run(FolderTarget(to.path), progress, replace=replace)
        record, page = render.pack_record(made, epochs), render.pack_page
    say_json(record) if as_json else say(page(record))
    return FOUND if record["left_out"] else 0


def unpack(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A folder with a packed set.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="A folder.")],
    as_json: Json = False,
) -> int:
    """Restore the files of a packed set in DST, byte for byte. Overwrites nothing; safe to repeat."""
    from tpujob.cli.render.data import packed as render
    from tpujob.cli.render.data.progress import ProgressBar
    from tpujob.data.pack.places import FolderSource
    from tpujob.data.pack.unpack import Unpack

    from_ = _folder(source, f"copy it here first: tpujob data sync {source} FOLDER")
    to = _folder(target, f"unpack to a folder, then upload it: tpujob data sync FOLDER {target}")
    with ProgressBar(shown=True) as progress, on_interrupt(_ENDED):
        unpack = Unpack(FolderSource(from_.path), to.path, progress)
        record = render.unpack_record(unpack.run())
    say_json(record) if as_json else say(render.unpack_page(record))
    return FOUND if record["left_out"] + record["conflicts"] else 0


def _folder(text: str, hint: str) -> Folder:
    from tpujob.data import places

    place = places.parse(text)
    if isinstance(place, places.Folder):
        return place
    raise BadRequest(f"{text} is not a folder of this machine", hint=hint)
