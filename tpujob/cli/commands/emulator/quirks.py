"""The commands of `tpujob emulator` for what Google's service does only at times, or only to some requests."""

from typing import Annotated

import typer

from tpujob.cli.commands.emulator import options as given
from tpujob.cli.commands.emulator.options import Zone, duration
from tpujob.cli.output import say


def quirk(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="late-conflict: a request is accepted, and answered with 409. late-conflict-operation: the same, "
            "said by its operation. no-labels: answers leave out labels. wedge: a deletion that is forced while the "
            "cloud suspends a slice never ends.",
        ),
    ],
    off: Annotated[bool, typer.Option("--off", help="End it.")] = False,
) -> None:
    """Behave as Google's service does only at times."""
    given.client().do("quirk", name=name, off=off)
    say(f"{name} is {'off' if off else 'on'}")


def max_run(
    lasts: Annotated[
        float,
        typer.Argument(
            parser=duration,
            metavar="DURATION",
            help="Such as 30m; 0: no limit.",
            show_default=False,
        ),
    ],
) -> None:
    """Suspend slices some time after they became ready.

    As at the end of a maximum run duration. For slices that become ready from now on."""
    given.client().do("max-run", for_s=lasts)
    say(
        f"slices are suspended {lasts:g} s after they are ready"
        if lasts
        else "no slice is suspended for its age"
    )


def unreachable(
    zone: Zone, off: Annotated[bool, typer.Option("--off", help="Lists reach it again.")] = False
) -> None:
    """Let lists leave out a zone, and say so."""
    given.client().do("unreachable", zone=zone, off=off)
    say(f"{zone}: lists {'reach it again' if off else 'do not reach it'}")


def offer(
    zone: Annotated[
        str, typer.Argument(metavar="ZONE", help="Such as us-central2-x; a new one too.")
    ],
    type: Annotated[str, typer.Argument(metavar="TYPE", help="Such as v6e-512, or v9x-16.")],
) -> None:
    """Let a zone offer a type that tpujob does not know."""
    given.client().do("offer", zone=zone, type=type)
    say(f"{zone} offers {type}")


def add(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="network, subnetwork, service-account, reservation or disk."
        ),
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="As a context names it.")],
    off: Annotated[bool, typer.Option("--off", help="Remove it.")] = False,
) -> None:
    """Add a network, an account, a reservation or a disk.

    Requests that name another are refused. Until the emulator stops."""
    given.client().do("add", kind=kind, name=name, off=off)
    say(f"the {kind} {name} {'is gone' if off else 'exists'}")


COMMANDS = (quirk, max_run, offer, unreachable, add)
