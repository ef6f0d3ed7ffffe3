"""What the emulated cloud asks the farm for: one slice."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tpujob.emulator.farm import image
from tpujob.emulator.farm.hosts import HostSpec
from tpujob.errors import BadRequest

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
MAX_HOSTS = 1024


@dataclass(frozen=True)
class SliceRequest:
    name: str
    zone: str
    type: str
    hosts: tuple[HostSpec, ...]
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    project: str = "tpujob-emulator"
    image: str = image.DEFAULT  #: what is installed on its hosts
    cut: bool = False  #: whether its hosts cannot reach each other

    def check(self) -> None:
        """Raises BadRequest."""
        if not _NAME.fullmatch(self.name):
            raise BadRequest(f"{self.name!r} is not a valid name of a slice")
        if self.image not in image.IMAGES:
            raise BadRequest(f"there is no image {self.image!r}, only {' and '.join(image.IMAGES)}")
        if not 1 <= len(self.hosts) <= MAX_HOSTS:
            raise BadRequest(f"a slice has 1 to {MAX_HOSTS} hosts")
        if [h.index for h in self.hosts] != list(range(len(self.hosts))):
            raise BadRequest("hosts must be numbered from 0, in order")
