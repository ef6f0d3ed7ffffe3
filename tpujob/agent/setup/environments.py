"""The environment that set-up and the program run in: built once on a host, and kept.

It lies in `~/.tpujob/envs/<key>`: the key is a hash over everything that it is made from, and the marker `done.json` is
written last, so that half a build is never taken for a whole one. It is built where it stays, as scripts in it hold
absolute paths; for the same reason the home folder is part of the key.

What it is made from is in `sources.py`, the tools that make it in `installers.py`, its copy in the bucket in
`archives.py`. Images are in `containers.py`.
"""

from __future__ import annotations

import os
import threading
import time
from typing import List, Optional

from tpujob.agent.base import Aside, Note, take_lock
from tpujob.agent.folders import ENVS, make_empty
from tpujob.agent.runtimes import BuiltEnvironment
from tpujob.agent.setup.archives import fetch, keep
from tpujob.agent.setup.installers import Installer, Run
from tpujob.agent.setup.sources import FORMAT, key_of, read_sources
from tpujob.agent.storage import Storage
from tpujob.protocol import EnvironmentOrder, Plan


class Builder:
    """Makes the environment that a plan asks for."""

    def __init__(
        self,
        plan: Plan,
        asked: EnvironmentOrder,
        bundles: List[str],
        storage: Storage,
        note: Note,
        run: Run,
        aside: Aside,
    ) -> None:
        """`run` follows a command to its end, with its output in the log. `run` and `aside` raise Stopped."""
        self._plan, self._asked, self._bundles = plan, asked, bundles
        self._storage, self._note, self._aside = storage, note, aside
        self._installer = Installer(self._asked, bundles, note, run, aside)
        self.keeping: Optional[threading.Thread] = None  #: puts what was built into the bucket

    def make(self) -> BuiltEnvironment:
        """The environment, whole. Raises Failure, Stopped."""
        kind, file = self._asked.get("kind", ""), self._asked.get("file", "")
        texts, local = read_sources(kind, file, self._bundles)
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
            lock: Optional[int] = self._aside(lambda: take_lock(path, 1))
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
        began = time.monotonic()
        where = "%s/env/%s.tar" % (self._plan.get("shared"), built.key)
        if self._aside(lambda: fetch(self._storage, where, built, self._note)):
            how = "fetched from the bucket"
        else:
            make_empty(built.folder)
            self._installer.install(built, local, hashed)
            built.mark(FORMAT)
            how = "built with %s" % built.kind
            if self._plan["host"] == 0:
                self.keeping = keep(self._storage, where, built, self._note, self._aside)
        took = time.monotonic() - began
        self._note("environment: %s was %s in %.1f s" % (built.key, how, took))
