"""The commands about tpujob itself: its local stack, the schema of job files, its version."""

from __future__ import annotations

import time

from tpujob.cli.options import Json
from tpujob.cli.output import say, say_json, screen


def up(as_json: Json = False) -> int:
    """Start the local stack: the emulator, its hosts and the backend."""
    from tpujob import settings, stack

    now = settings.load()
    stack.up(now)
    return _say_status(as_json)


def down() -> int:
    """Stop the local stack; jobs go on when it is started again."""
    from tpujob import settings, stack

    stack.down(settings.load())
    say("The local stack is down.")
    return 0


def status(as_json: Json = False) -> int:
    """Show what of the local stack runs, and where."""
    return _say_status(as_json)


def _say_status(as_json: bool) -> int:
    raise NotImplementedError


def schema() -> int:
    """Print the JSON schema of a job file, for editors."""
    from tpujob.domain import spec

    say_json(spec.schema())
    return 0


def version(as_json: Json = False) -> int:
    """Print the version."""
    from tpujob import __version__

    say_json({"version": __version__}) if as_json else say(f"tpujob {__version__}")
    return 0


_ = (time, screen)
