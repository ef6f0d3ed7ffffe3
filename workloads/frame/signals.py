"""SIGTERM and Ctrl-C: "save now", from the first moment of the process to the last.

JAX has a notifier for SIGTERM: once one host has been told, all hosts agree on a step at which to
stop. But JAX installs it late, and looks at it only between steps. So here every signal first goes
to a watcher thread. Until training runs nothing can be lost, and the watcher ends the process at
once; from then on it hands the signal to JAX's notifier. Knows nothing of jax: importing it is quick.

SIGUSR1 is answered with the stacks of all threads, on stderr, and the program goes on.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading

from workloads.contract import Exit

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: What a shell calls the end of a program by Ctrl-C.
_BY_CTRL_C = 130


class Watcher:
    """Receives the signals. Make one before any other thread exists: threads inherit what is blocked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._training = False
        self._told = False
        _show_stacks_when_asked()
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        threading.Thread(target=self._watch, name="signals", daemon=True).start()

    def training(self) -> None:
        """From now on there is something to save, and a loop that asks JAX whether to stop."""
        with self._lock:
            self._training = True

    def _watch(self) -> None:
        while True:
            received = signal.sigwait(_SIGNALS)
            with self._lock:
                if not self._training:
                    _end(Exit.INTERRUPTED, "told to stop before the first step; nothing is lost")
                if self._told and received == signal.SIGINT:
                    _end(_BY_CTRL_C, "told twice; ending without saving")
                if not self._told:
                    _tell_jax()
                self._told = True


def _show_stacks_when_asked() -> None:
    """Also of a thread that is stuck in C, as in a collective: the handler needs neither it nor Python."""
    faulthandler.register(signal.SIGUSR1, all_threads=True, chain=False)
    # whoever started us may have had it blocked, and that is inherited
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})


def _tell_jax() -> None:
    """Let JAX's own handler run, in this thread; the others keep the signal blocked."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _end(code: int, why: str) -> None:
    sys.stderr.write(why + "\n")
    sys.stderr.flush()
    os._exit(code)
