"""SIGTERM and Ctrl-C: "save now", from the first moment of the process to the last.

JAX has a notifier for SIGTERM: once one host has been told, all hosts agree on a step at which to
stop. But JAX installs it late, and looks at it only between steps. So here every signal first goes
to a watcher thread. Until training runs nothing can be lost, and the watcher ends the process at
once; from then on it hands the signal to JAX's notifier. Knows nothing of jax: importing it is quick.

No signal is blocked, as the programs that this one starts would inherit that and not heed it. A process that is forked
from this one without starting a program shares the watcher; JAX cannot be used in such a one anyway.

SIGUSR1 is answered with the stacks of all threads, on stderr, and the program goes on.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable

from tpujob.contract import Exit

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: What a shell calls the end of a program by Ctrl-C.
_BY_CTRL_C = 130


class Watcher:
    """Receives the signals. Make one in the main thread, as early as can be."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._training = False
        self.told = False  #: to stop, while it was training
        self._tell_jax: Callable[[int], None] = lambda _: None
        # also of a thread that is stuck in C, as in a collective: the handler needs neither it nor Python
        faulthandler.register(signal.SIGUSR1, all_threads=True, chain=False)
        # Python writes the number of a signal there at once, even while the main thread is inside C++
        received, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        _receive()
        # whoever started us may have had them blocked, and that is inherited
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {*_SIGNALS, signal.SIGUSR1})
        thread = threading.Thread(target=self._watch, args=(received,), name="signals", daemon=True)
        thread.start()

    def joined(self) -> None:
        """JAX has put its notifier in our place: take the place back, and keep the notifier for later."""
        libc = ctypes.CDLL(None)
        libc.signal.restype = ctypes.c_void_p
        notifier = libc.signal(int(signal.SIGTERM), None)
        if notifier:
            self._tell_jax = ctypes.CFUNCTYPE(None, ctypes.c_int)(notifier)
        _receive()

    def training(self) -> None:
        """From now on there is something to save, and a loop that asks JAX whether to stop."""
        with self._lock:
            self._training = True

    def _watch(self, received: int) -> None:
        while True:
            number = os.read(received, 1)[0]
            with self._lock:
                if not self._training:
                    _end(Exit.INTERRUPTED, "stopped before the first step; nothing is lost")
                if self.told and number == signal.SIGINT:
                    _end(_BY_CTRL_C, "stopped twice; ending without saving")
                if not self.told:
                    self._tell_jax(signal.SIGTERM)
                self.told = True


def _receive() -> None:
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)
        signal.siginterrupt(number, False)


def _end(code: int, why: str) -> None:
    sys.stderr.write(why + "\n")
    sys.stderr.flush()
    os._exit(code)
