"""`tpujob emulator ...`: inject faults into the local Cloud TPU, and show its state.

Here are the commands for the emulator as a whole, and for schedules of faults. Those of one fault are in `faults.py`.
"""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from tpujob.cli.commands.emulator import faults
from tpujob.cli.commands.emulator import options as given
from tpujob.cli.commands.emulator.options import lasting
from tpujob.cli.options import Json, argument, flag, option
from tpujob.cli.output import note, say, say_json, say_page
from tpujob.cli.render.table import Column, table
from tpujob.domain.text import age, clean, many, span
from tpujob.emulator.faults import PER_HOUR

app = typer.Typer(
    no_args_is_help=True, help="Inject faults into the local Cloud TPU, and show its state."
)

_OFF = Annotated[bool, flag("Stop the schedule; current faults stay.", "--off")]


@app.command()
def status(as_json: Json = False) -> None:
    """Show slices, hosts, stock and the faults in force."""
    say_page(given.client().status(), status_page, as_json)


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
    variables = given.shell_variables(project)
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
    found = given.client().do("profile", name=name)
    say(f"hosts that come up from now on are {name}")
    for one in found["shortcomings"]:
        note(f"tpujob: {one}")


for name in faults.FAULTS:
    app.command(name)(faults.command(name))


@app.command()
def settings(
    create: Annotated[float | None, lasting("Time to create a slice.")] = None,
    delete: Annotated[float | None, lasting("Time to delete a slice.")] = None,
    suspend: Annotated[float | None, lasting("Time to suspend a preempted slice.")] = None,
    list_lag: Annotated[float | None, lasting("Time until lists show it.")] = None,
) -> None:
    """Show or change how long the cloud takes, in seconds."""
    wanted = {"create": create, "delete": delete, "suspend": suspend, "list_lag": list_lag}
    all_of_it = given.client().do("settings", **{k: v for k, v in wanted.items() if v is not None})
    say(json.dumps(all_of_it))


@app.command()
def chaos(
    seed: Annotated[int | None, option("N", "Seed.", min=0)] = None,
    rate: Annotated[float, option("RATE", "Factor of how often faults come.")] = 1.0,
    lasts: given.Lasts = None,
    only: Annotated[str, option("KINDS", f"Comma-separated, of {', '.join(PER_HOUR)}.")] = "",
    off: _OFF = False,
) -> None:
    """Inject faults at random.

    The same seed brings the same faults at the same times."""
    if off:
        _end()
        return
    if seed is None:
        raise typer.BadParameter("give one, such as --seed 7", param_hint="--seed")
    _show(given.client().do("chaos", seed=seed, rate=rate, for_s=lasts, only=only))


@app.command()
def schedule(
    file: Annotated[Path | None, argument("FILE", "YAML or JSON list of steps.")] = None,
    off: _OFF = False,
) -> None:
    """Inject the faults of a file, each at its time.

    A step has `at`, `do` (a command) and its options: {at: 2m, do: stockout, zone: us-central2-b, for: 10m}."""
    if off:
        _end()
        return
    if file is None:
        raise typer.BadParameter("give a file with steps", param_hint="FILE")
    _show(given.client().do("schedule", steps=_read(file)))


def _end() -> None:
    given.client().do("end-plan")
    say("The schedule of faults is stopped.")


def _read(file: Path) -> list[Any]:
    """The steps, with every value as text, as `000042` is a job and not a number. Raises typer.BadParameter."""
    import yaml

    try:
        found = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # noqa: S506, makes only texts
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise typer.BadParameter(f"{file}: {why}", param_hint="FILE") from error
    steps = cast(list[Any], found if isinstance(found, list) else [found])
    for step in steps:
        if isinstance(step, dict) and "target" in step:
            step["target"] = given.slice_or_id(str(cast(dict[str, Any], step)["target"]))
    return steps


def _show(coming: dict[str, Any]) -> None:
    say("\n".join(plan_lines(coming)) if coming["next"] else "The schedule has no steps left.")


# The page of status --------------------------------------------------------------------------------------------------


_SLICES = (
    Column("Slice", (12,)),
    Column("Job"),
    Column("Type"),
    Column("Zone", (8,)),
    Column("Pricing"),
    Column("Node"),
    Column("Queued", (9,)),
    Column("Age", right=True),
)
_HOSTS = (
    Column("Slice", (12,)),
    Column("Host", right=True),
    Column("Address"),
    Column("Physical", (14,)),
    Column("Condition", (9,)),
)
_STOCK = (
    Column("Zone", (8,)),
    Column("Type"),
    Column("Hosts", right=True),
    Column("Used", right=True),
)


