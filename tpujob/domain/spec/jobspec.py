"""The fields of a job file, with their defaults. A JobSpec never changes after the creation of its job.

`fields.py` has the types of values, `errors.py` the sentences of errors, `yaml.py` the reader of YAML, and
`domain/capacity/offers.py` the places where a job may run.
"""

import json
from collections.abc import Collection, Mapping
from itertools import pairwise, product
from typing import Annotated, Any, Self

from pydantic import AfterValidator, AliasChoices, ConfigDict, Field, model_validator

from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.spec import fields as kinds
from tpujob.domain.spec import group, queue, yaml
from tpujob.domain.spec.data import Datasets
from tpujob.domain.spec.env import FROM_FILE, Env, Mounts
from tpujob.domain.spec.errors import Problem, bad_spec, validate
from tpujob.domain.spec.fields import ELASTIC, Checked, SpecPart
from tpujob.domain.spec.watch import Watch, WatchSpec
from tpujob.domain.spec.yaml import EACH, KeyPath, describe
from tpujob.domain.text import listed

# Budget --------------------------------------------------------------------------------------------------------------


#: the largest budget in US dollars
MAX_BUDGET_USD = 100_000_000


def check_usd(value: Any) -> float:
    """Return an amount of US dollars. Raise ValueError with half a sentence that follows the name of the amount."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(
            f"must be a number of US dollars, such as 50 or 12.50, not {describe(value)}"
        )
    if not 0.01 <= value <= MAX_BUDGET_USD:  # not a number is in no range
        raise ValueError(
            f"must be from 0.01 to {MAX_BUDGET_USD:,} US dollars, not {describe(value)}"
        )
    return float(value)


Usd = Annotated[
    float, Checked(check_usd, {"type": "number", "minimum": 0.01, "maximum": MAX_BUDGET_USD})
]


class JobBudget(SpecPart):
    """The limit of the cost of a job's slices."""

    usd: Usd = Field(
        description="US dollars. The program saves and the slice is released before the limit; `tpujob "
        "resume --budget` raises it."
    )


# Outputs -------------------------------------------------------------------------------------------------------------


#: what a shell or a sweep would replace; a folder of `outputs` is taken as it is written
_REPLACED = "$`{}~*?"
#: the pattern for editors; `_folder` refuses `..`, too
_INSIDE = rf"(?!/)[^\x00-\x1f{_REPLACED}]{{1,256}}"


def _folder(value: Any) -> str:
    folder = kinds.text(256)(value).rstrip("/")
    parts = folder.split("/")
    if folder.startswith(("/", "~")) or not folder.isprintable() or {"", ".", ".."} & set(parts):
        raise ValueError(
            "must be a folder inside the one in which the program starts, such as checkpoints, not "
            f"{value[:60]!r}"
        )
    if replaced := [character for character in _REPLACED if character in folder]:
        raise ValueError(
            f"must name the folder itself, such as checkpoints: {replaced[0]} in {value[:60]!r} is not expanded"
        )
    return folder


def _only_host_0(value: Any) -> int | None:
    if value is None or (type(value) is int and value == 0):
        return value
    raise ValueError(f"must be 0: host 0 can save for all hosts, not {describe(value)}")


class KeptFolder(SpecPart):
    """A folder that the bucket keeps."""

    folder: Annotated[str, Checked(_folder, kinds.schema_of(_INSIDE))] = Field(
        description="Folder, relative to that of the program."
    )
    source: Annotated[int | None, Checked(_only_host_0, {"const": 0})] = Field(
        None,
        alias="from",
        description="0: host 0 saves for all hosts. Only its files are kept, and every host gets them. Default: "
        "each host keeps and gets its own.",
    )


def _outputs(value: Any) -> Any:
    """Return the entries of a folder or of a list of folders; each is a mapping."""
    entries = kinds.items(value, "a folder or a list of them", str, Mapping)
    return tuple({"folder": entry} if isinstance(entry, str) else entry for entry in entries)


def _check_nesting(outputs: tuple[KeptFolder, ...]) -> tuple[KeptFolder, ...]:
    """Return the outputs without doubles. Raise ValueError if a folder is in another, or has two kinds of `from`."""
    outputs = tuple(dict.fromkeys(outputs))
    folders = sorted(output.folder for output in outputs)
    for folder, other in product(folders, repeat=2):
        if folder.startswith(other + "/"):
            raise ValueError(f"{folder} is inside {other}, which is kept as a whole; leave it out")
    if doubles := [folder for folder, after in pairwise(folders) if folder == after]:
        raise ValueError(f"{doubles[0]} is named with `from` and without; keep one")
    return outputs


