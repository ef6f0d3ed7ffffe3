"""One real server for all tests of this folder, in front of the scripted backend of each."""

from tests.support.scripted import api, front, url
from tests.support.stage import stage

__all__ = ["api", "front", "stage", "url"]
