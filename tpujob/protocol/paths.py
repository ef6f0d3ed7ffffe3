"""Where things are: in a job's workdir in the bucket, and below the home folder of a host."""

from __future__ import annotations

import re

#: of a log segment; nothing else ends so, as a rule of buckets that removes old logs goes by it
LOG_SUFFIX = ".tpujob-log"

#: everything of tpujob on a host, below the home folder
HOST_FOLDER = ".tpujob"
#: what may be lost at any time and outlives attempts; the agent expands it
HOST_CACHE = f"~/{HOST_FOLDER}/cache"

#: the folders of a workdir that outlive the job's record, unless they are to be removed, too
KEPT = ("checkpoints/", "outputs/")
#: below it, files are kept in a host's memory
MEMORY = "/dev/shm"  # noqa: S108, a host works for one job

_SEGMENT = re.compile(r"/attempts/(\d+)/host-(\d{1,6})/log-(\d{5,9})" + re.escape(LOG_SUFFIX))

_SHARED = re.compile(r"/attempts/(\d+)/logs/(\d{5,6})-(\d{5,9})" + re.escape(LOG_SUFFIX))

_REPORT = re.compile(r"([A-Za-z0-9_-]{1,64})/([1-9][0-9]{0,8})/host-(0|[1-9][0-9]{0,5})")


def owner_folder(bucket: str, folder: str) -> str:
    """What all objects of one user lie below; without a folder, those of before there were owners."""
    return f"{bucket}/{folder}" if folder else bucket


def attempt_folder(workdir: str, attempt: int) -> str:
    """What all objects of an attempt lie below, checkpoints aside."""
    return f"{workdir}/attempts/{attempt}"


def reports_root(workdir: str) -> str:
    """What the reports about all jobs of an owner lie below: one list call observes them all. They are removed once the
    attempt is over."""
    return workdir.rpartition("/jobs/")[0] + "/reports/"


def job_folder(workdir: str) -> str:
    """The workdir's own name, which the folder of the job's reports has, too."""
    return workdir.rpartition("/")[2]


def job_id(folder: str) -> str:
    """The id of the job whose `job_folder` this is."""
    return folder.partition("-")[0]


def reports_prefix(workdir: str, attempt: int) -> str:
    """What all report paths of an attempt begin with; the host's number follows."""
    return f"{reports_root(workdir)}{job_folder(workdir)}/{attempt}/host-"


def report_path(workdir: str, attempt: int, host: int) -> str:
    """The one object with what a host says, while the attempt lasts."""
    return f"{reports_prefix(workdir, attempt)}{host}"


def read_report_path(root: str, path: str) -> tuple[str, int, int] | None:
    """Folder of the job, attempt and host of a report below `root`; None: the path is none of a report."""
    found = _REPORT.fullmatch(path[len(root) :]) if path.startswith(root) else None
    return (found[1], int(found[2]), int(found[3])) if found else None


def kept_report_path(workdir: str, attempt: int, host: int) -> str:
    """Where the last report of an attempt is kept."""
    return f"{attempt_folder(workdir, attempt)}/reports/host-{host}"


def hosts_prefix(workdir: str, attempt: int) -> str:
    """What the folders of all hosts begin with."""
    return attempt_folder(workdir, attempt) + "/host-"


def host_folder(workdir: str, attempt: int, host: int) -> str:
    """What a host leaves behind: its log, and the program's events and verdict."""
    return f"{hosts_prefix(workdir, attempt)}{host}"


def outputs_folder(workdir: str, host: int) -> str:
    """What a host keeps of its program's folders, for all attempts."""
    return f"{workdir}/outputs/host-{host}"


def outputs_list(workdir: str, host: int) -> str:
    """The signed list of what is in that folder."""
    return f"{outputs_folder(workdir, host)}.list"


def staged_folder(name: str, *, memory: bool = False) -> str:
    """Where a host has a data set of its job; the agent expands it."""
    return f"{MEMORY}/tpujob/{name}" if memory else f"~/{HOST_FOLDER}/data/{name}"


def log_prefix(workdir: str, attempt: int, host: int) -> str:
    """What the paths of a host's log segments begin with."""
    return host_folder(workdir, attempt, host) + "/log-"


def log_path(workdir: str, attempt: int, host: int, segment: int) -> str:
    """One segment, numbered from 1. Paths sort as numbers do."""
    return f"{log_prefix(workdir, attempt, host)}{segment:05d}{LOG_SUFFIX}"


def read_log_path(workdir: str, path: str) -> tuple[int, int, int] | None:
    """Attempt, host and number of a log segment; None: the path is none of a segment in that workdir."""
    found = _SEGMENT.fullmatch(path[len(workdir) :]) if path.startswith(workdir) else None
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def shared_log_prefix(workdir: str, attempt: int) -> str:
    """What the paths of objects begin with in which agents of before wrote lines of many hosts."""
    return attempt_folder(workdir, attempt) + "/logs/"


def is_shared_log(workdir: str, attempt: int, path: str) -> bool:
    found = _SHARED.fullmatch(path[len(workdir) :]) if path.startswith(workdir) else None
    return found is not None and int(found[1]) == attempt