_ONE = KeptFolder.model_json_schema() | {"required": ["folder"]}
_FOLDER = kinds.schema_of(_INSIDE)
_MANY = {"type": "array", "maxItems": kinds.MAX_ITEMS, "items": {"anyOf": [_FOLDER, _ONE]}}
Outputs = Annotated[
    tuple[KeptFolder, ...],
    Checked(_outputs, {"anyOf": [_FOLDER, _ONE, _MANY]}),
    AfterValidator(_check_nesting),
]


# Compile check -------------------------------------------------------------------------------------------------------


_FUNCTION = r"[\w./-]{1,200}:[A-Za-z_]\w{0,99}"
_MESH = r"[A-Za-z_]\w*=(-1|[1-9][0-9]{0,4})(,[A-Za-z_]\w*=(-1|[1-9][0-9]{0,4})){0,9}"
_Function = Annotated[
    str, kinds.matching(_FUNCTION, "a function of a file or module in code, such as train.py:step")
]
_mesh = kinds.matching(_MESH, "the sizes of the mesh's axes, such as data=1,fsdp=-1")


class CheckedStep(SpecPart):
    """The function that returns the training step of a program, for `create --check`."""

    function: _Function = Field(
        description="FILE.py:FUNCTION or MODULE:FUNCTION in code; it returns the jitted step and its arguments."
    )
    mesh: Annotated[str, Checked(kinds.or_empty(_mesh), kinds.schema_of(f"({_MESH})?"))] = Field(
        "", description="Axes of its mesh, -1 for what is left. Default: data=SLICES,fsdp=-1."
    )
    steps: Annotated[int | None, kinds.optional(kinds.count(10**9, 1))] = Field(
        None, description="Steps of the training, for hours and dollars. Default: 1000."
    )


def _of_function(value: Any) -> Any:
    """Return the mapping that the name of a function stands for."""
    return {"function": value} if isinstance(value, str) else value


_STEP = {"anyOf": [kinds.schema_of(_FUNCTION), CheckedStep.model_json_schema(), {"type": "null"}]}
_CheckedStep = Annotated[CheckedStep | None, Checked(_of_function, _STEP)]


# The job file --------------------------------------------------------------------------------------------------------

#: the programs in `workloads/` that `run.workload` may name
WORKLOADS = ("lm", "mlp", "numerics", "tables", "vit")
#: those that train, which go on with any number of chips and keep the global batch
TRAININGS = ("lm", "mlp", "vit")

#: where numbers, true and false are texts as they were written: `1e-5` stays `1e-5`
AS_WRITTEN: Collection[KeyPath] = (
    ("run", "env", EACH),
    ("matrix", EACH, EACH),
    ("exclude", EACH, EACH),
)

MAX_RECORD = 128 * 1024  #: characters of a whole spec in its JSON form, as a store keeps it

_Workload = Annotated[
    str | None,
    kinds.optional(kinds.one_of(WORKLOADS, "bundled workload")),
]


