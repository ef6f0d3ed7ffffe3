"""The job file: its keys, the errors of a wrong file, and its JSON form, which loses nothing."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden import golden
from tests.support.paths import ROOT
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
outputs: [runs/last/, résumés, runs/last, {folder: ckpt, from: 0}]
after: [train, {job: "000012", on: end}, {job: sweep, each: true}]
priority: high
share: vision
start: held
not_before: 2026-12-01T09:00Z
time: 4h
max_time: 12h
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
            "run_for": None,
            "reservation": "",
            "allow_cross_region": False,
            "elastic": False,
            "runtime_version": None,
            "slices": 1,
            "race": None,
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
            "nonfinite_steps": 20,
            "bad_hosts": 10,
            "preflights": 5,
            "busy": 3,
            "memory": 1,
            "restarts": 10,
            "planned_ends": 0,
            "attempts": None,
            "stall": "15m",
            "on_bad_host": "swap",
            "wait": None,
        },
        "watch": {
            "trainer": None,
            "nonfinite": None,
            "progress": [],
            "checkpoint": None,
            "resume": None,
        },
        "preflight": True,
        "hold": "15m",
        "stop_grace": "30s",
        "check": None,
        "budget": None,
        "notify": [],
        "after": [],
        "priority": "normal",
        "hand_on": True,
        "share": "",
        "start": "now",
        "not_before": None,
        "time": None,
        "max_time": None,
        "finish_by": None,
        "array": None,
        "matrix": None,
        "exclude": [],
        "at_once": None,
    }


def test_every_key_is_understood() -> None:
    spec = load(FULL, "job.yaml")
    assert spec.tpu.types == ("v5litepod-16", "v6e-16")
    assert spec.tpu.zones == ("us-east5-a", "us-east5-b")
    assert spec.run.args == {"steps": 300, "lr": 0.001, "dataset": "digits", "shuffle": True}
    assert (spec.recovery.preemptions, spec.recovery.failures) == (7, 0)
    assert (spec.hold, spec.stop_grace) == (5400, 0)
    assert [(o.folder, o.source) for o in spec.outputs] == [
        ("runs/last", None),
        ("résumés", None),
        ("ckpt", 0),
    ]
    edges = [(edge.job, edge.on, edge.each) for edge in spec.after]
    assert edges == [
        ("train", "success", False),
        ("000012", "end", False),
        ("sweep", "success", True),
    ]
    assert (spec.priority, spec.share, spec.start) == ("high", "vision", "held")
    assert (spec.not_before, spec.time, spec.max_time) == (1796115600.0, 4 * 3600, 12 * 3600)
    assert parse(json.loads(json.dumps(dump(spec)))) == spec


@given(st.integers(0, 7 * 86400))
def test_times_survive_their_text(seconds: int) -> None:
    assert fields.seconds(fields.time_text(seconds)) == seconds


ARGS = st.dictionaries(
    st.from_regex(r"[a-z][a-z0-9_]{0,10}", fullmatch=True),
    st.text(max_size=20)
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False),
    max_size=4,
)


@given(ARGS)
def test_the_json_form_loses_nothing(args: dict[str, Any]) -> None:
    run = {"workload": "mlp", "args": args}
    try:
        spec = parse({"name": "a", "tpu": {"type": "v4-8"}, "run": run})
    except BadSpec as error:
        refused = error.message
    else:
        refused = ""
        assert parse(json.loads(json.dumps(dump(spec)))) == spec
    assert not refused or "NUL or half a character" in refused


# What is refused -----------------------------------------------------------------------------------------------------


HUNDRED = str([*range(100)])
#: lines that are wrong after `MINIMAL`
WRONG_LINES = (
    # env and mounts
    "env: {uv: r.txt}",
    "env: {}",
    "env: {uv: a, pip: b}",
    "env: uv",
    "env: {FOO: bar}",
    "env: {uvv: x}",
    "env: {docker: ../x}",
    "env: {docker: --privileged}",
    "env: {uv: ../x}",
    "env: {uv: x, python: 3.11}",
    "env: {docker: x, python: '3.11'}",
    "env: {uv: x, args: [a]}",
    "env: {docker: x, args: 3}",
    f"env: {{docker: x, args: [{'a, ' * 51}]}}",
    f"mounts: [{'{}, ' * 51}]",
    "mounts: [{bucket: gs://lab, to: ~/d, only_dir: a/../b}]",
    "mounts: [{bucket: gs://lab, to: ~/d, read_only: 1}]",
    "mounts: 3",
    "mounts: [{}]",
    "mounts: [{bucket: gs://x/y, to: ~/d}]",
    "mounts: [{bucket: gs://lab, to: /}]",
    "mounts: [{bucket: gs://lab, to: ~/.tpujob/x}]",
    "mounts: [{bucket: gs://lab, to: ~/../x}]",
    "mounts: [{bucket: gs://lab, to: ~/d, cach: 1}]",
    "mounts: [{bucket: gs://lab, to: ~/d, cache: {size: 50}}]",
    "mounts: [{bucket: gs://a-b, to: ~/d}, {bucket: gs://a-b, to: ~/d/e}]",
    "only_dir: d",
    # data
    "data: 7",
    "data: ftp://x/y",
    "data: gs://",
    "data: {from: gs://, to: x}",
    "data: ''",
    "data: {from: gs://a/x, to: a/b}",
    "data: {from: gs://a/x, stage: dsk}",
    "data: {frm: gs://a/x}",
    "data: [gs://a/x, s3://b/x]",
    "data: [{from: gs://a/x, to: a-b}, {from: gs://a/y, to: a.b}]",
    # outputs
    "outputs: /tmp/out",
    "outputs: ~/out",
    "outputs: ../out",
    "outputs: a/../b",
    "outputs: .",
    "outputs: ''",
    "outputs: a//b",
    'outputs: "a\\nb"',
    "outputs: 7",
    "outputs: {a: 1}",
    "outputs: [runs, runs/last]",
    "outputs: [runs, {folder: runs/last, from: 0}]",
    "outputs: [runs, {folder: runs, from: 0}]",
    "outputs: $CKPT_DIR",
    "outputs: [logs, '{lr}/x']",
    "outputs: runs/~",
    "outputs: ckpt/*",
    "outputs: {folder: ckpt, from: 1}",
    "outputs: {folder: ckpt, from: true}",
    "outputs: {from: 0}",
    "outputs: {folder: ckpt, host: 0}",
    # the queue
    "after: 7",
    "after: [a, {job: a, on: end}]",
    "after: {job: a, on: done}",
    "after: {on: end}",
    "priority: urgent",
    "start: later",
    "not_before: 2026-12-01T09:00",
    "not_before: tomorrow",
    "share: Vision",
    "time: 4",
    # arrays and sweeps
    "matrix: {}",
    "matrix: {lr: []}",
    "matrix: {lr: 1}",
    "matrix: {lr: [1, 1]}",
    "matrix: {l-r: [1]}",
    "matrix: {index: [1]}",
    "matrix: {lr: [1], LR: [2]}",
    "matrix: {lr: [1]}\nexclude: [{lr: 1}]",
    "matrix: {lr: [1]}\nexclude: [{lr: 2}]",
    "matrix: {lr: [1]}\nexclude: [{x: 2}]",
    "exclude: [{lr: 1}]",
    "at_once: 2",
    "array: 3\nmatrix: {lr: [1]}",
    "array: {count: 3, at_once: 1}\nat_once: 2",
    "array: 10001",
    f"matrix: {{a: {HUNDRED}, b: {HUNDRED}, c: [1, 2]}}",
    f"matrix: {{a: {HUNDRED}, b: {HUNDRED}, c: {HUNDRED}}}",
    "array: 0-9%0",
    "array: 0-99:5",
    "array: 5-9",
)

WRONG = (
    with_line("zones: [a]"),
    with_line("setpu: x"),
    with_line("'<script>': x"),
    with_line("budget: 3"),
    with_line("budget: {usd: 0}"),
    with_line("budget: {usd: .nan}"),
    with_line("budget: {usd: 50 EUR}"),
    with_line("budget: {usd: true}"),
    with_line("budget: {eur: 3}"),
    with_line("notify: [Lab!]"),
    with_line("finish_by: 2026-12-01"),
    MINIMAL.replace("type: v4-16", "type: v4-16\n  slices: 65"),
    MINIMAL.replace("type: v4-16", "type: v4-16\n  slices: 0"),
    with_line("  secrets: [a-b]"),
    with_line("  secrets: [TPUJOB_KEY]"),
    with_line("  secrets: {A: b}"),
    with_line(f"  secrets: [{', '.join(f'A{n}' for n in range(21))}]"),
    with_line("  env: {HF_TOKEN: x}\n  secrets: [HF_TOKEN]"),
    "name: a\n",
    MINIMAL.replace("hello\ntpu", "3\ntpu"),
    MINIMAL.replace("hello\ntpu", "$(reboot)\ntpu"),
    MINIMAL.replace("hello\ntpu", "a" * 41 + "\ntpu"),
    MINIMAL.replace("hello\ntpu", '"\\e[2J"\ntpu'),
    MINIMAL.replace("hello\ntpu", '"a\\n"\ntpu'),
    MINIMAL.replace("v4-16", "v4-15"),
    MINIMAL.replace("v4-16", "[]"),
    MINIMAL.replace("v4-16", "{a: b}"),
    MINIMAL.replace("v4-16", "tpu7x-8"),
    MINIMAL.replace("v4-16", "tpu8t-16"),
    "name: a\ntpu: v4-8\nrun: {command: x}\n",
    "name: a\ntpu: {type: v4-8}\nrun:\n",
    "name: a\ntpu: {type: v4-8, pricing: preemptible}\nrun: {command: x}\n",
    "name: a\ntpu: {type: v4-8, zones: [us-central2b]}\nrun: {command: x}\n",
    "name: a\ntpu: {type: [v4-8, v3-8], slices: 2}\nrun: {command: x}\n",
    *(
        f"name: a\ntpu: {{type: {tpu}}}\nrun: {{command: x}}\nstop_grace: 10m\n"
        for tpu in (
            "v6e-8, pricing: flex-start",
            "v6e-8, pricing: flex-start, run_for: 5m",
            "v6e-8, pricing: flex-start, run_for: 8d",
            "v6e-8, pricing: flex-start, run_for: 15m",
            "v6e-8, run_for: 6h",
            "v6e-8, pricing: calendar",
            "v6e-8, pricing: calendar, reservation: my lab",
            "v6e-8, reservation: lab",
            "[v6e-8, v4-8], pricing: flex-start, run_for: 6h",
            "v4-8, pricing: calendar, reservation: lab",
        )
    ),
    *(
        f"name: a\ntpu: {{type: v6e-8, pricing: {pricing}}}\nrun: {{command: x}}\nfinish_by: 2026-12-01T09:00Z\n"
        for pricing in (
            "[spot, flex-start]",
            "[spot, calendar], reservation: lab",
            "[spot, reserved], race: 2",
        )
    ),
    "name: a\ntpu: {type: [v4-8, v5p-8], runtime_version: x}\nrun: {command: x}\n",
    "name: a\ntpu: {type: v4-8}\nrun: {}\n",
    "name: a\ntpu: {type: v4-8}\nrun: {workload: mlp, command: x}\n",
    with_line("  args: {a: 1}"),
    MINIMAL.replace("command: echo hello", "workload: mpl"),
    MINIMAL.replace("echo hello", "''"),
    MINIMAL.replace("echo hello", "[echo]"),
    MINIMAL.replace("echo hello", '"a\\0b"'),
    MINIMAL.replace("echo hello", "x" * 20_000),
    with_line("  env: {A: null}"),
    with_line("  env: {A: }"),
    with_line("  env: {A: [1]}"),
    with_line("<<: {}"),
    with_line("x-common: {}"),
    with_line("  env: {'a b': x}"),
    with_line("  env: {TPUJOB_HOST: x}"),
    with_line("  env: [A=1]"),
    MINIMAL.replace("command: echo hello", "workload: mlp\n  args: {Steps: 1, a: [1], b: .nan}"),
    with_line("hold: 15"),
    with_line("hold: 8d"),
    with_line("hold: ''"),
    with_line("recovery: {failures: -1}"),
    with_line("recovery: {failures: true}"),
    with_line("code: [.]"),
    with_line(r"watch: {checkpoint: 'saved step \d+'}"),
    with_line("watch: {nonfinite: 'loss=(nan'}"),
    with_line("watch: {progress: '.*'}"),
    with_line("watch: {progress: ['step 1', '(']}"),
    with_line("watch: hugging"),
    with_line("watch: 3"),
    with_line("watch: true"),
    with_line("watch: {trainer: kears}"),
    with_line("recovery: {on_bad_host: keep}"),
    with_line("recovery: {wait: 12}"),
    with_line("recovery: {wait: 91d}"),
    with_line("preflight: 'no'"),
    MINIMAL.replace("v4-16", f"[{', '.join(['v4-16'] * 51)}]"),
    with_line("  env: {" + ", ".join(f"A{i}: x" for i in range(101)) + "}"),
    *map(with_line, WRONG_LINES),
)


def test_a_wrong_value_is_reported_with_its_place_and_what_is_allowed() -> None:
    golden("job-file-errors", "\n".join(refusal(text) for text in WRONG))


@pytest.mark.parametrize(
    ("text", "key"),
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
def test_values_just_within_the_limits_are_accepted(text: str, key: str) -> None:
    assert dump(load(text, "job.yaml"))[key] != dump(load(MINIMAL, "job.yaml"))[key]


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
        "Allowed in tpu: allow_cross_region, elastic, pricing, race, reservation, run_for, runtime_version, slices, "
        "type, zones"
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
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
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