def status_page(found: Mapping[str, Any], columns: int, *, color: bool = False) -> str:
    """Slices and their hosts, the stock of zones in use, the faults in force and the plan of faults."""
    slices, faults = found["slices"], found["faults"]
    touched = {s["zone"] for s in slices} | {s["zone"] for s in faults["stockouts"]}
    stock = [row for z in found["zones"] if z["zone"] in touched for row in _stock_rows(z)]
    parts = [
        table(_SLICES, [_slice_row(s) for s in slices], columns, color=color)
        if slices
        else "There are no slices."
    ]
    hosts = [_host_row(s, h) for s in slices for h in s["hosts"]]
    if hosts:
        parts.append(table(_HOSTS, hosts, columns, color=color))
    if stock:
        parts.append(table(_STOCK, stock, columns, color=color))
    parts.append("\n".join(fault_lines(faults)) or "No faults are set.")
    if found.get("cut"):
        parts.append("Hosts are cut off from each other.")
    if found.get("profile", "default") != "default":
        parts.append(f"New hosts are {clean(found['profile'])}.")
    if billed := found.get("billed"):
        a, b = (f"{billed['operations'][letter]:,} of class {letter}" for letter in "AB")
        calls = sum(billed["calls"].values())
        parts.append(
            f"The cloud would have billed {a} and {b}; Cloud TPU was called {calls:,} times."
        )
    if found["schedule"]:
        parts.append("\n".join(plan_lines(found["schedule"])))
    return "\n\n".join(parts)


def fault_lines(faults: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for s in faults["stockouts"]:
        lasts = "until --off" if s["for_s"] is None else f"for {span(s['for_s'])}"
        how = "requests fail" if s["fail"] else "requests wait"
        lines.append(f"stockout    {s['zone']} {s['generation'] or 'all types'}, {lasts}, {how}")
    for q in faults["quotas"]:
        used = f"{q['used']} of {q['limit']} used"
        lines.append(f"quota       {q['zone']} {q['generation']} {q['pricing']}: {used}")
    calls = [(f"api-error   {c['method']} {c['code']}", c["delay_s"], c) for c in faults["calls"]]
    for f in faults["storage"]:
        where = f" {clean(f['path'])}" if f["path"] else ""
        calls.append((f"storage     {f['method']}{where} {f['status']}", f["hang_s"], f))
    for text, delay, c in calls:
        hang = f" after {span(delay)}" if delay else ""
        effect = "before it takes effect" if c["when"] == "pre" else "after it took effect"
        lines.append(f"{text}{hang} {effect}, {many(c['count'], 'time')}")
    lines += [f"api-bug     {name}" for name in faults["api_bugs"]]
    if faults["max_run_s"]:
        lines.append(f"max run     slices are suspended after {span(faults['max_run_s'])}")
    lines += [f"unreachable {zone}, for lists" for zone in faults["unreachable"]]
    for b in faults["bad_hosts"]:
        lines.append(f"bad host    {b['physical']} {clean(b['fault'])}")
    return lines


def plan_lines(script: Mapping[str, Any]) -> list[str]:
    """A plan of faults: its name, how many steps are done, and the next ones."""
    return [
        f"{script['name']}: {script['done']} done, next:",
        *(f"  in {span(max(0, s['in_s']))}  {s['do']} {clean(s['what'])}" for s in script["next"]),
    ]


def _slice_row(s: Mapping[str, Any]) -> list[str]:
    node = s["state"] or "-"
    if s["gone_in_s"] is not None:
        node = f"gone in {span(s['gone_in_s'])}"
    elif s["maintenance"]:
        node = f"{node}, maintenance"
    elif s["unreachable"]:
        node = f"{node}, not reached"
    queued = f"{s['queued'] or '-'}{' by ' + s['initiator'] if s['initiator'] else ''}"
    facts = [s["name"], s["job"] or "-", s["type"], s["zone"], s["pricing"]]
    return [*(clean(f) for f in facts), node, queued, age(s["age_s"])]


def _host_row(s: Mapping[str, Any], h: Mapping[str, Any]) -> list[str]:
    slowed = f"{h['factor']:g} times slower" if h["factor"] != 1 else ""
    bad = [word for word in ("silent", "hung") if h[word]]
    condition = ", ".join(filter(None, (clean(h["fault"]), slowed, *bad))) or "good"
    return [clean(s["name"]), str(h["index"]), h["address"] or "-", h["physical"], condition]


def _stock_rows(zone: Mapping[str, Any]) -> list[list[str]]:
    return [
        [zone["zone"], generation, str(stock["hosts"]), str(stock["used"])]
        for generation, stock in zone["stock"].items()
    ]
