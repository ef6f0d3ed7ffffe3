"""The files that a job's program saved in the bucket: what there is, and who may copy it."""

from tpujob.api import FilesAccess, OutputsView, SavedView
from tpujob.domain.model import Job
from tpujob.domain.progress import job_progress
from tpujob.domain.saved import SavedObject, group_saved
from tpujob.domain.text import rfc3339
from tpujob.errors import BadRequest
from tpujob.lib.tries import Deadline
from tpujob.ports import Blobs, TokenLender
from tpujob.protocol.paths import LASTING_FOLDERS
from tpujob.service.runtime_info import RuntimeReader

#: most objects of a job that are listed: fifty requests
MAX_OBJECTS = 50_000
#: seconds for the list
LIST_TIMEOUT = 240.0
CLOCK_TIMEOUT = 15.0


class JobFiles:
    def __init__(self, blobs: Blobs, lender: TokenLender, runtime: RuntimeReader) -> None:
        self._blobs, self._lender, self._runtime = blobs, lender, runtime

    def outputs(self, job: Job) -> OutputsView:
        """Return as `JobsApi.outputs` does."""
        _refuse_group(job)
        start = len(job.workdir) + 1
        objects: list[SavedObject] = []
        until = Deadline(LIST_TIMEOUT)
        for folder in LASTING_FOLDERS:
            left = MAX_OBJECTS + 1 - len(objects)
            if left > 0:
                path = f"{job.workdir}/{folder}"
                blobs = self._blobs.list(path, most=left, timeout=until.left(LIST_TIMEOUT))
                objects += [SavedObject(b.path[start:], b.size, b.updated) for b in blobs]
        now = self._blobs.clock(timeout=until.left(CLOCK_TIMEOUT))
        going = self._runtime.going(job)
        return OutputsView(
            id=job.id,
            name=job.name,
            workdir=job.workdir,
            checkpoint=job_progress(job, going.progress if going else None).checkpoint,
            rows=[
                SavedView(
                    path=group.path,
                    step=group.step,
                    files=group.files,
                    bytes=group.bytes,
                    age_s=round(max(0.0, now - group.updated), 1),
                )
                for group in group_saved(objects[:MAX_OBJECTS])
            ],
            complete=len(objects) <= MAX_OBJECTS,
            earlier=[folder for folder in job.workdirs if folder != job.workdir],
        )

    def access(self, job: Job, *, write: bool) -> FilesAccess:
        """Return as `JobsApi.read_files` or `write_files` does."""
        _refuse_group(job)
        folder = f"{job.workdir}/"
        lent = self._lender.lend(folder, [folder + name for name in LASTING_FOLDERS if write])
        return FilesAccess(
            id=job.id,
            name=job.name,
            workdir=job.workdir,
            endpoint=lent.endpoint,
            token=lent.token,
            expires_at="" if lent.expires_at is None else rfc3339(lent.expires_at),
        )


def _refuse_group(job: Job) -> None:
    if job.spec.is_group:
        raise BadRequest(
            f"job {job.id} is a group: each of its jobs has files of its own",
            hint=f"Name one of its jobs, such as {job.name}-0.",
        )
