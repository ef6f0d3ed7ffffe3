"""The commands of `tpujob emulator` that inject one fault, built from a table of their arguments.

A command sends its arguments as they are typed. Defaults, parsing, effect and answer are in
`emulator/fault_commands.py`, which is not imported: that would take longer than the command.
"""

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Annotated, Any

from tpujob.cli.commands.emulator import options
from tpujob.cli.options import argument, flag, option
from tpujob.cli.output import say

#: command -> its arguments and options, and its help
FAULTS = {
    "preempt": ("[JOB|SLICE] --notice", "Preempt a slice, with a notice."),
    "maintain": (
        "[JOB|SLICE] --window --restart --notice",
        "Announce maintenance to a slice, or carry it out.",
    ),
    "announce": (
        "[JOB|SLICE] --in --window --off",
        "Announce maintenance for later.\n\n`maintain` carries it out.",
    ),
    "slow": ("[JOB|SLICE] --host --factor --for", "Slow down one host of a slice."),
    "silence": ("[JOB|SLICE] --host", "Let hosts die silently.\n\nThe API still reports READY."),
    "cut": (
        "[JOB|SLICE] --host --off",
        "Cut hosts off from each other, as by a firewall.\n\nDefault: every slice, now and later.",
    ),
    "hang": ("[JOB|SLICE] --host --off", "Let a program hang.\n\nAgent and host still answer."),
    "oom": ("[JOB|SLICE] --host", "Let a host run out of memory."),
    "delete": ("[JOB|SLICE]", "Delete a slice, as a person in the console may do."),
    "suspend": (
        "[JOB|SLICE]",
        "Delete the node of a slice alone.\n\n"
        "Its queued resource becomes SUSPENDED and still counts against the quota.",
    ),
    "break-host": (
        "MACHINE --fault --mend",
        "Make a physical host bad.\n\nFor programs that start there from now on.",
    ),
    "stockout": (
        "ZONE [TYPE] --for --off --fail",
        "Let a zone run out of capacity for new slices.",
    ),
    "quota": ("ZONE TYPE LIMIT --pricing", "Limit how much of a generation may be held in a zone."),
    "api-error": (
        "METHOD CODE --count --after --hang --message",
        "Fail or delay the next calls of the TPU API.",
    ),
    "storage-error": (
        "--count --status --method --hang --path --after --off",
        "Fail or delay the next requests of Cloud Storage.",
    ),
    "api-bug": ("BUG --off", "Switch on a rare behaviour of Google's API."),
    "max-run": (
        "DURATION",
        "Suspend slices some time after they became ready.\n\nFor slices that become ready from now on.",
    ),
    "offer": ("ZONE TYPE", "Let a zone offer a type that tpujob does not know."),
    "unreachable": ("ZONE --off", "Report a zone as unreachable in lists."),
    "add": (
        "KIND NAME --for --off",
        "Add a network, an account, a reservation or a disk.\n\nIt lasts until the emulator stops; a calendar "
        "reservation ends after --for.",
    ),
}


#: argument or option -> the parameter of the emulator's command, the help, and the metavar; empty: a flag
WORDS: dict[str, tuple[str, str, str]] = {
    "[JOB|SLICE]": ("target", "Default: the only ready slice.", ""),
    "ZONE": ("zone", "Such as us-central2-b.", ""),
    "TYPE": ("type", "Such as v4, or v6e-512.", ""),
    "[TYPE]": ("type", "Such as v4; default: all.", ""),
    "MACHINE": ("physical", "Such as us-central2-b-h003.", ""),
    "LIMIT": ("limit", "Cores (v5e, v6e: chips), or none.", ""),
    "METHOD": ("method", "Such as CreateQueuedResource; *: any.", ""),
    "CODE": ("code", "gRPC status; OK: delay only.", ""),
    "BUG": (
        "name",
        "late-conflict: a request succeeds, but returns 409. late-conflict-operation: its operation ends with 409. "
        "no-labels: responses omit labels. wedge: a forced deletion of a suspending slice never ends.",
        "",
    ),
    "DURATION": ("for_s", "Such as 30m; 0: no limit.", ""),
    "KIND": ("kind", "network, subnetwork, service-account, reservation or disk.", ""),
    "NAME": ("name", "Name in the context.", ""),
    "--notice": ("notice_s", "Default: 30s; before a restart: none.", "DURATION"),
    "--window": ("window_s", "Default: 1m; of an announcement: 1h.", "DURATION"),
    "--in": ("in_s", "Time until it begins; default: 1d.", "DURATION"),
    "--for": ("for_s", "Default: until it is ended.", "DURATION"),
    "--hang": ("hang_s", "Delay of the answer.", "DURATION"),
    "--host": ("host", "Host number; default: 0, or all.", "K"),
    "--factor": ("factor", "Default: 10; 1: full speed.", "TIMES"),
    "--fault": (
        "fault",
        "TPUJOB_FAULT of the program: nan:step=20 (device=0, transient=1, where=device|data|model), hang:step=20, "
        "oom:step=20, exit:step=20,code=1 or preflight:device=0.",
        "FAULT",
    ),
    "--pricing": ("pricing", "Default: all.", "[spot|on-demand|reserved]"),
    "--count": ("count", "How many; 0 removes the fault.", "N"),
    "--message": ("message", "The error message.", "TEXT"),
    "--status": ("status", "503, 429, 403 or 404; 200: delay only.", "CODE"),
    "--method": ("method", "GET, LIST, POST, PUT, PATCH or DELETE; *: any.", "METHOD"),
    "--path": ("path", "Only names that contain this text.", "TEXT"),
    "--restart": ("restart", "Turn the hosts off for the window.", ""),
    "--off": ("off", "End it, or remove it.", ""),
    "--mend": ("mend", "Repair it.", ""),
    "--fail": ("fail", "Fail requests at once instead of queueing them.", ""),
    "--after": ("after", "Fail after the call took effect.", ""),
}


def command(name: str) -> Callable[..., None]:
    """Return the function of a command for typer: sends the arguments and prints the emulator's answer."""
    words, help = FAULTS[name]

    def run(**arguments: Any) -> None:
        values = {key: value for key, value in arguments.items() if value is not None}
        if "target" in values:
            values["target"] = options.slice_or_id(values["target"])
        say(options.client().do(name, **values)["text"])

    run.__doc__ = help
    run.__signature__ = Signature([_parameter(word) for word in words.split()])
    return run


def _parameter(word: str) -> Parameter:
    """Return the parameter of an argument or option; an optional one is None by default."""
    name, help, metavar = WORDS[word]
    kind: Any = str
    if not word.startswith("-"):
        info = argument(word, help)
    elif metavar:
        info = option(metavar, help, word, show_default=False)
    else:
        kind = bool
        info = flag(help, word, show_default=False)
    if word[0] in "-[":
        annotation = Annotated[kind | None, info]
        return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=Annotated[kind, info])
