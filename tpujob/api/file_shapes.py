"""Shapes for the files that a job's program saved in the bucket."""

from typing_extensions import TypedDict


class SavedView(TypedDict):
    """A checkpoint, or a file or folder that is no checkpoint."""

    path: str  #: below the job's folder, as `tpujob cp JOB:PATH` takes it
    step: int | None  #: as its name says; None: it is no checkpoint
    files: int
    bytes: int
    age_s: float  #: since its newest file was written, by the storage's clock


class OutputsView(TypedDict):
    """The checkpoints and outputs of a job in the bucket."""

    id: str
    name: str
    workdir: str  #: the job's folder in the bucket
    checkpoint: int | None  #: the newest step that counts, as every host has it
    rows: list[SavedView]
    complete: bool  #: False: the folder has more objects than were read
    earlier: list[str]  #: folders in other regions, in which the job saved before


class FilesAccess(TypedDict):
    """The place of a job's files, and a token for them alone."""

    id: str
    name: str
    workdir: str
    endpoint: str  #: URL of an emulated storage, which takes no token; empty: Google's
    token: str
    expires_at: str  #: when the token ends; empty: there is none
