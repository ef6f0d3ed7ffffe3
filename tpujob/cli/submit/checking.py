"""`tpujob create --check`: compiles the job's program for its slices on this machine. Nothing is submitted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tpujob import fit
from tpujob.cli.backend import current_settings
from tpujob.cli.errors import DOES_NOT_FIT
from tpujob.cli.output import note, say, say_json, screen
from tpujob.domain.hardware import accelerators

if TYPE_CHECKING:
    from tpujob.api import Unit
    from tpujob.config.settings import Settings
    from tpujob.domain.prices import PriceList
    from tpujob.domain.spec import JobSpec


def check(spec: JobSpec, *, as_json: bool) -> int:
    """Say for each type of the job whether its program fits, how fast it can be, and what the hours cost."""
    from tpujob.cli.render.check import Checked, check_page

    now = current_settings()
    wanted, targets, prices = _wanted(spec), _targets(spec), _prices(now)
    within = fit.environment(now.cache, note)
    found = fit.check(wanted, list(targets), within)
    fit.keep(now.cache, wanted, _versions(within.stamp), found.findings)
    rows: list[Checked] = []
    for one in found.findings:
        zone, usd = _price(spec, targets[one["target"]], prices)
        rows.append(Checked(one, zone, usd))
    if as_json:
        priced = [{**row.found, "zone": row.zone, "usd_per_hour": row.usd_per_hour} for row in rows]
        say_json(priced)
    else:
        on = screen()
        say(check_page(spec.name, rows, on.columns, color=on.color))
    return 0 if found.fits else DOES_NOT_FIT


def rooflines(spec: JobSpec, types: list[str], unit: Unit) -> dict[str, float]:
    """Units a second by type, of those types that were checked on this machine, with this program and these versions.
    Empty for a program that cannot be checked."""
    if spec.run.workload is None:
        return {}
    targets = {fit.target_of(type, spec.tpu.slices): type for type in types}
    cache, versions = current_settings().cache, _versions(fit.stamp())
    found = fit.speeds(cache, _wanted(spec), targets, versions, unit)
    return {targets[target]: speed for target, speed in found.items()}


def _wanted(spec: JobSpec) -> fit.Wanted:
    from tpujob.domain.host.plan import options

    return fit.wanted_of(spec.run.workload, options(spec), spec.run.env)


def _targets(spec: JobSpec) -> dict[str, str]:
    """The job's types, by what the check calls them."""
    return {fit.target_of(type, spec.tpu.slices): type for type in spec.tpu.types}


def _versions(stamp: str) -> str:
    """Of the environment, and of the programs: another version may compile to something else."""
    from tpujob.bundle import workloads_bundle

    return f"{stamp} {workloads_bundle().sha256}"


def _prices(now: Settings) -> PriceList:
    from tpujob.config import context, prices
    from tpujob.domain.prices import LIST

    if now.local:
        return LIST
    return prices.in_force(now, context.current(now), datetime.now(UTC).date())


def _price(spec: JobSpec, type: str, prices: PriceList) -> tuple[str, float | None]:
    """The first zone of the job that has the type, with what its slices cost there an hour."""
    zones = [z for z in spec.tpu.zones if accelerators.may_have(type, z)]
    for zone in zones or accelerators.zones(type):
        usd = prices.usd_per_hour(type, zone, spec.tpu.pricing, spec.tpu.slices)
        if usd is not None:
            return zone, usd
    return next(iter(zones), ""), None
