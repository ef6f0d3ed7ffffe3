"""The names of keys: the words from which a backend derives each key (`protocol/signing.py`). Pure."""

from tpujob.domain.model import Attempt, Job

#: the key with which backends sign the owner of a bucket, a store; no host gets this key
OF_STORES = ("stores",)


def of_attempt(job: Job, attempt: Attempt | None = None) -> tuple[str, ...]:
    """Return the name of the key with which the hosts of an attempt sign; default: the newest attempt. The name has the
    attempt's start, as a new store numbers jobs from 1 again."""
    attempt = attempt or job.attempt
    assert attempt is not None, f"job {job.id} has no attempt in state {job.state}"
    return ("attempt", job.id, str(attempt.number), repr(float(attempt.started_at)))


def of_caches(job: Job) -> tuple[str, ...]:
    """Return the name of the key with which hosts sign caches for later hosts of the same owner."""
    return ("caches", job.owner, job.folder)
