"""The commands of `tpujob emulator` for a slice, one of its hosts, or a physical machine."""

from typing import Annotated

from tpujob.cli.commands.emulator import options as given
from tpujob.cli.commands.emulator.options import AnyHost, Off, OneHost, Target, lasting
from tpujob.cli.options import argument, flag, option
from tpujob.cli.output import say
from tpujob.emulator.faults import USUAL_HOST_FAULT


def preempt(target: Target = "", notice: Annotated[float, lasting("Default: 30s.")] = 30.0) -> None:
    """Preempt a slice, with a notice."""
    slice = given.do("preempt", target, notice_s=notice)
    say(f"{slice} is being preempted: its hosts are gone in {notice:g} s")


def maintain(
    target: Target = "",
    window: Annotated[float, lasting("Duration; default: 1m.")] = 60.0,
    restart: Annotated[bool, flag("Turn the hosts off for the window.", "--restart")] = False,
    notice: Annotated[float, lasting("Notice before a restart; default: none.")] = 0.0,
) -> None:
    """Announce maintenance to a slice, or carry it out."""
    slice = given.do("maintain", target, window_s=window, restart=restart, notice_s=notice)
    if restart:
        when = f"in {notice:g} s" if notice else "now"
        say(f"{slice}: its hosts go off {when}, for {window:g} s")
    else:
        say(f"{slice}: maintenance is announced for {window:g} s")


def announce(
    target: Target = "",
    begins: Annotated[float, lasting("Time until it begins; default: 1d.", "--in")] = 86400.0,
    window: Annotated[float, lasting("Duration; default: 1h.")] = 3600.0,
    off: Off = False,
) -> None:
    """Announce maintenance for later.

    `maintain` carries it out."""
    slice = given.do("announce", target, in_s=begins, window_s=window, off=off)
    what = "no maintenance is announced" if off else f"maintenance is announced, in {begins:g} s"
    say(f"{slice}: {what}")


def slow(
    target: Target = "",
    host: OneHost = 0,
    factor: Annotated[float, option("TIMES", "Factor; 1: full speed.", min=1)] = 10.0,
    lasts: Annotated[float | None, lasting("Default: until --factor 1.", "--for")] = None,
) -> None:
    """Slow down one host of a slice."""
    slice = given.do("slow", target, host=host, factor=factor, for_s=lasts)
    for_ = f" for {lasts:g} s" if lasts is not None else ""
    how = "as fast as before" if factor == 1 else f"{factor:g} times slower{for_}"
    say(f"{slice}: host {host} is {how}")


def silence(target: Target = "", host: AnyHost = None) -> None:
    """Let hosts die silently.

    The API still reports READY."""
    slice = given.do("silence", target, host=host)
    say(f"{slice}: {_which(host)} has fallen silent; the API says READY")


def hang(
    target: Target = "",
    host: AnyHost = None,
    off: Off = False,
) -> None:
    """Let a program hang.

    Agent and host still answer."""
    slice = given.do("hang", target, host=host, off=off)
    say(f"{slice}: the program of {_which(host)} {'continues' if off else 'hangs'}")


def cut(
    target: Annotated[str, argument("[JOB|SLICE]", "Default: every slice, now and later.")] = "",
    host: AnyHost = None,
    off: Off = False,
) -> None:
    """Cut hosts off from each other, as by a firewall."""
    given.client().do("cut", target=given.slice_or_id(target), host=host, off=off)
    where = f"{target}: " if target else ""
    how = "reaches the others again" if off else "is cut off from the others"
    say(f"{where}{_which(host)} {how}")


def oom(target: Target = "", host: OneHost = 0) -> None:
    """Let a host run out of memory."""
    slice = given.do("oom", target, host=host)
    say(f"{slice}: host {host} is out of memory; its biggest process is killed")


def delete(target: Target = "") -> None:
    """Delete a slice, as a person in the console may do."""
    say(f"{given.do('delete', target)} is being deleted")


def suspend(target: Target = "") -> None:
    """Delete the node of a slice alone.

    Its queued resource becomes SUSPENDED and still counts against the quota."""
    say(f"{given.do('suspend', target)} is being suspended by the user")


def break_host(
    physical: Annotated[str, argument("MACHINE", "Such as us-central2-b-h003.")],
    fault: Annotated[
        str,
        option(
            "FAULT",
            "TPUJOB_FAULT of the program: nan:step=20 (device=0, transient=1, where=device|data|model), "
            "hang:step=20, oom:step=20, exit:step=20,code=1 or preflight:device=0.",
        ),
    ] = USUAL_HOST_FAULT,
    mend: Annotated[bool, flag("Repair it.", "--mend")] = False,
) -> None:
    """Make a physical host bad.

    For programs that start there from now on."""
    given.client().do("break-host", physical=physical, fault=fault, mend=mend)
    say(f"{physical} is {'good again' if mend else 'bad'}")


def _which(host: int | None) -> str:
    return "every host" if host is None else f"host {host}"


COMMANDS = (
    preempt,
    maintain,
    announce,
    slow,
    silence,
    cut,
    hang,
    oom,
    delete,
    suspend,
    break_host,
)
