"""`tpujob emulator ...`: injects faults into the local Cloud TPU, and shows its state.

This module has the commands for the emulator as a whole and for schedules of faults; `faults.py` has those of one
fault.
"""

import json
import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from tpujob.cli.commands.emulator import faults, options
from tpujob.cli.commands.emulator.status_page import plan_lines, status_page
from tpujob.cli.options import Json, argument, duration, flag, option
from tpujob.cli.output import note, say, say_json, say_page
from tpujob.config import files
from tpujob.emulator import CHAOS_PER_HOUR
from tpujob.errors import BadRequest, BadSpec

app = typer.Typer(
    no_args_is_help=True, help="Inject faults into the local Cloud TPU, and show its state."
)

_time = partial(option, "DURATION", parser=duration)
_OFF = Annotated[bool, flag("Stop the schedule; current faults stay.", "--off")]


@app.command()
def status(as_json: Json = False) -> None:
    """Show slices, hosts, stock and the faults in force."""
    say_page(options.client().status(), status_page, as_json)


@app.command()
def env(
    project: Annotated[
        str, option("PROJECT", "Project of gcloud; default: that of the context.")
    ] = "",
    off: Annotated[bool, flag("Print how to unset them.", "--off")] = False,
    as_json: Json = False,
) -> None:
    """Print what to export for gcloud and Python clients.

    eval "$(tpujob emulator env)" directs gcloud, Google's Python clients and tpujob in this terminal to the emulator.
    Addresses change with each start."""
    if off:
        from tpujob.emulator.client import shell_variable_names

        say(f"unset {' '.join(shell_variable_names())}")
        return
    variables = options.shell_variables(project)
    if as_json:
        say_json(variables)
        return
    say("\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items()))


@app.command()
def profile(
    name: Annotated[
        str,
        argument(
            "default|bare", "bare: as a TPU VM, with Python 3.10, without pip, JAX and `python`."
        ),
    ],
) -> None:
    """Choose what is installed on the hosts of new slices."""
    answer = options.client().do("profile", name=name)
    say(f"hosts that come up from now on are {name}")
    for shortcoming in answer["shortcomings"]:
        note(f"tpujob: {shortcoming}")


for name in faults.FAULTS:
    app.command(name)(faults.command(name))


@app.command()
def settings(
    create: Annotated[float | None, _time("Time to create a slice.")] = None,
    delete: Annotated[float | None, _time("Time to delete a slice.")] = None,
    suspend: Annotated[float | None, _time("Time to suspend a preempted slice.")] = None,
    list_lag: Annotated[float | None, _time("Time until lists show it.")] = None,
) -> None:
    """Show or change how long the cloud takes, in seconds."""
    times = {"create": create, "delete": delete, "suspend": suspend, "list_lag": list_lag}
    changes = {name: time for name, time in times.items() if time is not None}
    say(json.dumps(options.client().do("settings", **changes)))


@app.command()
def chaos(
    seed: Annotated[int | None, option("N", "Seed.", min=0)] = None,
    rate: Annotated[float, option("RATE", "Factor of how often faults come.")] = 1.0,
    lasts: Annotated[float | None, _time("Default: until --off.", "--for")] = None,
    only: Annotated[str, option("KINDS", f"Comma-separated, of {', '.join(CHAOS_PER_HOUR)}.")] = "",
    off: _OFF = False,
) -> None:
    """Inject faults at random.

    The same seed brings the same faults at the same times."""
    if off:
        _stop_schedule()
        return
    if seed is None:
        raise BadRequest("chaos needs a seed", hint="Give one, such as --seed 7.")
    _print_plan(options.client().do("chaos", seed=seed, rate=rate, for_s=lasts, only=only))


@app.command()
def schedule(
    file: Annotated[Path | None, argument("FILE", "YAML or JSON list of steps.")] = None,
    off: _OFF = False,
) -> None:
    """Inject the faults of a file, each at its time.

    A step has `at`, `do` (a command) and its options: {at: 2m, do: stockout, zone: us-central2-b, for: 10m}."""
    if off:
        _stop_schedule()
        return
    if file is None:
        raise BadRequest("schedule needs a file with steps", hint="`--help` shows a step.")
    _print_plan(options.client().do("schedule", steps=_read_steps(file)))


def _stop_schedule() -> None:
    options.client().do("end-plan")
    say("The schedule of faults is stopped.")


def _read_steps(file: Path) -> list[Any]:
    """Return the steps, with each value as text: `000042` is a job, not a number. Raises BadSpec."""
    import yaml

    try:
        content = yaml.load(files.read(file), Loader=yaml.BaseLoader)  # noqa: S506, makes only texts
    except yaml.YAMLError as error:
        raise BadSpec(f"{file}: not valid YAML: {' '.join(str(error).split())}") from None
    steps = cast(list[Any], content if isinstance(content, list) else [content])
    for step in steps:
        if isinstance(step, dict) and "target" in step:
            step["target"] = options.slice_or_id(str(cast(dict[str, Any], step)["target"]))
    return steps


def _print_plan(plan: dict[str, Any]) -> None:
    say("\n".join(plan_lines(plan)) if plan["next"] else "The schedule has no steps left.")
