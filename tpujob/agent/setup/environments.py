"""The environment that set-up and the program run in: built once on a host, and kept.

It lies in `~/.tpujob/envs/<key>`: the key is a hash over everything that it is made from, and the marker `done.json` is
written last, so that half a build is never taken for a whole one. It is built where it stays, as scripts in it hold
absolute paths; for the same reason the home folder is part of the key.

What it is made from is in `sources.py`, the tools that make it in `installers.py` and `uv.py`, its copy in the bucket
in `archives.py`. Whether none is needed is found out in `host_python.py`. Images are in `containers.py`.
"""

from __future__ import annotations

import os
import time
from typing import List, Optional, Tuple

from tpujob.agent.attempt import HostAttempt
from tpujob.agent.base import take_lock
from tpujob.agent.folders import ENVS, make_empty
from tpujob.agent.runtimes import BuiltEnvironment, Runtime
from tpujob.agent.setup.archives import fetch, keep
from tpujob.agent.setup.installers import FORMAT, Installer, key_of, read_sources, shortcoming
from tpujob.agent.upload import SealedFiles
from tpujob.protocol import EnvironmentOrder


class Builder:
    """Makes the environment that a plan asks for."""

    def __init__(self, attempt: HostAttempt, asked: EnvironmentOrder, bundles: List[str]) -> None:
        self._attempt, self._asked, self._bundles = attempt, asked, bundles
        self._note = attempt.log.note
        self._installer = Installer(attempt, asked, bundles)

    def make(self) -> Runtime:
        """The environment, whole; the host as it is where that will do. Raises Failure, Stopped."""
        kind, file = self._asked.get("kind", ""), self._asked.get("file", "")
        texts, local = read_sources(kind, file, self._bundles)
        if self._asked.get("unless_installed"):
            lowest = self._asked.get("python") or "3"
            lacks: str = self._attempt.aside(lambda: shortcoming(texts, lowest))
            if not lacks:
                self._note("environment: this host's own Python has all that %s names" % file)
                return Runtime()
            self._note("environment: %s, so one is made of %s" % (lacks, file))
        return self._made(kind, texts, local)

    def _made(self, kind: str, texts: List[Tuple[str, str]], local: bool) -> BuiltEnvironment:
        python = self._installer.python()
        key = key_of(self._asked, python, texts, self._bundles if local else [])
        built = BuiltEnvironment(key, kind)
        lock = self._lock(built)
        try:
            if not self._is_whole(built):
                self._get(built, local, hashed=any("--hash=" in text for _, text in texts))
        finally:
            os.close(lock)
        return built

    def _lock(self, built: BuiltEnvironment) -> int:
        """Another attempt may be building the same."""
        os.makedirs(ENVS, mode=0o700, exist_ok=True)
        path, waits = built.folder + ".lock", False
        while True:
            lock: Optional[int] = self._attempt.aside(lambda: take_lock(path, 1))
            if lock is not None:
                return lock
            if not waits:
                self._note("environment: another attempt builds it on this host; waiting")
            waits = True

    def _is_whole(self, built: BuiltEnvironment) -> bool:
        if not built.is_marked():
            return False
        if not built.works():
            self._note("environment: its Python does not run any more: it is made again")
            return False
        self._note("environment: %s was made on this host before" % built.key)
        return True

    def _get(self, built: BuiltEnvironment, local: bool, hashed: bool) -> None:
        began, attempt = time.monotonic(), self._attempt
        place, name = "%s/env/" % attempt.plan.get("shared"), built.key + ".tar"
        files = SealedFiles(attempt.storage, place, attempt.cache_key)
        if attempt.aside(lambda: fetch(files, name, built, self._note)):
            how = "fetched from the bucket"
        else:
            make_empty(built.folder)
            self._installer.install(built, local, hashed)
            built.mark(FORMAT)
            how = "built with %s" % built.kind
            if attempt.plan["host"] == 0:
                attempt.keeping = keep(files, name, built, self._note, attempt.aside)
        took = time.monotonic() - began
        self._note("environment: %s was %s in %.1f s" % (built.key, how, took))