class Tpu(kinds.SpecPart):
    """The hardware."""

    types: kinds.Types = Field(
        alias="type",
        description="Accelerator type such as v4-16, or a list in order of preference.",
    )
    zones: kinds.Zones = Field(
        (), description="Zones, best first. Default: those of the context that have the type."
    )
    pricings: kinds.Pricings = Field(
        ("spot",),
        alias="pricing",
        description="spot can be preempted; reserved and calendar need a reservation; flex-start and calendar end "
        "at a time that is known before. A list is in order of preference.",
        json_schema_extra={"default": "spot"},
    )
    run_for: kinds.RunFor = Field(
        None,
        description="How long a flex-start slice runs, 10m to 7d. It is billed for its use alone.",
    )
    reservation: kinds.Reservation = Field(
        "",
        description="Name of the reservation, or projects/P/reservations/NAME: for calendar; for reserved instead of "
        "that of the context.",
    )
    allow_cross_region: bool = Field(
        False,
        validation_alias=AliasChoices("allow_cross_region", "cross_region"),
        description="Allow zones where the context has no bucket; traffic is billed.",
    )
    runtime_version: kinds.RuntimeVersion = Field(
        None, description="Software of the TPU VM. Default: the usual one of the generation."
    )
    slices: kinds.Slices = Field(
        1, description="Number of slices that run the program together (Multislice), up to 64."
    )
    race: kinds.Race = Field(
        None,
        description="Number of places to ask at once, up to 5; the first slice that is ready serves.",
    )

    elastic: bool = Field(
        False,
        description="Take the next smaller type of the list when a larger one is not worth its wait.",
    )

    @property
    def pricing(self) -> str:
        """The preferred pricing."""
        return self.pricings[0]

    @model_validator(mode="after")
    def _sizes_of_an_elastic_job(self) -> Self:
        found = [accelerators.find(type) for type in self.types]
        sizes = [facts.chips for facts in found]
        smaller = all(a > b and not sizes[0] % b for a, b in pairwise(sizes))
        same = len({facts.generation for facts in found}) == 1
        if self.elastic and not (len(sizes) > 1 and smaller and same):
            raise ValueError(
                "elastic needs a list of types of one generation, the largest first, each a part of it: "
                "type: [v6e-64, v6e-32]"
            )
        return self

    @model_validator(mode="after")
    def _one_generation_per_runtime(self) -> Self:
        generations = {accelerators.find(type).generation for type in self.types}
        if self.runtime_version is not None and len(generations) > 1:
            raise ValueError(
                "runtime_version cannot fit types of several generations "
                f"({', '.join(sorted(generations))}); leave it out"
            )
        return self

    @model_validator(mode="after")
    def _terms_with_their_keys(self) -> Self:
        every = [find_pricing(name) for name in self.pricings]
        names = listed(self.pricings)
        if self.run_for is not None and not any(terms.takes_run_for for terms in every):
            raise ValueError(f"run_for goes with pricing: flex-start, not with {names}")
        if self.reservation and all(terms.waits_in_queue for terms in every):
            raise ValueError(
                f"reservation goes with pricing: reserved or calendar, not with {names}"
            )
        generations = [accelerators.find(type).generation for type in self.types]
        known = [name for name in generations if name in accelerators.GENERATIONS]
        for terms in every:
            if terms.takes_run_for and self.run_for is None:
                raise ValueError(f"pricing {terms.name} needs run_for, such as `run_for: 6h`")
            if terms.needs_reservation and not self.reservation:
                raise ValueError(f"pricing {terms.name} needs the name of its reservation")
            if others := [name for name in known if name not in (terms.generations or known)]:
                offered = listed(terms.generations)
                raise ValueError(
                    f"pricing {terms.name} is offered for {offered}, not for {others[0]}"
                )
        return self

    @model_validator(mode="after")
    def _race_for_what_costs_nothing_before(self) -> Self:
        held = [name for name in self.pricings if not find_pricing(name).waits_in_queue]
        if (self.race or 1) > 1 and held:
            raise ValueError(
                f"race must be 1 with pricing: {held[0]}, which is billed whether it is used or not"
            )
        return self

    @model_validator(mode="after")
    def _slices_that_can_be_joined(self) -> Self:
        generations = sorted({accelerators.find(type).generation for type in self.types})
        rows = accelerators.GENERATIONS
        old = [name for name in generations if name in rows and not rows[name].chip.dcn_gbps]
        if self.slices > 1 and old:
            raise ValueError(
                f"slices must be 1 with {' and '.join(old)}: Multislice needs v4 or later"
            )
        return self


