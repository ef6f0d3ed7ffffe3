"""The job file: what it may say, what is answered when it says something else, and that its JSON form loses nothing."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.paths import ROOT
from tpujob.domain.hardware import accelerators
from tpujob.domain.spec import fields
from tpujob.domain.spec.jobspec import (
    WORKLOADS,
    JobSpec,
    Recovery,
    Run,
    Tpu,
    dump,
    load,
    parse,
    schema,
)
from tpujob.errors import BadSpec

MINIMAL = """\
name: hello
tpu:
  type: v4-16
run:
  command: echo hello
"""

FULL = """\
name: digits-2
tpu:
  type: [v5e-16, v6e-16]
  zones: [us-east5-a, us-east5-b]
  pricing: on-demand
run:
  workload: mlp
  args: {steps: 300, lr: 1e-3, dataset: digits, shuffle: true}
  env: {TOKENIZERS_PARALLELISM: "false"}
code: .
setup: uv pip install -r requirements.txt
recovery: {preemptions: 7, failures: 0}
hold: 1h30m
stop_grace: 0s
"""


def refusal(text: str) -> str:
    with pytest.raises(BadSpec) as error:
        load(text, "job.yaml")
    return error.value.message


def with_line(line: str) -> str:
    return MINIMAL + line + "\n"


# What a file says ----------------------------------------------------------------------------------------------------


def test_three_keys_are_enough_and_the_rest_has_defaults() -> None:
    assert dump(load(MINIMAL, "job.yaml")) == {
        "name": "hello",
        "tpu": {
            "type": ["v4-16"],
            "zones": [],
            "pricing": "spot",
            "allow_cross_region": False,
            "runtime_version": None,
            "slices": 1,
        },
        "run": {"workload": None, "args": {}, "command": "echo hello", "env": {}, "secrets": []},
        "code": None,
        "env": None,
        "mounts": [],
        "outputs": [],
        "data": [],
        "setup": None,
        "recovery": {
            "preemptions": 100,
            "failures": 3,
            "hangs": 3,
            "nonfinite": 3,
            "stall": "15m",
            "on_bad_host": "swap",
            "wait": None,
        },
        "watch": {"nonfinite": None, "progress": None, "checkpoint": None, "resume": None},
        "preflight": True,
        "hold": "15m",
        "stop_grace": "30s",
        "budget": None,
        "notify": [],
    }


def test_every_key_is_understood() -> None:
    spec = load(FULL, "job.yaml")
    assert spec.tpu.types == ("v5litepod-16", "v6e-16")
    assert spec.tpu.zones == ("us-east5-a", "us-east5-b")
    assert spec.run.args == {"steps": 300, "lr": 0.001, "dataset": "digits", "shuffle": True}
    assert (spec.recovery.preemptions, spec.recovery.failures) == (7, 0)
    assert (spec.hold, spec.stop_grace) == (5400, 0)
    assert parse(json.loads(json.dumps(dump(spec)))) == spec


@given(st.integers(0, 7 * 86400))
def test_times_survive_their_text(seconds: int) -> None:
    assert fields.seconds(fields.time_text(seconds)) == seconds


def _jobs() -> st.SearchStrategy[dict[str, Any]]:
    value = st.one_of(
        st.text(max_size=20),
        st.integers(-(2**63) + 1, 2**63 - 1),
        st.booleans(),
        st.floats(allow_nan=False, allow_infinity=False),
    )
    word = st.from_regex(r"[a-z][a-z0-9_]{0,10}", fullmatch=True)
    return st.fixed_dictionaries(
        {
            "name": st.from_regex(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True),
            "tpu": st.fixed_dictionaries({"type": st.sampled_from(list(accelerators.ALL))}),
            "run": st.fixed_dictionaries(
                {
                    "workload": st.sampled_from(WORKLOADS),
                    "args": st.dictionaries(word, value, max_size=4),
                }
            ),
        },
        optional={"hold": st.integers(0, 7 * 86400).map(fields.time_text)},
    )


@given(_jobs())
def test_the_json_form_loses_nothing(data: dict[str, Any]) -> None:
    try:
        spec = parse(data)
    except BadSpec as error:
        refused = error.message
    else:
        refused = ""
        assert parse(json.loads(json.dumps(dump(spec)))) == spec
    assert not refused or "NUL or half a character" in refused


# What is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            with_line("zones: [a]"),
            "job.yaml:6: zones: no such key; did you mean tpu.zones? Allowed",
        ),
        (with_line("setpu: x"), "job.yaml:6: setpu: no such key; did you mean setup?"),
        (with_line("'<script>': x"), "job.yaml:6: '<script>': no such key. Allowed in a job file:"),
        (with_line("budget: 3"), "job.yaml:6: budget: must be a mapping with keys of usd; not the"),
        (with_line("budget: {usd: 0}"), "job.yaml:6: budget.usd: must be from 0.01 to 100,000,000"),
        (with_line("budget: {usd: -3}"), "US dollars, not the number -3"),
        (with_line("budget: {usd: .nan}"), "US dollars, not the number nan"),
        (with_line("budget: {usd: .inf}"), "US dollars, not the number inf"),
        (with_line("budget: {usd: 50 EUR}"), "such as 50 or 12.50, not the text '50 EUR'"),
        (with_line("budget: {usd: true}"), "budget.usd: must be a number of US dollars"),
        (with_line("budget: {eur: 3}"), "budget.eur: no such key. Allowed in budget: usd"),
        (with_line("budget: {}"), "budget.usd: is missing, and required"),
        (
            with_line("notify: [Lab!]"),
            "job.yaml:6: notify: must be the name of a channel: 2 to 40 of a-z, 0-9 and -, not 'Lab!'",
        ),
        (
            with_line("finish_by: 2026-12-01"),
            "finish_by: not supported yet. Allowed in a job file:",
        ),
        (
            MINIMAL.replace("type: v4-16", "type: v4-16\n  slices: 65"),
            ":4: tpu.slices: must be from 1 to 64, not the number 65",
        ),
        (
            MINIMAL.replace("type: v4-16", "type: v4-16\n  slices: 0"),
            ":4: tpu.slices: must be from 1 to 64, not the number 0",
        ),
        (
            MINIMAL.replace("type: v4-16", "type: v4-16\n  slices: '2'"),
            ":4: tpu.slices: must be a whole number, not the text '2'",
        ),
        (with_line("finish_by: monday"), "job.yaml:6: finish_by: not supported yet"),
        (with_line("  secrets: [a-b]"), "job.yaml:6: run.secrets: must be letters, digits and _"),
        (with_line("  secrets: [TPUJOB_KEY]"), "run.secrets: must not begin with TPUJOB_"),
        (with_line("  secrets: {A: b}"), "run.secrets: must be the name of a secret or a list of"),
        (
            with_line(f"  secrets: [{', '.join(f'A{n}' for n in range(21))}]"),
            "run.secrets: must list at most 20, not 21",
        ),
        (
            with_line("  env: {HF_TOKEN: x}\n  secrets: [HF_TOKEN]"),
            "run: HF_TOKEN is in env and in secrets; keep it in secrets alone",
        ),
        ("name: a\n", "job.yaml:1: tpu: is missing, and required"),
        (
            MINIMAL.replace("hello\ntpu", "3\ntpu"),
            "name: must be text, not the number 3; put it in",
        ),
        (MINIMAL.replace("hello\ntpu", "$(reboot)\ntpu"), "not '$(reboot)'"),
        (MINIMAL.replace("hello\ntpu", "<script>\ntpu"), "name: must be 1 to 40 of a-z, 0-9 and -"),
        (MINIMAL.replace("hello\ntpu", "a" * 41 + "\ntpu"), "name: must be 1 to 40"),
        (MINIMAL.replace("hello\ntpu", '"\\e[2J"\ntpu'), r"not '\x1b[2J'"),
        (MINIMAL.replace("hello\ntpu", '"a\\n"\ntpu'), "name: must be 1 to 40"),
        (
            MINIMAL.replace("v4-16", "v4-15"),
            "job.yaml:3: tpu.type: v4-15: no such type; nearest: v4-16",
        ),
        (MINIMAL.replace("v4-16", "[]"), "tpu.type: must name at least one accelerator type"),
        (MINIMAL.replace("v4-16", "{a: b}"), "tpu.type: must be an accelerator type or a list of"),
        (MINIMAL.replace("v4-16", "tpu7x-8"), "Compute Engine"),
        (
            "name: a\ntpu: v4-8\nrun: {command: x}\n",
            "job.yaml:2: tpu: must be a mapping with keys of",
        ),
        (
            "name: a\ntpu: {type: v4-8}\nrun:\n",
            "job.yaml:3: run: must be a mapping with keys of args",
        ),
        (
            "name: a\ntpu: {type: v4-8, pricing: preemptible}\nrun: {command: x}\n",
            "tpu.pricing: preemptible is no pricing; allowed: spot, on-demand, reserved",
        ),
        (
            "name: a\ntpu: {type: v4-8, zones: [us-central2b]}\nrun: {command: x}\n",
            "tpu.zones: us-central2b is no zone with TPUs; did you mean us-central2-b",
        ),
        (
            "name: a\ntpu: {type: [v4-8, v3-8], slices: 2}\nrun: {command: x}\n",
            "job.yaml:2: tpu: slices must be 1 with v3: Multislice needs v4 or later",
        ),
        (
            "name: a\ntpu: {type: [v4-8, v5p-8], runtime_version: x}\nrun: {command: x}\n",
            "runtime_version cannot fit types of several generations (v4, v5p)",
        ),
        (
            "name: a\ntpu: {type: v4-8}\nrun: {}\n",
            "job.yaml:3: run: needs exactly one of workload and command, but neither is given",
        ),
        (
            "name: a\ntpu: {type: v4-8}\nrun: {workload: mlp, command: x}\n",
            "needs exactly one of workload and command, but both are given",
        ),
        (with_line("  args: {a: 1}"), "run: args go with workload"),
        (
            MINIMAL.replace("command: echo hello", "workload: mpl"),
            "no bundled workload; allowed: lm, mlp",
        ),
        (MINIMAL.replace("echo hello", "''"), "run.command: must not be empty"),
        (MINIMAL.replace("echo hello", "[echo]"), "run.command: must be text, not a list"),
        (MINIMAL.replace("echo hello", '"a\\0b"'), "run.command: must not hold a NUL"),
        (
            MINIMAL.replace("echo hello", "x" * 20_000),
            "must have at most 16,384 characters, not 20,000",
        ),
        (with_line("  env: {A: 1}"), "run.env.A: must be text, not the number 1; put it in quotes"),
        (with_line("  env: {'a b': x}"), "run.env.'a b': the name must be letters, digits and _"),
        (with_line("  env: {TPUJOB_HOST: x}"), "must not begin with TPUJOB_"),
        (
            with_line("  env: [A=1]"),
            "run.env: must be a mapping of variable names to values, not a list",
        ),
        (
            MINIMAL.replace(
                "command: echo hello", "workload: mlp\n  args: {Steps: 1, a: [1], b: .nan}"
            ),
            "job.yaml:6: run.args.Steps: the name must be a-z, 0-9 and _",
        ),
        (
            with_line("hold: 15"),
            "hold: must be a time with its unit, such as 90s, 15m or 1h30m, not",
        ),
        (with_line("hold: 8d"), "hold: must be at most 7d, not 8d"),
        (with_line("hold: ''"), "hold: must be a time with its unit"),
        (with_line("recovery: {failures: -1}"), "recovery.failures: must be from 0 to 1,000"),
        (
            with_line("recovery: {failures: true}"),
            "recovery.failures: must be a whole number, not true",
        ),
        (with_line("code: [.]"), "code: must be text, not a list"),
        (
            with_line(r"watch: {checkpoint: 'saved step \d+'}"),
            r"watch.checkpoint: has no group that names the step: write '(?P<step>\d+)' where it stands",
        ),
        (
            with_line("watch: {nonfinite: 'loss=(nan'}"),
            "watch.nonfinite: is no regular expression: missing ), unterminated subpattern",
        ),
        (
            with_line("watch: {progress: '.*'}"),
            "watch.progress: must not match an empty line, as it would match every line",
        ),
        (
            with_line("recovery: {on_bad_host: keep}"),
            "recovery.on_bad_host: keep is no way to treat it; allowed: swap, release",
        ),
        (with_line("recovery: {wait: 12}"), "recovery.wait: must be a time with its unit"),
        (with_line("recovery: {wait: 91d}"), "recovery.wait: must be at most 90d, not 91d"),
        (
            with_line("preflight: 'no'"),
            "job.yaml:6: preflight: must be true or false, not the text 'no'",
        ),
        (
            MINIMAL.replace("v4-16", f"[{', '.join(['v4-16'] * 51)}]"),
            "tpu.type: must list at most 50, not 51",
        ),
        (
            with_line("  env: {" + ", ".join(f"A{i}: x" for i in range(101)) + "}"),
            "run.env: must have at most 100 entries, not 101",
        ),
        *(
            (MINIMAL.replace("command: echo hello", f"workload: mlp\n  args: {{a: {value}}}"), says)
            for value, says in (
                (".inf", "run.args.a: must be a finite number, not inf"),
                ("[1]", "run.args.a: must be text, a number, true or false, not a list"),
            )
        ),
    ],
)
def test_a_wrong_value_is_reported_with_its_place_and_what_is_allowed(text: str, says: str) -> None:
    assert says in refusal(text)


@pytest.mark.parametrize(
    ("text", "of_one"),
    [
        (MINIMAL.replace("hello\ntpu", "a" * 40 + "\ntpu"), "name"),
        (MINIMAL.replace("type: v4-16", "type: v4-16\n  slices: 64"), "tpu"),
        (MINIMAL.replace("echo hello", "x" * 16_384), "run"),
        (MINIMAL.replace("v4-16", f"[v4-8{', v4-16' * 49}]"), "tpu"),
        (with_line("  env: {" + ", ".join(f"A{i}: x" for i in range(100)) + "}"), "run"),
        (
            with_line("recovery: {failures: 1000, preemptions: 10000, wait: 90d, stall: 7d}"),
            "recovery",
        ),
        (with_line("hold: 7d"), "hold"),
        (with_line("stop_grace: 10m"), "stop_grace"),
    ],
)
def test_values_just_within_the_limits_are_accepted(text: str, of_one: str) -> None:
    assert dump(load(text, "job.yaml"))[of_one] != dump(load(MINIMAL, "job.yaml"))[of_one]


def test_all_errors_are_reported_at_once_in_the_order_of_the_file() -> None:
    message = refusal(
        "name: A\ntpu: {type: v4-15}\nbudget: 3\nrun:\n  workload: mlp\n  args:\n    A: 1\nhold: 3\n"
    )
    places = [line.split(" ")[:2] for line in message.splitlines()]
    assert places == [
        ["job.yaml:1:", "name:"],
        ["job.yaml:2:", "tpu.type:"],
        ["job.yaml:3:", "budget:"],
        ["job.yaml:7:", "run.args.A:"],
        ["job.yaml:8:", "hold:"],
    ]


def test_a_thousand_wrong_keys_do_not_fill_the_screen() -> None:
    message = refusal(MINIMAL + "".join(f"key{i}: 1\n" for i in range(1000)))
    assert message.count("\n") == 20
    assert message.endswith("... and 980 more")


def test_a_spec_that_no_store_could_keep_is_refused() -> None:
    env = "\n".join(f"    A{i}: &x {'y' * 8000}" if i == 0 else f"    A{i}: *x" for i in range(90))
    assert "put long texts into code" in refusal(MINIMAL + "  env:\n" + env + "\n")


def test_a_spec_from_a_client_is_checked_the_same_way() -> None:
    with pytest.raises(BadSpec) as error:
        parse({"name": "a", "tpu": {"type": "v4-8", "zone": "x"}, "run": {"command": "x"}})
    assert error.value.message == (
        "tpu.zone: no such key; did you mean zones? "
        "Allowed in tpu: allow_cross_region, pricing, runtime_version, slices, type, zones"
    )
    for number in (2**63, -(2**63)):
        program = {"workload": "mlp", "args": {"seed": number}}
        with pytest.raises(BadSpec, match=r"run\.args\.seed: must fit in 64 bits"):
            parse({"name": "a", "tpu": {"type": "v4-8"}, "run": program})


#: Words of pydantic and Python that say nothing to the writer of a job file.
JARGON = re.compile(
    r"input|permitted|pydantic|valid (string|integer|dict|tuple)|validator|NoneType|Error|\bdict\b|<class|type=",
    re.I,
)


KEYS = [key for part in (JobSpec, Tpu, Run, Recovery) for key in part.model_fields] + ["type", "x"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text("ab-<\n\0é\ud800"),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(KEYS),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ),
    st.sampled_from(["name", "tpu", "run", "recovery", "hold", "code", "setup", "other"]),
)
def test_any_invalid_spec_is_one_error_of_our_own(value: Any, key: str) -> None:
    data: dict[str, Any] = {
        "name": "a",
        "tpu": {"type": "v4-8"},
        "run": {"command": "x"},
        key: value,
    }
    try:
        spec = parse(data)
    except BadSpec as error:
        refused = error.message
    else:
        refused = ""
        assert parse(dump(spec)) == spec
    assert not JARGON.search(refused), refused


# Files beside it -----------------------------------------------------------------------------------------------------


def test_the_schema_in_configs_is_up_to_date() -> None:
    written = json.loads((ROOT / "configs/jobspec.schema.json").read_text(encoding="utf-8"))
    assert written == schema(), "run: tpujob schema > configs/jobspec.schema.json"


def test_the_schema_describes_every_key() -> None:
    parts = {"JobSpec": schema(), **schema()["$defs"]}
    for part, described in parts.items():
        assert described["additionalProperties"] is False, part
        for key, value in described["properties"].items():
            assert "description" in value or "$ref" in value, f"{part}.{key}"
    assert set(schema()["properties"]) == set(JobSpec.model_fields)


def test_the_named_workloads_are_those_in_the_folder() -> None:
    folder = ROOT / "workloads"
    packages = {path.parent.name for path in folder.glob("*/__main__.py")}
    modules = {
        path.stem
        for path in folder.glob("*.py")
        if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
    }
    assert set(WORKLOADS) == packages | modules
