"""The `TPUJOB_*` variables, which give a program its place in a job. All are optional: a program also runs by hand."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "TPUJOB_"  #: of every variable
OUT = PREFIX + "OUT"  #: the one that marks each process of an attempt


@dataclass(frozen=True)
class ProgramContext:
    """The place of this process in its job. Outside tpujob: the only host, in `./run`."""

    job: str = "local"
    attempt: int = 1  #: numbered from 1
    host: int = 0  #: numbered from 0
    hosts: int = 1
    #: `address:port` of host 0's rendezvous; empty: none is needed, or discover it
    coordinator: str = ""
    workdir: str = "run"  #: outlives the slice: a folder or a `gs://` URL; checkpoints go under it
    cache: str = ""  #: a folder for compiled programs, kept across attempts; empty: none
    data: str = ""  #: where the first entry of `data:` is, a folder or a `gs://` URL; empty: none
    out: str = "run"  #: this attempt's folder on this host; the three files go here
    fault: str = ""  #: a fault to inject, such as `nan:step=7,device=5`; empty: none
    resume_before: int = 0  #: only a checkpoint of an earlier step may be resumed from; 0: any
    slice: int = 0  #: the TPU slice of this host, from 0; hosts are numbered through all slices
    slices: int = 1  #: more than one: Multislice

    @staticmethod
    def from_env(env: Mapping[str, str] | None = None) -> ProgramContext:
        """Return the context that the agent put into the environment. Raises ValueError for a bad number."""
        env = os.environ if env is None else env
        fields = ProgramContext.__dataclass_fields__
        values = {k: env[PREFIX + k.upper()] for k in fields if env.get(PREFIX + k.upper())}
        whole = ("attempt", "host", "hosts", "resume_before", "slice", "slices")
        numbers = {k: int(values[k]) for k in whole if k in values}
        return ProgramContext(**{**values, **numbers})  # pyright: ignore[reportArgumentType]

    def to_env(self) -> dict[str, str]:
        """Return the variables of this context, which `from_env` reads."""
        return {PREFIX + k.upper(): str(getattr(self, k)) for k in self.__dataclass_fields__}