class Run(kinds.SpecPart):
    """The program, which every host runs."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["workload"]}, {"required": ["command"]}]}
    )

    workload: _Workload = Field(None, description="Bundled training program.")
    args: kinds.Args = Field({}, description="Arguments of the bundled program.")
    command: kinds.Command = Field(None, description="Shell command, instead of a bundled program.")
    env: kinds.Env = Field(
        {}, description="Environment variables. Keys and passwords go into secrets."
    )
    secrets: kinds.Secrets = Field(
        (),
        description="Names of secrets (`tpujob secret set NAME`), each a variable of set-up and program.",
    )

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        if (self.workload is None) == (self.command is None):
            both = "both are" if self.workload is not None else "neither is"
            raise ValueError(f"needs exactly one of workload and command, but {both} given")
        if self.args and self.workload is None:
            raise ValueError("args go with workload; write a command's arguments into the command")
        if both := [name for name in self.secrets if name in self.env]:
            raise ValueError(f"{both[0]} is in env and in secrets; keep it in secrets alone")
        return self

    @property
    def program(self) -> str:
        """The name of the program: the bundled workload or the command."""
        return self.workload or self.command or ""


class Recovery(kinds.SpecPart):
    """Limits of the job's retries, by cause."""

    preemptions: kinds.Preemptions = Field(100, description="Retries after preemptions.")
    failures: kinds.Failures = Field(3, description="Retries after failures of the program.")
    hangs: kinds.Failures = Field(3, description="Retries after hangs.")
    nonfinite: kinds.Failures = Field(3, description="Retries on other hardware after NaN or Inf.")
    nonfinite_steps: kinds.Failures = Field(
        20,
        description="Reported steps in a row with a loss of NaN or Inf that end an attempt; 0: none do.",
    )
    bad_hosts: kinds.Failures = Field(10, description="Retries on other hardware after bad hosts.")
    preflights: kinds.Failures = Field(5, description="Retries after failed checks of the hosts.")
    busy: kinds.Failures = Field(3, description="Retries after another process held the TPU.")
    planned_ends: kinds.Preemptions = Field(
        0, description="Further slices after the planned end of one (flex-start, calendar)."
    )
    memory: kinds.Failures = Field(1, description="Retries after memory was used up.")
    restarts: kinds.Failures = Field(
        10, description="Restarts that the program asks for (exit code 75) without new progress."
    )
    attempts: kinds.Attempts = Field(
        None,
        description="Maximum starts of the program in all, whatever ended it; `resume` allows as many again. "
        "Default: no limit.",
    )
    stall: kinds.Stall = Field(
        900,
        description="Time without progress that counts as a hang; 0s: never. The first step has twice that, "
        "at least 30m.",
        json_schema_extra={"default": kinds.time_text(900)},
    )
    on_bad_host: kinds.OnBadHost = Field(
        "swap",
        description="swap keeps a bad slice until its replacement is ready; release deletes it at once.",
    )
    wait: kinds.Wait = Field(None, description="Maximum wait for capacity. Default: no limit.")


class JobSpec(kinds.SpecPart):
    """A training job on Cloud TPUs."""

    name: kinds.Name = Field(description="Name of the job: a-z, 0-9 and -, up to 40.")
    tpu: Tpu
    run: Run
    code: kinds.Folder = Field(
        None,
        description="Folder, relative to this file, to ship to every host; the program starts in it.",
    )
    env: Env | None = Field(
        None,
        description="Environment of set-up and program: uv, pip, conda or docker. Default: the host as it "
        "is; bundled programs bring their own.",
    )
    mounts: Mounts = Field(
        (), description="Buckets to mount as folders on every host, before set-up."
    )
    outputs: Outputs = Field(
        (),
        description="Folders, relative to that of the program, to keep in the bucket and restore in each attempt; "
        "{folder: ckpt, from: 0} restores those of host 0 on all hosts.",
    )
    data: Datasets = Field(
        (),
        description="Input, copied to the region of the slice; the program finds it at TPUJOB_DATA or "
        "TPUJOB_DATA_NAME.",
    )
    setup: kinds.Command = Field(
        None, description="Shell command that runs on each host before the program."
    )
    recovery: Recovery = Recovery()  # pyright: ignore[reportCallIssue]
    watch: Watch = Field(
        WatchSpec(),  # pyright: ignore[reportCallIssue]
        description="A known trainer, such as hf, or patterns for the output of a program that writes no events.",
    )
    preflight: bool = Field(True, description="Check hosts and devices before the program starts.")
    hold: kinds.Hold = Field(
        900,
        description="How long cancel keeps the slice, up to 7d.",
        json_schema_extra={"default": kinds.time_text(900)},
    )
    stop_grace: kinds.Grace = Field(
        30,
        description="Time from SIGTERM to SIGKILL, up to 10m.",
        json_schema_extra={"default": kinds.time_text(30)},
    )
    check: _CheckedStep = Field(
        None,
        description="Function of the program for `create --check`, such as train.py:step: it returns the jitted step.",
    )
    budget: JobBudget | None = Field(None, description="Limit of the job's cost. Default: none.")
    notify: kinds.Channels = Field(
        (), description="Notification channels (`tpujob notifications`)."
    )
    after: queue.AfterJobs = Field(
        (), description="Jobs that must succeed, or meet `on`, before this one starts."
    )
    priority: queue.Band = Field(
        "normal",
        description="Jobs of a higher priority get slices first. Low ones give way to them.",
    )
    hand_on: bool = Field(
        True,
        description="Its slice may be handed on to the next job, and it may get the slice of another job.",
    )
    share: queue.Share = Field("", description="Project of the context that the job counts for.")
    start: queue.Start = Field(
        "now", description="held: no slice is requested until the job is released."
    )
    not_before: queue.Moment = Field(
        None, description="No slice is requested before this time, such as 2026-12-01T09:00Z."
    )
    time: kinds.Wait = Field(
        None, description="How long the program is expected to run, for order and forecasts."
    )
    max_time: kinds.Wait = Field(
        None,
        description="Time after which the program is stopped, all attempts together; `resume` allows it again.",
    )
    finish_by: queue.Moment = Field(
        None,
        description="Time by which it should end. With `pricing: [spot, on-demand]` it is on spot as long as that "
        "suffices. Needs `time`, or steps of a known pace.",
    )
    array: group.Array = Field(
        None,
        description="Make many jobs of this one: their number, a range such as 0-99%8, or count and at_once.",
    )
    matrix: group.Matrix = Field(
        None,
        description="Make one job for each combination of these values. {lr} in run stands for the value of lr.",
    )
    exclude: group.Exclude = Field(
        (), description="Combinations of the matrix, or parts of them, that are left out."
    )
    at_once: group.AtOnce = Field(
        None, description="Jobs of the array or matrix that may have a slice at once. Default: all."
    )

    @property
    def is_group(self) -> bool:
        """Whether the spec makes many jobs. A group gets no slice itself."""
        return self.array is not None or self.matrix is not None


