"""The Copies port: one object a round; each round may be lost, late or the last act of its caller."""

from tests.support.simulation.bucket import Bucket
from tests.support.simulation.sim import Broken
from tests.support.world import CopiesOfBucket, Faults
from tpujob.domain.copies import Copy, CopyProgress
from tpujob.domain.events import Event, EventKind
from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.model import Job


class Copies(CopiesOfBucket):
    bucket: Bucket

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket, Faults())

    def advance(self, copy: Copy, *, timeout: float) -> CopyProgress:
        def do() -> CopyProgress:
            self.bucket.outage.check("copy an object")
            return CopiesOfBucket.advance(self, copy, timeout=timeout)

        effect = self.bucket.effect
        return effect("copy", copy.id, do, timeout=timeout, before="blobs", after="blobs")


class Arrivals:
    """I15: a job's data is in the region of a slice before the slice is requested, and no object moves twice."""

    def __init__(self, copies: Copies, broken: Broken) -> None:
        self._copies, self._broken = copies, broken

    def committed(self, job: Job, event: Event) -> None:
        if event.kind not in (EventKind.SLICE_REQUESTED, EventKind.CANDIDATE_REQUESTED):
            return
        region = region_of(job.slices[-1].zone)
        for dataset in job.data:
            target = dataset.at.get(region, dataset.base)
            missing = self._copies.lacks(dataset.base, target) if target != dataset.base else []
            if missing:
                text = f"a slice in {region} was asked for before {missing[0]} of {dataset.name} was there"
                self._broken("I15", job.id, text)
        if len(self._copies.made) > len(set(self._copies.made)):
            self._broken("I15", job.id, f"copied twice: {self._copies.made}")
