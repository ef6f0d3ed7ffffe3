"""What of a job's code git does not have in its commit, as it was shipped."""

from dataclasses import asdict

from tpujob.api import CodeView, PatchView
from tpujob.domain.model import Job
from tpujob.errors import NotFound
from tpujob.ports import Blobs

#: seconds to read it
ANSWER = 15.0
MOST = 256 * 1024  #: bytes that are read; it was cut when it was stored


def patch(job: Job, blobs: Blobs) -> PatchView:
    """Raises NotFound when the job has no code of a checkout, Transient."""
    if job.code is None:
        what = (
            "what is shipped with it comes from no git checkout"
            if job.bundles
            else "it ships no code"
        )
        raise NotFound(f"job {job.id} has no diff: {what}")
    text = ""
    if job.code.diff:
        try:
            text = blobs.get(job.code.diff, end=MOST, timeout=ANSWER).decode(errors="replace")
        except NotFound:
            raise NotFound(
                f"the diff of job {job.id} has been removed from the bucket",
                hint="shipped code is removed with the last job that has it",
            ) from None
    return PatchView(code=CodeView(**asdict(job.code)), text=text)
