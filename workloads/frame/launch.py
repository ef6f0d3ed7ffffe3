"""From a command line to a training program on all hosts, and from its end to an exit code.

What belongs here: joining the other hosts, and the codes of the contract. Every way out goes through
`os._exit`, because at a normal end JAX waits for hosts that may be dead (87 s by its defaults).
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import gc
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from tpujob.contract import Exit, ProgramContext, Reporter, faults
from workloads import check
from workloads.frame import cache_stats
from workloads.frame.config import ConfigError, TrainConfig, parse
from workloads.frame.signals import Watcher

#: A host that is silent for so long is dead. JAX's default is 100 s; a busy host misses 10 s now and then.
_SILENCE_S = 20
#: How long a host waits for all others to arrive, and at its end for them to be done. Hosts are started together; a
#: set-up differs by less, and so do programs whose hosts work each for itself.
_ARRIVAL_S = 180
#: What an error says when another host has gone.
_PEER_SIGNS = ("gloo", "coordination service", "coordinationservice", "heartbeat", "barrier")

Program = Callable[[ProgramContext, Reporter, Watcher], Exit]


def main(record: type[TrainConfig], workload: str) -> NoReturn:
    """`python -m workloads.NAME`: read the command line into that record, then train that workload, given as
    `module:Class`; with `--check`, only have its step compiled. The workload is imported after the command line was
    found to be good."""
    if check.is_asked(sys.argv[1:]):
        from workloads.check import command

        command.main(record, workload, sys.argv[1:])
    module, _, name = workload.partition(":")
    config = parse(record, module.split(".")[-2], sys.argv[1:])

    def prepare() -> Program:
        from workloads.frame.loop import train

        made = getattr(importlib.import_module(module), name)(config)
        return lambda context, reporter, watcher: train(made, context, reporter, watcher)

    launch(prepare)


def launch(prepare: Callable[[], Program]) -> NoReturn:
    """Join the other hosts, run the program and end the process with one of the contract's codes.

    `prepare` does the slow imports and returns the program; a signal is heeded from before it on.
    """
    watcher = Watcher()
    reporter: Reporter | None = None
    hosts = 1
    try:
        context = _context()
        hosts = context.hosts
        reporter = Reporter(context)
        reporter.event("phase", name="init")
        # what is imported stays; to look through it again and again takes a sixth of the imports' time
        gc.disable()
        program = prepare()
        gc.freeze()
        gc.enable()
        if context.cache:
            _keep_compiled(context.cache)
        if context.hosts > 1:
            _join(context)
            watcher.joined()
        code = program(context, reporter, watcher)
        if context.hosts > 1:
            import jax

            jax.distributed.shutdown()  # waits for all, so that none takes our end for a failure
    except BaseException as error:
        code = code_of(error, hosts)
        _say(error, code, reporter)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def code_of(error: BaseException, hosts: int) -> Exit:
    """The exit code for an exception. On several hosts, one that a dead peer caused is told apart."""
    if isinstance(error, ConfigError | ModuleNotFoundError):
        return Exit.CONFIG
    text = f"{type(error).__name__} {error}".lower()
    is_of_peers = hosts > 1 and isinstance(error, RuntimeError | TimeoutError)
    return Exit.PEER if is_of_peers and any(sign in text for sign in _PEER_SIGNS) else Exit.ERROR


def _context() -> ProgramContext:
    try:
        context = ProgramContext.from_env()
        faults.parse(context.fault)  # here, before the other hosts wait for us
    except ValueError as error:
        raise ConfigError(f"a TPUJOB_ variable cannot be used: {error}") from error
    return context


def _join(context: ProgramContext) -> None:
    """Meet the other hosts, at the address or, where there is none, as on Cloud TPU, where JAX finds it by itself."""
    import jax

    address = context.coordinator or None
    jax.distributed.initialize(
        address,
        context.hosts if address else None,
        context.host if address else None,
        coordinator_bind_address=address,  # by default it listens on every interface
        initialization_timeout=_ARRIVAL_S,
        heartbeat_timeout_seconds=_SILENCE_S,
        shutdown_timeout_seconds=_ARRIVAL_S,
    )
    if address and address.startswith(("127.", "localhost:", "[::1]:")):
        _meet_on_loopback()


def _keep_compiled(folder: str) -> None:
    """Have XLA keep every compiled program there, and find them there in the next attempt."""
    import jax

    cache_stats.listen()
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _meet_on_loopback() -> None:
    """Have the CPU's collectives listen on loopback too, not on whatever this machine's name means, and leave out the
    lines that Gloo's C++ writes to file 1, one for each connection.

    JAX has no setting for it, but a backend may be registered with collectives of one's own.
    """
    from jax._src import distributed, xla_bridge
    from jax._src.lib import _jax  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]

    def backend() -> object:
        client = distributed.global_state.client
        ours = _jax.make_gloo_tcp_collectives(distributed_client=client, hostname="127.0.0.1")
        return xla_bridge.make_cpu_client(ours)

    xla_bridge.register_backend_factory("cpu", backend, priority=0, fail_quietly=False)
    sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _say(error: BaseException, code: Exit, reporter: Reporter | None) -> None:
    summary = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    if isinstance(error, ModuleNotFoundError):
        summary = (
            f"the package {error.name} is not installed; workloads/requirements.lock has all that the bundled "
            "programs need"
        )
    elif isinstance(error, ConfigError):
        summary = str(error)
    elif code is Exit.PEER:
        summary = f"another host is gone: {summary}"
    else:
        traceback.print_exception(error)
    if code is not Exit.ERROR:
        sys.stderr.write(f"{summary}\n")
    if reporter:
        reporter.event("error", message=summary[:500], code=int(code))
