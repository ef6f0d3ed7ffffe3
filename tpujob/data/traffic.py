"""Which way bytes of a copy take, as far as somebody bills it. Pure; what it costs is in the price lists."""

from dataclasses import dataclass
from typing import Literal

from tpujob.data.places import Folder, Place, Prefix, S3Prefix

#: `internet`: out of Cloud Storage to this machine, which may lie in the bucket's region; `regions`: between two
#: buckets of Cloud Storage; `aws`: out of S3
Route = Literal["free", "internet", "regions", "aws"]


@dataclass(frozen=True, slots=True)
class Traffic:
    route: Route = "free"
    here: str = ""  #: of `regions`: location of the source; empty: not known
    there: str = ""  #: that of the target


def route_of(source: Place, target: Place) -> Route:
    """Bytes into the cloud are free (documented), wherever they come from; who sends them may be billed."""
    if isinstance(source, S3Prefix):
        return "aws"
    if isinstance(source, Prefix):
        return "internet" if isinstance(target, Folder) else "regions"
    return "free"