def load(text: str, source: str) -> JobSpec:
    """Return the spec in a job file's text. Raise BadSpec with all errors, each with its line in `source`."""
    document = yaml.load(text, source, AS_WRITTEN)
    return _validated(document.data, document)


def parse(data: Mapping[str, Any]) -> JobSpec:
    """Return the spec of a JSON form, from `dump` or from a client. Raise BadSpec for a wrong one."""
    return _validated(data, None)


def dump(spec: JobSpec) -> dict[str, Any]:
    """Return the JSON form, with every default filled in; `parse` reads an equal spec back."""
    return spec.model_dump(mode="json")


def schema() -> dict[str, Any]:
    """Return the JSON schema of a job file, for editors. `configs/jobspec.schema.json` is a copy."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **JobSpec.model_json_schema(),
    }


def _validated(data: Mapping[str, Any], document: yaml.Document | None) -> JobSpec:
    spec = validate(JobSpec, data, document, of="a job file")
    if wrong_part := _contradiction(spec):
        raise bad_spec([wrong_part], document)
    size = len(json.dumps(dump(spec)))
    if size > MAX_RECORD:
        text = (
            f"the job takes {size:,} characters, more than {MAX_RECORD:,}; put long texts into code"
        )
        raise bad_spec([Problem((), text)], document)
    parts = (spec.name, spec.array, spec.matrix, spec.exclude, spec.at_once)
    wrong = [*group.problems(*parts), *group.problems_of_command(spec.run.command, spec.matrix)]
    if wrong:
        raise bad_spec(wrong, document)
    return spec


def _contradiction(spec: JobSpec) -> Problem | None:
    """Return what contradicts another part of the file; None: nothing does."""
    if spec.env and spec.env.kind in FROM_FILE and spec.code is None:
        text = f"{spec.env.source[:100]} is read from code, which is not given; add `code: .`"
        return Problem(("env", spec.env.kind), text)
    if spec.tpu.run_for is not None and spec.tpu.run_for < (least := spec.stop_grace + 360):
        grace, wanted = kinds.time_text(spec.stop_grace), kinds.time_text(least)
        text = f"must be at least {wanted}, as stop_grace takes {grace} of it and a stop comes a minute before the end"
        return Problem(("tpu", "run_for"), text)
    if spec.finish_by is not None and (cannot := _unsafe(spec.tpu.pricings)):
        text = f"cannot be kept {cannot}; give `pricing: [spot, on-demand]`"
        return Problem(("finish_by",), text)
    says_so = spec.run.env.get(ELASTIC) == "1" or spec.run.workload in TRAININGS
    if spec.tpu.elastic and not says_so:
        text = (
            "the program must go on from its checkpoint with another number of chips; if it can, say so: "
            f"run.env: {{{ELASTIC}: 1}}"
        )
        return Problem(("tpu", "elastic"), text)
    return None


def _unsafe(pricings: Collection[str]) -> str:
    """Return why no deadline can be kept on these terms; empty: one can."""
    terms = [find_pricing(name) for name in pricings]
    if all(one.preemptible for one in terms):
        return "on slices that may be preempted alone"
    ending = [one.name for one in terms if one.ends_by_itself]
    return f"on {ending[0]} slices, which end at a time of their own" if ending else ""
