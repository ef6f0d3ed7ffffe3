"""One attempt on this host, from its plan to its last report."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
import traceback
from typing import Any, Callable, Dict, List, Optional

from tpujob.agent.attempts import other_states, stop_others
from tpujob.agent.base import (
    ATTEMPTS,
    ROOT,
    Failure,
    Record,
    Stopped,
    read_json,
    take_lock,
    write_json,
)
from tpujob.agent.bundles import fetch
from tpujob.agent.compiled import Compiled, name_of
from tpujob.agent.containers import Container, remove_all
from tpujob.agent.environments import CACHES, PATIENCE, Bare, Builder
from tpujob.agent.evidence import evidence, first_lines
from tpujob.agent.log import Log
from tpujob.agent.mounts import folder_of, mount_all, unmount_all
from tpujob.agent.notices import Notices
from tpujob.agent.packages import may_install, wait_for_others
from tpujob.agent.preflight import Lie, Preflight, doubt
from tpujob.agent.processes import KILL_PATIENCE, end_all, family, free_devices, kernel_kills
from tpujob.agent.reports import Progress, Reporter, number
from tpujob.agent.storage import Metadata, Storage, StorageError
from tpujob.agent.supervision import Supervision
from tpujob.agent.wake import Wake

FINAL_PATIENCE = 600.0  #: seconds that the last report and the rest of the log are tried
FLUSH = 60.0  #: seconds that the last report waits for the log
FLUSH_DOOMED = 5.0  #: the same when the host is about to be taken away
MAX_EVENTS = 16 * 1024 * 1024  #: bytes of `events.jsonl` that are kept, its end
JUDGED = (65, 71)  #: the exit codes of a program that found a non-finite number and judged it
INTERRUPTED = 75  #: the exit code of a program that was told to stop, and saved
PIPE = 1024 * 1024  #: bytes that wait in the program's output while the agent is busy
#: what a report takes from a state
SAID = (
    "job", "attempt", "phase", "exit_code", "error", "cause", "notice", "physical", "saved_in", "verdict", "versions",
)  # fmt: skip
#: those that a daemon hears; SIGCHLD and SIGUSR1 only wake it, the last two are no reason to end
SIGNALS = (signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT)


class Daemon:
    """One attempt on this host, from its plan to its last report."""

    def __init__(self, plan: Record, folder: str) -> None:
        self.plan, self.folder = plan, folder
        self.out, self.work = os.path.join(folder, "out"), os.path.join(folder, "work")
        self.state: Record = {"job": plan["job"], "attempt": plan["attempt"], "pid": os.getpid()}
        self.state.update(phase="fetching", exit_code=None, error="", cause=None, notice="")
        self.state.update(program=False, stopped=False, physical="", saved_in=None, verdict=None)
        self.state["versions"] = {}
        self.grace: Optional[float] = None  #: set when `stop` has been called
        self.warned = False  #: SIGTERM came, or a notice
        self.host_lock: Optional[int] = None
        self.supervision: Optional[Supervision] = None  #: while the program runs, and after
        self.place = Bare()  #: what set-up, the check and the program run in
        self.keeping: Optional[threading.Thread] = None  #: while the environment goes to the bucket
        self.compiled: Optional[Compiled] = None  #: the programs that were compiled before
        self.wake = Wake()
        for each in SIGNALS:
            signal.signal(each, self._on_signal)

    def save(self) -> None:
        write_json(os.path.join(self.folder, "state.json"), self.state)

    def run(self) -> None:
        """Runs to the end of the attempt, whatever happens."""
        attempt, host, workdir = (self.plan[k] for k in ("attempt", "host", "workdir"))
        self.metadata = Metadata()
        self.storage = Storage(self.metadata)
        where = "%s/attempts/%d" % (workdir, attempt)
        self.shipped_to = "%s/host-%d" % (where, host)
        spool = os.path.join(self.folder, "spool")
        self.log = Log(self.storage, self.shipped_to + "/log-", spool, self.plan["log_bytes"])
        base = dict({"v": 1, "host": host}, **{key: self.state[key] for key in SAID})
        report = "%s/reports/host-%d" % (where, host)
        every = self.plan["report_every"]
        self.reporter = Reporter(self.storage, report, every, base, self._vitals)
        self.progress = Progress(os.path.join(self.out, "events.jsonl"))
        self.notices = Notices(self.metadata, self.progress)
        kills = kernel_kills()
        try:
            code: Optional[int] = self._live()
        except Stopped:
            code = -signal.SIGTERM
        except Failure as failure:
            code = None
            self.state.update(error=str(failure)[:500], cause=failure.cause)
        except Exception as error:  # a mistake here must not leave a program without its keeper
            traceback.print_exc()
            end_all(lambda: family(self.folder), self.plan["grace"])
            code = None
            self.state.update(error="the agent failed: %r" % error, cause="CRASH")
        killed = kernel_kills() - kills
        if killed > 0 and code not in (None, 0, INTERRUPTED) and self.grace is None:
            self.log.note("the kernel killed for want of memory, processes: %d" % killed)
            if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
                self.state.update(error="killed for want of memory", cause="OOM_HOST")
        self._finish(code)

    # Steps

    def _live(self) -> int:
        """Every step up to the program's end; returns its exit code."""
        os.makedirs(self.out, exist_ok=True)
        self._aside(self._meet_machine)
        self._aside(self._take_over, whole=True)
        bundles = self._aside(lambda: [fetch(self.storage, b) for b in self.plan["bundles"]])
        self._furnish(bundles)
        self._prepare(bundles)
        self._phase("clearing")
        self._aside(lambda: free_devices(self.plan["grace"]), whole=True)
        if self.plan.get("preflight"):
            self._phase("preflight")
            self._preflight()
            self._fetch_compiled()
        self._phase("running")
        self.state["program"] = True
        self.save()
        parts = (self.plan, self.log, self.reporter, self.progress, self.wake.up)
        self.supervision = Supervision(*parts)
        return self._run(self.plan["argv"], b"", self.supervision)

    def _meet_machine(self) -> None:
        """On which physical machine this host is. Raises Failure when programs are kept off it."""
        physical = self.metadata.get("attributes/physical-host") or ""
        self.state["physical"] = physical[:100]
        self.reporter.update({"physical": self.state["physical"]})
        if physical and physical in (self.plan.get("avoid") or ()):
            text = "the physical machine %s is suspected of wrong numbers" % physical
            raise Failure(text, "PREFLIGHT")

    def _take_over(self) -> None:
        """This daemon alone may own processes on this host afterwards: every other attempt's have ended."""
        stop_others(self.plan["grace"], besides=self.folder)
        self.host_lock = take_lock(os.path.join(ROOT, "host.lock"), KILL_PATIENCE)
        if self.host_lock is None:
            raise Failure("another agent does not let go of this host")
        if end_all(lambda: family(ATTEMPTS), self.plan["grace"]):
            raise Failure("processes of an earlier attempt do not end")
        remove_all()
        wanted = {folder_of(one): one for one in self.plan.get("mounts") or ()}
        unmount_all(self.log.note, besides=wanted)
        for state in other_states(self.folder):
            for name in ("work", "spool"):
                path = os.path.join(state["folder"], name)
                if not os.path.islink(path) and state["phase"] == "exited" and not state["live"]:
                    shutil.rmtree(path, ignore_errors=True)

    def _furnish(self, bundles: List[str]) -> None:
        """The buckets are mounted, and the environment is there. Raises Failure."""
        mounts: List[Record] = self.plan.get("mounts") or []
        asked: Record = self.plan.get("environment") or {}
        if not mounts and not asked:
            return
        self._phase("setup")
        in_image = asked.get("kind") == "docker"
        if mounts:
            self._aside(lambda: mount_all(mounts, self.log.note, in_image))
        if in_image:
            container = Container(self.plan, self.folder, [folder_of(one) for one in mounts])
            container.make(self.log.note, lambda argv: self._step(argv, ROOT, {}))
            self.place = container
        elif asked:
            means = (self.storage, self.log.note, self._step, self._aside)
            builder = Builder(self.plan, bundles, *means)
            self.place = builder.make()
            self.keeping = builder.keeping

    def _step(self, argv: List[str], cwd: str, variables: Dict[str, str]) -> int:
        """One step on the way to an environment, which nothing of the program's may change."""
        code = self._run(argv, b"[env] ", patience=PATIENCE, bare=True, cwd=cwd, more=variables)
        if self._told():
            raise Stopped
        return code

    def _prepare(self, bundles: List[str]) -> None:
        """The program's folder, with the bundles in it and set-up done. What a set-up made is kept for later attempts
        at the same place, as it may hold absolute paths; without one, every attempt begins afresh."""
        setup, done = self.plan.get("setup"), ""
        if setup:
            keys = [self.place.key] if self.place.key else []
            named = json.dumps([self.plan["job"], setup, self.plan["bundles"], *keys])
            kept = os.path.join(ROOT, "work", hashlib.sha256(named.encode()).hexdigest()[:16])
            done = kept + ".done"
            if not os.path.lexists(self.work):
                os.symlink(kept, self.work)
            if os.path.exists(done) and os.path.isdir(kept):
                self.log.note("set-up was done on this host before")
                return
            shutil.rmtree(kept, ignore_errors=True)
            os.makedirs(kept)
        else:
            shutil.rmtree(self.work, ignore_errors=True)
            os.makedirs(self.work)
        for bundle in bundles:
            self._aside(
                lambda b=bundle: shutil.copytree(b, self.work, symlinks=True, dirs_exist_ok=True)
            )
        if setup:
            self._phase("setup")
            if may_install(setup):
                self._aside(lambda: wait_for_others(self.log.note))
            code = self._run(["bash", "-c", setup], b"[setup] ")
            if self._told():
                raise Stopped
            if code != 0:
                raise Failure("set-up ended with exit code %d; its log says why" % code)
            write_json(done, {"attempt": self.plan["attempt"]})

    def _preflight(self) -> None:
        def run(argv: List[str], tag: bytes, patience: float) -> int:
            code = self._run(argv, tag, patience=patience)
            if self._told():
                raise Stopped
            return code

        means = (self.log.note, run, self._aside, self._told)
        check = Preflight(self.plan, self.folder, self.storage, *means)
        try:
            check.go()
        except Lie as lie:
            self.state["verdict"] = lie.verdict
            raise
        finally:
            self.state["versions"] = check.versions
            self.reporter.update({"versions": check.versions})

    def _fetch_compiled(self) -> None:
        """What was compiled before for such hosts is here, once it is known what is installed."""
        name = name_of(str(self.plan.get("type") or ""), self.state["versions"])
        if name and self.plan.get("type"):
            where = "%s/%s" % (self.plan["shared"], name)
            folder = os.path.join(CACHES, *name.split("/"))
            self.compiled = Compiled(self.storage, folder, where, self.log.note)
            self._aside(self.compiled.fill)
            if self.plan["host"] == 0:
                self.compiled.follow()

    def _aside(self, work: Callable[[], Any], whole: bool = False) -> Any:
        """What `work` returns. It runs beside, so that a word to stop is heard; it is abandoned then, unless it must
        be done `whole`: what signals processes must not go on after this attempt."""
        outcome: List[Any] = []

        def do() -> None:
            try:
                outcome[:] = [work(), None]
            except Exception as error:
                outcome[:] = [None, error]

        thread = threading.Thread(target=do, daemon=True)
        thread.start()
        while thread.is_alive():
            self.wake.wait(0.05)
            self._listen()
            if self._told() and not whole:
                raise Stopped
        if outcome[1] is not None:
            raise outcome[1]
        if self._told():
            raise Stopped
        return outcome[0]

    def _told(self) -> bool:
        return self.grace is not None or self.warned

    # The program

    def _run(
        self,
        argv: List[str],
        tag: bytes,
        supervision: Optional[Supervision] = None,
        patience: float = float("inf"),
        bare: bool = False,
        cwd: str = "",
        more: Optional[Dict[str, str]] = None,
    ) -> int:
        """Start a command, follow it to its end, end what is left of it. Exit codes of a shell for one that cannot
        be started; after `patience` seconds it is killed. `bare`: on the host itself, not in the environment, and with
        `more` variables instead of the program's."""
        place, cwd = Bare() if bare else self.place, cwd or self.work
        own = dict(self._stamp(), **(more or {})) if bare else self._variables()
        environment = dict(os.environ, **own)
        if bare:
            environment.pop("PYTHONPATH", None)
        place.dress(environment)
        argv = place.command(argv, own, cwd)
        reader, writer = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(writer, 1031, PIPE)  # F_SETPIPE_SZ: a burst does not wait for us
        try:
            child = subprocess.Popen(
                argv,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            os.close(reader)
            why = error.strerror if isinstance(error, OSError) else error
            self.log.note("cannot start %s: %s" % (argv[0], why))
            return 127 if isinstance(error, FileNotFoundError) else 126
        finally:
            os.close(writer)
        hear = None
        if supervision is not None:
            path = environment.get("PATH", os.defpath)
            supervision.follow(lambda: family(self.folder, child.pid), path)
            hear = supervision.hear
        pump = self.log.follow(reader, tag, hear)
        code = self._attend(child, time.monotonic() + patience, place)
        end_all(lambda: family(self.folder, child.pid), 2)
        place.clear()
        pump.join(5)
        return code

    def _stamp(self) -> Dict[str, str]:
        """What every process of this attempt is known by."""
        return {"PYTHONUNBUFFERED": "1", "TPUJOB_OUT": self.out}

    def _variables(self) -> Dict[str, str]:
        """Those of the program that are not the host's."""
        context = {k: os.path.expanduser(str(v)) for k, v in self.plan["context"].items()}
        given: Dict[str, str] = dict(self._stamp(), **self.plan["env"])
        if self.compiled is not None:
            context["cache"] = self.compiled.folder
            if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
                given.setdefault("JAX_COMPILATION_CACHE_DIR", self.compiled.folder)
        if context.get("cache"):
            os.makedirs(context["cache"], exist_ok=True)
        # a drill belongs to a host, or to one run: what says nothing of one takes none away
        drill = given.get("TPUJOB_FAULT") or os.environ.get("TPUJOB_FAULT", "")
        context.update(out=self.out, fault=context.get("fault") or drill)
        given.update({"TPUJOB_" + k.upper(): v for k, v in context.items()})
        path = (self.work, given.get("PYTHONPATH") or os.environ.get("PYTHONPATH", ""))
        given["PYTHONPATH"] = os.pathsep.join(p for p in path if p)
        return given

    def _attend(self, child: subprocess.Popen[bytes], deadline: float, place: Bare) -> int:
        """Wait for the child, and pass on what it must hear."""
        told, kill_at = False, 0.0
        while child.poll() is None:
            self._listen()
            grace = self._allowed()
            if grace is not None and not kill_at:
                kill_at = time.monotonic() + grace
                self._phase("stopping")
                place.send(family(self.folder, child.pid), signal.SIGTERM)
            elif self.warned and not told and not kill_at:
                told = True
                self.log.note("passing SIGTERM on: %s" % (self.notices.said or "told by the host"))
                place.send(family(self.folder, child.pid), signal.SIGTERM)
            if time.monotonic() >= min(kill_at or deadline, deadline):
                place.send(family(self.folder, child.pid), signal.SIGKILL)
            self.wake.wait(
                0.1 if kill_at or told else min(1.0, max(0, deadline - time.monotonic()))
            )
        self._listen()
        return child.returncode

    def _allowed(self) -> Optional[float]:
        """Seconds that the child has to end by itself; None: it may go on."""
        if self.grace is not None:
            return self.grace
        verdict = self.supervision.nonfinite() if self.supervision else None
        if verdict is None:
            return None
        if not self.state["verdict"]:
            self.state.update(verdict=verdict, cause="NONFINITE", error=verdict["text"])
            self.log.note("watch.nonfinite matches this output: stopping the program")
            self.reporter.update({"verdict": verdict})
        return float(self.plan["grace"])

    # What comes from outside

    def _on_signal(self, number: int, _frame: object) -> None:
        if number == signal.SIGTERM:
            self.warned = True

    def _listen(self) -> None:
        """Take in what was said to this daemon, and by the program."""
        if self.grace is None:
            asked = read_json(os.path.join(self.folder, "stop.json"))
            if asked:
                self.grace, self.state["stopped"] = float(asked["grace"]), True
        urgent = self.progress.look()
        notice = self.notices.said
        if notice and self.state["notice"] != notice:
            self.notices.heard()
            self.state["notice"], self.warned = notice, True
            self.reporter.update({"notice": notice})
        if self.state["saved_in"] is None and self.notices.saved_in() is not None:
            self.state["saved_in"] = took = self.notices.saved_in()
            step = self.progress.facts.get("checkpoint")
            self.log.note("step %s was saved %.1f s after the notice" % (step, took))
            self.reporter.update({"saved_in": took}, urgent=True)
        if self.supervision is not None:
            self.supervision.look()
        self.reporter.update(self.progress.facts, urgent)

    def _vitals(self) -> Record:
        running = self.supervision is not None and self.state["phase"] != "exited"
        return self.supervision.vitals() if self.supervision and running else {}

    def _phase(self, phase: str, said: bool = True) -> None:
        self.state["phase"] = phase
        self.save()
        if said:
            self.reporter.update({"phase": phase})

    # The end

    def _finish(self, code: Optional[int]) -> None:
        self.state["exit_code"] = code
        self._phase("exited", said=False)
        if code in JUDGED:  # what a replay says weighs more than a line of output
            self.state.update(cause=None, error="", verdict=self._verdict())
        if self.host_lock is not None and not self.state["notice"]:
            unmount_all(self.log.note)
        if self.host_lock is not None:
            os.close(self.host_lock)  # the next attempt need not wait for the rest
        if code != 0:
            self.notices.ask()
        self._listen()
        self.save()
        stalled = self.supervision is not None and self.supervision.has_stalled
        if stalled or (code not in (0, INTERRUPTED) and not self._told()):
            doubt()
        if self.state["error"]:
            self.log.note(self.state["error"])
        last_words = b"" if code in (0, INTERRUPTED) else evidence(self.log.tail())
        if last_words and self.supervision and self.supervision.stacks:
            last_words = first_lines(self.supervision.stacks)  # it was ended as it hung
        said = {key: self.state[key] for key in SAID}
        if self.state["notice"]:
            self.reporter.hurry(said, last_words)
        flushed = self.log.finish(FLUSH_DOOMED if self.state["notice"] else FLUSH)
        self.reporter.finish(said, last_words, FINAL_PATIENCE)
        for name in ("events.jsonl", "verdict.json"):
            self._ship_file(name)
        if self.compiled is not None and self.plan["host"] == 0:
            self.compiled.finish(whole=code == 0)
        if self.keeping is not None:
            self.keeping.join(FINAL_PATIENCE)
        if not flushed:
            self.log.finish(FINAL_PATIENCE)

    def _verdict(self) -> Optional[Record]:
        """Where the program says that a non-finite number came from; None: it does not say."""
        said = read_json(os.path.join(self.out, "verdict.json"))
        if not said:
            return None
        numbers = {key: number(said.get(key)) for key in ("step", "host")}
        texts = {key: str(said.get(key, ""))[:300] for key in ("device", "blame", "text")}
        return dict(numbers, **texts)

    def _ship_file(self, name: str) -> None:
        path = os.path.join(self.out, name)
        with contextlib.suppress(OSError, StorageError), open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - MAX_EVENTS))
            self.storage.put("%s/%s" % (self.shipped_to, name), file.read(MAX_EVENTS))
