"""Places of a job's data in each region, and the copies that are needed before a slice is requested. Pure.

A region has one copy of a data set for all jobs; its name is a function of the source alone. Data that is in the region
already is read in place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from tpujob.domain.copies import Copy, Dataset, Saved
from tpujob.domain.events import CopyStarted
from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.hardware.prices import LIST, PriceList, micros
from tpujob.domain.progress import job_progress
from tpujob.errors import BadSpec

if TYPE_CHECKING:
    from tpujob.domain.capacity.site import Site
    from tpujob.domain.model import Job
    from tpujob.domain.spec.data import Data

#: the folder of a bucket that has the copies of all jobs
FOLDER = "datasets"


def kept_in(bucket: str, entry: Data) -> str:
    """Return the prefix of the copy of a source in the bucket of `bucket`, which may be a folder."""
    mark = hashlib.sha256(entry.source.encode()).hexdigest()[:10]
    return f"{_root(bucket)}{FOLDER}/{entry.to}-{mark}"


def _root(bucket: str) -> str:
    """Return the bucket that a folder is in, with a slash at its end."""
    return "/".join([*bucket.split("/")[:3], ""])


def placed(
    entry: Data, base: str, location: str, local: Collection[str], zones: Iterable[str], site: Site
) -> Dataset:
    """Return the data set with the prefix that each zone reads. `local`: the regions in which reading `base` is free. A
    zone whose region has no bucket of the site reads `base`, across regions."""
    at: dict[str, str] = {}
    for region in dict.fromkeys(map(region_of, zones)):
        bucket = None if region in local else site.bucket_in(region)
        at[region] = kept_in(bucket, entry) if bucket else base
    return Dataset(entry.to, entry.source, base, location, tuple(sorted(local)), at)


def check_folders(entries: Iterable[Data], folder: str, site: Site) -> None:
    """Raise BadSpec for data in a folder of another user than the one who has `folder`, where accounts keep users
    apart: the backend, which can read all folders, makes no copy that every user's programs could read."""
    if not site.separate_accounts:
        return
    for entry in entries:
        source = f"{entry.source.rstrip('/')}/"
        for bucket in site.buckets.values():
            root, users, own = _root(bucket), f"{bucket}/u/", f"{bucket}/{folder}/"
            # other backends that use the bucket have folders beside this one's
            theirs = source.startswith(root) and source[len(root) :].split("/")[1:2] == ["u"]
            in_users = source.startswith(users) or theirs
            if users.startswith(source) or (in_users and not source.startswith(own)):
                raise BadSpec(
                    f"data: {entry.source} has files of other users, and programs of this context's users run as"
                    " separate accounts",
                    hint=f"name a folder in {own}, or one outside of {users}",
                )


def wanted(job: Job, zone: str, prices: PriceList = LIST) -> Iterator[CopyStarted]:
    """Return every copy that a slice in that zone needs, made or not: first the data, then the files that the newest
    attempt saved elsewhere."""
    region = region_of(zone)
    for dataset in job.data:
        target = dataset.at.get(region, dataset.base)
        if target != dataset.base:
            name = f"{dataset.name}@{region}"
            rates = _rates(dataset.location, region, prices)
            yield CopyStarted(name, dataset.name, dataset.base, target, region, *rates)
    if job.attempts:
        workdir, newest = job.workdir_in(bucket_for(job, zone)), job.workdir
        if workdir != newest:
            yield _checkpoint(job, newest, workdir, region, prices)


def missing(job: Job, zone: str, prices: PriceList = LIST) -> Iterator[CopyStarted]:
    """Return the copies that a slice in that zone needs, and that are not complete."""
    for wish in wanted(job, zone, prices):
        copy = found(job, wish.id)
        if copy is None or copy.done_at is None:
            yield wish


def _checkpoint(job: Job, source: str, target: str, region: str, prices: PriceList) -> CopyStarted:
    has, last = job_progress(job), job.attempts[-1]
    old = next(s.zone for s in job.slices if s.name == last.slice)
    per_gib, per_object = _rates(region_of(old), region, prices)
    return CopyStarted(
        id=f"checkpoint-{last.number}@{region}",
        name="the last checkpoint",
        source=source,
        target=target,
        region=region,
        micros_per_gib=per_gib,
        micros_per_object=per_object,
        saved=Saved(has.saved, has.resume_before),
    )


def bucket_for(job: Job, zone: str) -> str:
    """Return the bucket in which attempts in that zone keep their files."""
    return job.buckets.get(region_of(zone), job.bucket)


def found(job: Job, id: str) -> Copy | None:
    """Return the newest copy with that id since the job was last resumed; None: there is none."""
    same = [c for c in job.copies if c.id == id and c.started_at >= job.fresh_at]
    return same[-1] if same else None


def under_way(job: Job) -> Copy | None:
    """Return the copy that the job waits for; None: it waits for none."""
    newest = job.copies[-1] if job.copies else None
    if newest is None or newest.done_at is not None or newest.refused:
        return None
    return newest if newest.started_at >= job.fresh_at else None


def refused(job: Job, zone: str) -> Copy | None:
    """Return a copy that is needed in that zone and was refused; None: there is none."""
    asked = (found(job, source.id) for source in wanted(job, zone))
    return next((copy for copy in asked if copy and copy.refused), None)


def _rates(location: str, region: str, prices: PriceList) -> tuple[int, int]:
    """Return the micro-dollars for a GiB from `location` to the region, and for one object (a class A operation)."""
    return micros(prices.traffic(location, region).usd), micros(prices.class_a.of(1))
