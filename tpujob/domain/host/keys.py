"""What the keys of hosts are for: the words from which a backend derives each of them (`protocol/signing.py`). Pure."""

from tpujob.domain.model import Attempt, Job

#: the key with which backends sign which store a bucket belongs to; no host gets it
OF_STORES = ("stores",)


def of_attempt(job: Job, attempt: Attempt | None = None) -> tuple[str, ...]:
    """Return the name of the key with which the hosts of an attempt sign, of the newest one if none is given. The start
    is part of it, as numbers of jobs begin at 1 again in a new store."""
    attempt = attempt or job.attempt
    assert attempt is not None, f"job {job.id} has no attempt in state {job.state}"
    return ("attempt", job.id, str(attempt.number), repr(float(attempt.started_at)))


def of_caches(job: Job) -> tuple[str, ...]:
    """The key with which hosts seal what they leave for later hosts of the same owner."""
    return ("caches", job.owner, job.folder)
