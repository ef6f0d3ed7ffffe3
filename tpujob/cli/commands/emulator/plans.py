"""The commands of `tpujob emulator` that inject faults by a plan: from a seed, or from a file."""

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from tpujob.cli.commands.emulator import options as given
from tpujob.cli.output import say
from tpujob.emulator.faults import PER_HOUR, PRESETS

_OFF = Annotated[bool, typer.Option("--off", help="Stop the plan; faults that are set stay.")]


def chaos(
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The same seed brings the same faults.")
    ] = None,
    rate: Annotated[
        str,
        typer.Option(
            metavar="RATE", help="calm, normal, storm, or a multiple of normal such as 2.5."
        ),
    ] = "normal",
    lasts: given.Lasts = None,
    only: Annotated[
        str,
        typer.Option(metavar="KINDS", help=f"With commas between them, of {', '.join(PER_HOUR)}."),
    ] = "",
    off: _OFF = False,
) -> None:
    """Inject faults at random.

    Preemptions, stockouts, errors of the APIs, slow hosts and others, at times that a seed decides."""
    if off:
        _end()
        return
    if seed is None:
        raise typer.BadParameter("give one, such as --seed 7", param_hint="--seed")
    _show(given.client().do("chaos", seed=seed, rate=_rate(rate), for_s=lasts, only=only))


def schedule(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="YAML or JSON: a list of steps such as {at: 30s, do: preempt}."
        ),
    ] = None,
    off: _OFF = False,
) -> None:
    """Inject a list of faults, each at its time.

    A step has `at`, `do` (the name of a command) and that command's options
    by name: {at: 2m, do: stockout, zone: us-central2-b, for: 10m}."""
    if off:
        _end()
        return
    if file is None:
        raise typer.BadParameter("give a file with steps", param_hint="FILE")
    _show(given.client().do("schedule", steps=_read(file)))


def _end() -> None:
    given.client().do("end-plan")
    say("The plan of faults is stopped.")


def _rate(text: str) -> float:
    if text in PRESETS:
        return PRESETS[text]
    try:
        return float(text)
    except ValueError:
        known = ", ".join(PRESETS)
        said = f"{text!r} is neither {known} nor a number"
        raise typer.BadParameter(said, param_hint="--rate") from None


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
    from tpujob.cli.render.emulator import plan_lines

    say("\n".join(plan_lines(coming)) if coming["next"] else "The plan has no steps left.")


COMMANDS = (chaos, schedule)
