"""What a program saved in its job's folder of the bucket: objects, as checkpoints, files and folders. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tpujob.protocol.paths import LASTING_FOLDERS

#: names of a checkpoint's folder or file, with its step: `200`, `step_200`, `ckpt-200.npz`
_STEP = re.compile(
    r"(?:(?:global_?step|step|ckpt|checkpoint|iter|model)[-_=]?)?(\d{1,12})(?:\.[A-Za-z]\w{0,9})?"
)
_HOST = re.compile(r"host-\d+")
#: the signed list of a host's outputs, which is tpujob's own
_LIST = re.compile(r"outputs/host-\d+\.list")


@dataclass(frozen=True, slots=True)
class SavedObject:
    path: str  #: below the job's folder
    size: int
    updated: float  #: by the storage's clock


@dataclass(frozen=True, slots=True)
class SavedFiles:
    """A checkpoint, or a file or folder that is no checkpoint."""

    path: str  #: below the job's folder, such as `checkpoints/200`
    step: int | None  #: as its name says; None: it is no checkpoint
    files: int
    bytes: int
    updated: float  #: when its newest object was written


def group_saved(objects: Iterable[SavedObject]) -> list[SavedFiles]:
    """Return the checkpoints by step, then the others by path. Objects outside of checkpoints and outputs are left
    out."""
    groups: dict[str, SavedFiles] = {}
    for item in objects:
        if not item.path.startswith(LASTING_FOLDERS) or _LIST.fullmatch(item.path):
            continue
        path, step = _group_of(item.path)
        group = groups.get(path) or SavedFiles(path, step, 0, 0, item.updated)
        groups[path] = replace(
            group,
            files=group.files + 1,
            bytes=group.bytes + item.size,
            updated=max(group.updated, item.updated),
        )
    last = max((group.step for group in groups.values() if group.step is not None), default=0) + 1
    return sorted(
        groups.values(), key=lambda group: (last if group.step is None else group.step, group.path)
    )


def _group_of(path: str) -> tuple[str, int | None]:
    """Return the path of the checkpoint that an object belongs to, with its step; else of its file or folder below
    `checkpoints`, `outputs` or `outputs/host-N`."""
    parts = path.split("/")
    first = 2 if len(parts) > 2 and parts[0] == "outputs" and _HOST.fullmatch(parts[1]) else 1
    for end in range(first, len(parts)):
        if match := _STEP.fullmatch(parts[end]):
            return "/".join(parts[: end + 1]), int(match[1])
    return "/".join(parts[: first + 1]), None
