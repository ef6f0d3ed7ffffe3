"""The parts of a job file that prepare a host for the program: `env` and `mounts`."""

import re
from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, Any, Self, cast

from pydantic import AfterValidator, Field, model_validator

from tpujob.domain.spec import fields as kinds
from tpujob.domain.spec.fields import Checked
from tpujob.domain.spec.yaml import describe
from tpujob.protocol.paths import HOST_FOLDER

#: the kinds of environment, by their keys
KINDS = ("uv", "pip", "conda", "docker")
#: the kinds that read a file of the bundle
FROM_FILE = ("uv", "pip", "conda")

_PYTHON = r"3\.[0-9]{1,2}(\.[0-9]{1,2})?"
_IMAGE = r"[a-z0-9][A-Za-z0-9._/:@-]{0,254}"
_BUCKET = r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"
_PLACE = r"(~|)(/[A-Za-z0-9._-]+)+/?"
_FOLDER = r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*/?"
_SIZE = r"([1-9][0-9]{0,6})(MiB|GiB|TiB)"
_MIB = {"MiB": 1, "GiB": 1024, "TiB": 1024**2}
_VARIABLE = r"[A-Z_][A-Z0-9_]*"


# Checks --------------------------------------------------------------------------------------------------------------


def _file(value: Any) -> str:
    """Return the path of a file in the bundle. Raise ValueError for a path outside."""
    path = kinds.text(1024)(value)
    if path.startswith(("/", "~")) or ".." in path.split("/"):
        raise ValueError(f"must be a path inside code, such as requirements.txt, not {path!r}")
    return path


def _place(value: Any) -> str:
    allowed = "a folder such as ~/data or /mnt/data"
    path = kinds.matching(_PLACE, allowed)(value).rstrip("/")
    parts = path.split("/")
    if ".." in parts or "." in parts or parts[:2] == ["~", HOST_FOLDER]:
        raise ValueError(f"must be {allowed}, outside ~/{HOST_FOLDER}, not {path!r}")
    return path


def _folder(value: Any) -> str:
    path = kinds.matching(_FOLDER, "a folder of the bucket, such as datasets/c4")(value)
    if ".." in path.split("/"):
        raise ValueError(f"must be a folder of the bucket, not {path!r}")
    return path.rstrip("/")


def _size(value: Any) -> int:
    match = re.fullmatch(_SIZE, value) if isinstance(value, str) else None
    if not match:
        raise ValueError(f"must be a size with its unit, such as 50GiB, not {describe(value)}")
    return int(match[1]) * _MIB[match[2]]


def _size_text(mib: int) -> str:
    unit = next(unit for unit in ("TiB", "GiB", "MiB") if mib % _MIB[unit] == 0)
    return f"{mib // _MIB[unit]}{unit}"


def _words(value: Any) -> tuple[str, ...]:
    return tuple(map(kinds.text(1024), kinds.items(value, "a list of texts")))


def _mount_items(value: Any) -> Any:
    return tuple(kinds.items(value, "a list of mounts, each with bucket and to"))


_File = Annotated[str | None, kinds.optional(Checked(_file))]
_Image = Annotated[
    str | None,
    kinds.optional(kinds.matching(_IMAGE, "an image such as ghcr.io/lab/train@sha256:...")),
]
_Python = Annotated[
    str | None, kinds.optional(kinds.matching(_PYTHON, 'a version such as "3.11", in quotes'))
]
_Args = Annotated[
    tuple[str, ...],
    Checked(_words, {"type": "array", "items": {"type": "string"}, "maxItems": kinds.MAX_ITEMS}),
]
_Size = Annotated[int, Checked(_size, kinds.schema_of(_SIZE), _size_text)]
_Bucket = Annotated[str, kinds.matching(_BUCKET, "a bucket such as gs://lab-data, without a path")]
_To = Annotated[str, Checked(_place, kinds.schema_of(_PLACE))]
_OnlyDir = Annotated[str | None, kinds.optional(Checked(_folder, kinds.schema_of(_FOLDER)))]


# Parts of a job file -------------------------------------------------------------------------------------------------


class Env(kinds.SpecPart):
    """The environment of set-up and program, built once on each host."""

    uv: _File = Field(None, description="Requirements file in code, installed by uv.")
    pip: _File = Field(None, description="Requirements file in code; the environment has pip, too.")
    conda: _File = Field(None, description="environment.yml in code, for micromamba or conda.")
    docker: _Image = Field(None, description="Image; with @sha256:... every attempt gets the same.")
    python: _Python = Field(None, description='With uv or pip: version of Python, such as "3.11".')
    args: _Args = Field((), description="With docker: options of `docker run`.")

    @model_validator(mode="before")
    @classmethod
    def _no_variables(cls, value: Any) -> Any:
        """Refuse variables of the program, which users may take to belong here."""
        keys = cast("Mapping[Any, Any]", value) if isinstance(value, Mapping) else ()
        if variables := [k for k in keys if isinstance(k, str) and re.fullmatch(_VARIABLE, k)]:
            raise ValueError(
                f"variables of the program, such as {variables[0][:60]}, go into run.env; "
                f"env takes one of {', '.join(KINDS)}"
            )
        return cast("Any", value)

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            problem = f"{' and '.join(kinds)} are" if kinds else "none is"
            raise ValueError(f"needs exactly one of {', '.join(KINDS)}, but {problem} given")
        if self.python is not None and self.kind not in ("uv", "pip"):
            where = "its file" if self.kind == "conda" else "its image"
            raise ValueError(f"python goes with uv or pip; {self.kind} has it in {where}")
        if self.args and self.kind != "docker":
            raise ValueError("args go with docker")
        return self

    @property
    def kind(self) -> str:
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def source(self) -> str:
        """The environment's file, or its image."""
        return getattr(self, self.kind)


class MountCache(kinds.SpecPart):
    """A cache of the bucket on the host's disk."""

    size: _Size = Field(description="Size, such as 50GiB.")
    ttl: kinds.Ttl = Field(
        3600,
        description="How long metadata is valid.",
        json_schema_extra={"default": kinds.time_text(3600)},
    )


class Mount(kinds.SpecPart):
    """A bucket that gcsfuse mounts on every host."""

    bucket: _Bucket = Field(description="Such as gs://lab-data.")
    to: _To = Field(description="Mount point, such as ~/data or /mnt/data.")
    read_only: bool = Field(True, description="false: the program may write.")
    only_dir: _OnlyDir = Field(None, description="Folder of the bucket to mount.")
    cache: MountCache | None = Field(None, description="Cache on the host's disk. Default: none.")


def _check_overlap(mounts: tuple[Mount, ...]) -> tuple[Mount, ...]:
    """Raise ValueError if two mounts are at the same place, or one is below another."""
    for mount, other in combinations(mounts, 2):
        place, other_place = f"{mount.to}/", f"{other.to}/"
        if place.startswith(other_place) or other_place.startswith(place):
            raise ValueError(f"{other.to} and {mount.to} overlap")
    return mounts


Mounts = Annotated[tuple[Mount, ...], Checked(_mount_items), AfterValidator(_check_overlap)]
