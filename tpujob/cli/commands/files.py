"""`tpujob outputs` and `tpujob cp`: what a job saved in the bucket, and copies from there and back.

The backend gives a token for the job's files alone, so this machine needs no rights on the bucket.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tpujob.cli.backend import connect, current_settings
from tpujob.cli.errors import PROBLEM_FOUND, on_interrupt
from tpujob.cli.options import JobRef, Json, argument
from tpujob.cli.output import say, say_json, say_page
from tpujob.cli.render.files_page import outputs_page
from tpujob.errors import BadRequest, TpujobError

if TYPE_CHECKING:
    from tpujob.api import FilesAccess
    from tpujob.data.job_files import JobPath
    from tpujob.data.objects import Objects
    from tpujob.data.sync.checksum_cache import ChecksumCache

INTERRUPTED = "Whole files are kept. The same command continues."


def outputs(job: JobRef, as_json: Json = False) -> None:
    """List the checkpoints and outputs of a job: step, files, size, age."""
    say_page(connect().outputs(job), outputs_page, as_json)


def cp(
    places: Annotated[
        list[str],
        argument(
            "SRC... DST",
            "JOB:PATH, such as 42:checkpoints/200, 42:outputs/host-*/*.csv or sweep-[1-3]:checkpoints; "
            "or a path of this machine.",
        ),
    ],
    as_json: Json = False,
) -> int:
    """Copy files of jobs to this machine, or files to a job; verified.

    Safe to repeat: whole files are kept."""
    from tpujob.data.job_files import JobPath, parse_place

    *sources, target = map(parse_place, places)
    remote = [source for source in sources if isinstance(source, JobPath)]
    local = [source for source in sources if isinstance(source, str)]
    if not sources:
        raise BadRequest("where to?", hint=f"tpujob cp {shlex.join(places)} .")
    if isinstance(target, JobPath) and local and not remote:
        records = [_upload(local, target)]
    elif isinstance(target, str) and remote and not local:
        records = _download(remote, target)
    else:
        both = (
            "two jobs" if remote and isinstance(target, JobPath) else "two folders of this machine"
        )
        raise BadRequest(
            f"nothing is copied between {both}",
            hint="Copy from jobs to this machine, or from this machine to a job.",
        )
    if as_json:
        say_json(records if len(records) > 1 else records[0])
    else:
        from tpujob.cli.commands.data.pages import outcome_page

        for record in records:
            title = f"{record['name']} ({record['job']}): " if len(records) > 1 else ""
            say(title + outcome_page(record))
    return max(PROBLEM_FOUND if r["left_out"] + r["conflicts"] else 0 for r in records)


def _download(sources: Sequence[JobPath], target: str) -> list[dict[str, Any]]:
    """Copy from each job, and return the records of the copies. The files of several jobs get a folder for each."""
    from tpujob.cli.commands.jobs import expand_ranges
    from tpujob.data import job_files, locations

    api = connect()
    paths: dict[str, list[str]] = {}  #: by the word for the job
    for source in sources:
        for job in expand_ranges([source.job]):
            paths.setdefault(job, []).append(source.path)
    accesses = {job: api.read_files(job) for job in paths}
    names = [access["name"] for access in accesses.values()]
    records: list[dict[str, Any]] = []
    for job, access in accesses.items():
        unique = names.count(access["name"]) == 1
        own = (access["name"] if unique else access["id"]) if len(names) > 1 else ""
        place = locations.Prefix(*_bucket_and_folder(access))
        with _storage(access, lambda job=job: api.read_files(job)) as (objects, cache):
            with _about(access):
                chosen = job_files.choose_objects(objects, place.bucket, place.prefix, paths[job])
            folder, items = Path(target, own), chosen.items
            if chosen.one_file and not own and not target.endswith("/") and not folder.is_dir():
                items, folder = [(folder.name, items[0][1])], folder.parent
            records.append(
                _copy(access, objects, cache, place, locations.Folder(str(folder)), items)
            )
    return records


def _upload(sources: Sequence[str], target: JobPath) -> dict[str, Any]:
    """Copy to a job, and return the record of the copy."""
    from tpujob.data import job_files, locations

    chosen = job_files.choose_files(sources)
    api = connect()
    access = api.write_files(target.job)
    bucket, folder = _bucket_and_folder(access)
    with _storage(access, lambda: api.write_files(target.job)) as (objects, cache):
        below, name = job_files.upload_folder(objects, bucket, folder, target, chosen)
        items = [(name, chosen.items[0][1])] if name else chosen.items
        place = locations.Prefix(bucket, folder + below)
        here = locations.Folder(os.getcwd())
        record = _copy(access, objects, cache, here, place, items)
    record["left_out"] += len(chosen.left_out)
    record["problems"] += [{"name": p.name, "reason": p.reason} for p in chosen.left_out]
    return record


def _copy(
    access: FilesAccess,
    objects: Objects,
    cache: ChecksumCache,
    source: Any,
    target: Any,
    items: Sequence[Any],
) -> dict[str, Any]:
    from tpujob.cli.commands.data.pages import outcome_record
    from tpujob.cli.commands.data.sync import ProgressBar
    from tpujob.data.sync.run import Sync

    with ProgressBar(shown=True) as progress, on_interrupt(INTERRUPTED):
        started = time.monotonic()
        outcome = Sync(source, target, objects, cache, progress, chosen=items).run()
        record = outcome_record(outcome, objects.operations, time.monotonic() - started)
    return {"job": access["id"], "name": access["name"], **record}


def _storage(
    access: FilesAccess, renew: Callable[[], FilesAccess]
) -> AbstractContextManager[tuple[Objects, ChecksumCache]]:
    from tpujob.wiring.data import job_files

    return job_files(current_settings(), access, renew)


@contextmanager
def _about(access: FilesAccess) -> Generator[None]:
    """Name the job in the message of an error, and the command that lists its files."""
    try:
        yield
    except TpujobError as error:
        error.message = f"job {access['id']}: {error.message}"
        error.hint = error.hint or f"tpujob outputs {access['id']}"
        raise


def _bucket_and_folder(access: FilesAccess) -> tuple[str, str]:
    bucket, _, folder = access["workdir"].removeprefix("gs://").partition("/")
    return bucket, f"{folder}/"
