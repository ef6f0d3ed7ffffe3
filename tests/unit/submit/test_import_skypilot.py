"""SkyPilot's task YAML as job files: a dozen files as people write them, and what has no equal."""

from typing import Any

import pytest

from tpujob.domain.spec import jobspec, yaml
from tpujob.errors import BadSpec
from tpujob.submit.import_plan import text_of
from tpujob.submit.skypilot import read_skypilot

V6E = "resources: {accelerators: tpu-v6e-8, use_spot: true}\n"


def spec_of(text: str, **env: str) -> dict[str, Any]:
    """The one job of a file, as its job file is read back."""
    (draft,) = read_skypilot(text, "task.yaml", env).jobs
    jobspec.load(text_of(draft), draft.name)
    data = yaml.load(text_of(draft), draft.name).data
    assert data == draft.spec
    return data


def notes(text: str, **env: str) -> dict[tuple[str, str], str]:
    plan = read_skypilot(text, "task.yaml", env)
    return {(note.key, note.outcome): note.text for note in plan.notes}


@pytest.mark.parametrize(
    ("resources", "type", "zones", "pricing"),
    [
        ("{accelerators: tpu-v6e-8}", "v6e-8", None, "on-demand"),
        ("{accelerators: 'tpu-v6e-8:1', use_spot: true}", "v6e-8", None, "spot"),
        ("{accelerators: [tpu-v5p-8, tpu-v6e-8], use_spot: true}", ["v5p-8", "v6e-8"], None, "spot"),
        ("{accelerators: {tpu-v5p-8, tpu-v6e-8: 1}, use_spot: true}", ["v5p-8", "v6e-8"], None, "spot"),
        ("{infra: gcp/us-central2/us-central2-b, accelerators: tpu-v4-32, use_spot: true}",
         "v4-32", ["us-central2-b"], "spot"),
        ("{cloud: gcp, region: us-east5, accelerators: tpu-v5p-8, use_spot: true}",
         "v5p-8", ["us-east5-a", "us-east5-b", "us-east5-c"], "spot"),
        ("{ordered: [{accelerators: tpu-v6e-8, zone: us-east1-d}, {accelerators: tpu-v4-8}], use_spot: true}",
         ["v6e-8", "v4-8"], ["us-east1-d"], "spot"),
        ("{accelerators: tpu-v6e-8, any_of: [{infra: aws}, {use_spot: true}, {use_spot: false}]}",
         "v6e-8", None, "spot"),
    ],
)  # fmt: skip
def test_the_hardware_is_asked_for_in_the_same_order(
    resources: str, type: object, zones: object, pricing: str
) -> None:
    tpu = spec_of(f"resources: {resources}\nrun: x\n")["tpu"]
    assert (tpu["type"], tpu.get("zones"), tpu["pricing"]) == (type, zones, pricing)


def test_entries_that_are_left_out_or_differ_are_named() -> None:
    tpu = "accelerators: tpu-v6e-8, use_spot"
    aws = "{infra: aws, accelerators: A100}"
    entries = f"[{aws}, {{{tpu}: true}}, {{{tpu}: false}}]"
    texts = notes(f"resources: {{any_of: {entries}}}\nrun: x")
    assert "aws has no TPUs" in texts["resources.infra", "dropped"]
    assert "one pricing" in texts["resources.any_of", "question"]
    texts = notes("resources: {accelerators: [A100, tpu-v6e-8]}\nrun: x")
    assert "A100 is not a TPU" in texts["resources.accelerators", "dropped"]
    assert "on-demand" in texts["resources.accelerators", "warning"]


WHOLE = """\
name: Llama_3 8B
workdir: ~/src
num_nodes: 2
resources:
  accelerators: tpu-v6e-16
  use_spot: true
  image_id: docker:lab/train:latest
  priority: -5
  cpus: 8+
  labels: {team: vision}
  autostop: 10
  job_recovery: {strategy: FAILOVER, max_restarts_on_errors: 2, recover_on_exit_codes: [33]}
envs:
  LR: 1e-3
  SEED: 7
  BUCKET: lab-data
  TAG:
  HF_TOKEN: "hf-0123456789"
secrets:
  WANDB_API_KEY: null
file_mounts:
  /ckpt: {name: lab-ckpts, mode: MOUNT}
  /data: gs://${BUCKET}/c4/en/
  /code: ./more
  /s3: s3://lab/x
  /az: https2://x
setup: |
  pip install -r requirements.txt
run: |
  echo $SKYPILOT_NODE_RANK of ${SKYPILOT_NUM_NODES}
  MASTER=$(echo "$SKYPILOT_NODE_IPS" | head -n1) python3 train.py
"""


def test_a_whole_task_becomes_a_job_and_every_key_is_in_the_table() -> None:
    assert spec_of(WHOLE, TAG="x") == {
        "name": "llama-3-8b",
        "tpu": {"type": "v6e-16", "pricing": "spot", "slices": 2},
        "run": {
            "env": {"LR": "1e-3", "SEED": "7", "BUCKET": "lab-data", "TAG": "x"},
            "secrets": ["HF_TOKEN", "WANDB_API_KEY"],
            "command": "echo $TPUJOB_HOST of ${TPUJOB_HOSTS}\n"
            'MASTER=$(echo "$SKYPILOT_NODE_IPS" | head -n1) python3 train.py',
        },
        "env": {"docker": "lab/train:latest"},
        "recovery": {"failures": 2},
        "priority": "low",
        "setup": "pip install -r requirements.txt",
        "code": "~/src",
        "mounts": [
            {"bucket": "gs://lab-ckpts", "to": "/ckpt", "read_only": False},
            {"bucket": "gs://lab-data", "to": "/data", "read_only": True, "only_dir": "c4/en"},
        ],
        "data": [
            {"from": "./more", "to": "more", "stage": "disk"},
            {"from": "s3://lab/x", "to": "x", "stage": "disk"},
        ],
    }
    plan = read_skypilot(WHOLE, "task.yaml", {"TAG": "x"})
    assert "hf-0123456789" not in f"{plan}"
    lines = range(1, 1 + WHOLE.partition("  pip")[0].count("\n"))
    headings = {4, 13, 21}
    name_of_the_secret = 20
    assert {*lines} - {note.line for note in plan.notes} == headings | {name_of_the_secret}
    texts = {(note.key, note.outcome): note.text for note in plan.notes}
    for key, outcome, text in (
        ("resources.cpus", "dropped", "a type of TPU"),
        ("resources.labels", "dropped", "no such key"),
        ("resources.job_recovery.recover_on_exit_codes", "dropped", "exit code 75"),
        ("num_nodes", "warning", "Multislice"),
        ("run", "warning", "SKYPILOT_NODE_IPS has no equal"),
        ("file_mounts.'/data'", "kept", "not a copy"),
        ("file_mounts.'/code'", "question", "TPUJOB_DATA_MORE"),
        ("file_mounts.'/az'", "question", "left out"),
        ("envs.HF_TOKEN", "kept", "tpujob secret set HF_TOKEN"),
    ):
        assert text in texts[key, outcome]


def test_what_a_job_cannot_have_is_a_question_at_its_line_and_nothing_else_is_lost() -> None:
    kinds = {"~/.netrc": "keys", "./conf/x": "file", "./gone": "missing"}
    text = f"""\
{V6E}run: python x.py
file_mounts:
  ~/.netrc: ~/.netrc
  /x: ./conf/x
  /gone: ./gone
  ~/here: .
  /again/here: ..
  ./relative: gs://lab/x
  /var: gs://${{NONE}}
  /data: gs://lab
  /data/inner: gs://other
"""
    plan = read_skypilot(text, "t.yaml", kind_of=lambda path: kinds.get(path, "folder"))  # pyright: ignore[reportArgumentType]
    (job,) = plan.jobs
    assert job.spec["data"] == [
        {"from": ".", "to": "here", "stage": "disk"},
        {"from": "..", "to": "here-2", "stage": "disk"},
    ]
    assert job.spec["mounts"] == [{"bucket": "gs://lab", "to": "/data", "read_only": True}]
    texts = {note.line: note.text for note in plan.notes if note.outcome == "question"}
    assert {*texts} == {4, 5, 6, 7, 8, 9, 10, 12}
    for line, start in (
        (4, "left out, as private keys never go to hosts"),
        (5, "left out, as it is one file"),
        (6, "left out, as there is no folder ./gone"),
        (9, "left out: mounts[0].to: must be a folder such as"),
        (10, "left out: mounts[0].bucket: must be a bucket such as"),
        (12, "left out: mounts: /data/inner and /data overlap"),
    ):
        assert texts[line].startswith(start)


def test_the_software_of_the_tpu_is_kept() -> None:
    args = "accelerator_args: {runtime_version: v2-alpha-tpuv6e, tpu_vm: false}"
    text = f"resources: {{accelerators: tpu-v6e-8, use_spot: true, {args}}}\nrun: x\n"
    assert spec_of(text)["tpu"]["runtime_version"] == "v2-alpha-tpuv6e"
    assert "TPU Nodes" in notes(text)["resources.accelerator_args.tpu_vm", "warning"]
    for version in ("2.12.0", "2.5"):
        of_a_node = text.replace("v2-alpha-tpuv6e", version)
        assert "runtime_version" not in spec_of(of_a_node)["tpu"]
        note = notes(of_a_node)["resources.accelerator_args.runtime_version", "question"]
        assert note.startswith(f"left out: {version} is the TensorFlow of a TPU Node")
    both = text.replace("tpu-v6e-8", "[tpu-v6e-8, tpu-v4-8]")
    assert "runtime_version" not in spec_of(both)["tpu"]
    assert "left out" in notes(both)["resources.accelerator_args.runtime_version", "question"]


def test_spellings_of_types_and_values_of_variables() -> None:
    for type in ("TPU-v4-8", "tpuv4-8", "tpu-v4-8:1"):
        assert spec_of(f"resources: {{accelerators: '{type}'}}\nrun: x\n")["tpu"]["type"] == "v4-8"
    envs = "{A: 1e-5, B: 12345678901234567890, C: true, D: 010, WANDB_API_KEY: null}"
    run = spec_of(f"{V6E}envs: {envs}\nrun: cd ~/sky_workdir; x $SKYPILOT_TASK_ID\n")["run"]
    assert run["env"] == {"A": "1e-5", "B": "12345678901234567890", "C": "True", "D": "010"}
    assert (run["secrets"], run["command"]) == (
        ["WANDB_API_KEY"],
        "cd ~/sky_workdir; x $TPUJOB_JOB",
    )


def test_what_a_text_expects_of_skypilot_is_named_at_its_line() -> None:
    text = f"""\
{V6E}envs:
  CKPT: /home/gcpuser/sky_workdir/ckpt
  RANK: $SKYPILOT_NODE_RANK
setup: conda activate x; echo $SKYPILOT_SETUP_NODE_IPS
run: x $SKYPILOT_SETUP_NODE_RANK $SKYPILOT_TASK_IDS $TPU_NAME $MY_TPU_NAME ~/sky_workdir ~/sky_logs
"""
    warnings = [
        (n.line, n.text) for n in read_skypilot(text, "t.yaml").notes if n.outcome == "warning"
    ]
    assert [(line, text.partition(":")[0]) for line, text in warnings] == [
        (3, "there is no ~/sky_workdir"),
        (4, "SKYPILOT_NODE_RANK is TPUJOB_HOST here"),
        (5, "SKYPILOT_SETUP_NODE_IPS has no equal"),
        (5, "a TPU VM has no conda"),
        (6, "SKYPILOT_SETUP_NODE_RANK is TPUJOB_HOST in the text"),
        (6, "SKYPILOT_TASK_IDS has no equal"),
        (6, "TPU_NAME has no equal"),
        (6, "there is no ~/sky_workdir"),
        (6, "there is no ~/sky_logs"),
    ]
    own = f"{V6E}envs: {{TPU_NAME: mine}}\nrun: x $TPU_NAME\n"
    assert ("run", "warning") not in notes(own)


def test_storage_of_skypilot_is_read_where_it_is() -> None:
    text = f"""\
{V6E}run: x
file_mounts:
  /s3: {{name: lab, store: s3}}
  /ckpt: {{name: lab-ckpts, source: ~/ckpts}}
  /two: {{name: lab-two, source: [~/a, ~/b]}}
  /r2: {{name: lab, store: r2}}
"""
    spec = spec_of(text)
    assert [entry["from"] for entry in spec["data"]] == ["s3://lab", "~/ckpts"]
    assert "mounts" not in spec
    texts = notes(text)
    assert "in the bucket lab-ckpts" in texts["file_mounts.'/ckpt'", "warning"]
    assert texts["file_mounts.'/two'", "question"].startswith("left out: several sources")
    assert texts["file_mounts.'/r2'", "question"].endswith("left out")


def test_several_documents_run_one_after_another() -> None:
    text = f"name: pipe\n---\nname: prep\n{V6E}run: a\n---\n# the last\n{V6E}run: b\n"
    jobs = [
        (draft.name, draft.spec.get("after"), draft.place)
        for draft in read_skypilot(text, "p.yaml").jobs
    ]
    assert jobs == [("prep", None, "p.yaml:3"), ("pipe-2", ["prep"], "p.yaml:8")]


def test_a_repository_is_cloned_by_setup() -> None:
    spec = spec_of(f"{V6E}workdir: {{url: https://github.com/lab/nets, ref: v1}}\nrun: x\n")
    assert "git fetch -q --depth 1 https://github.com/lab/nets v1" in spec["setup"]
    assert spec["run"]["command"] == "cd ~/workdir\nx"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.yaml: there is no task in it"),
        ("run: x\n", "t.yaml:1: resources: asks for no TPU"),
        (f"{V6E}service: {{readiness_probe: /}}\nrun: x", "t.yaml:1: a job has `run`, and no `service`"),
        (f"{V6E}run: [x]", "t.yaml:2: run: must be text, not a list"),
        (f"{V6E}envs: {{A: , B: 1, C: }}\nrun: x", "t.yaml:2: envs.A: no value is given for A, C"),
        ("resources:\n  accelerators: A100:8\nrun: x", "t.yaml:2: resources.accelerators: asks for no TPU"),
        ("resources: {accelerators: tpu-v6e-8:2}\nrun: x", "t.yaml:1: resources.accelerators: "),
        ("resources: {accelerators: tpu-v6e-8, region: us-west4}\nrun: x",
         "t.yaml:1: resources.region: us-west4 has no v6e-8"),
        ("resources: {accelerators: tpu-v6e-8, infra: gcp/us-wets1}\nrun: x",
         "t.yaml:1: resources.infra: us-wets1 has no v6e-8"),
        (f"{V6E}run: x\nsecrets: [{{A: 1, B-C: 2}}]", "t.yaml:1: t cannot be"),
        (f"name: g\nexecution: parallel\n---\n{V6E}run: x", "t.yaml:2: execution: jobs that start"),
        (f"{V6E}run: x\n---\n{V6E}run: [y", "t.yaml:5: not valid YAML"),
    ],
)  # fmt: skip
def test_what_has_no_equal_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(BadSpec) as caught:
        read_skypilot(text, "t.yaml")
    assert caught.value.message.startswith(message)


def test_a_key_in_a_command_is_refused_and_never_shown() -> None:
    key = "ghp_" + "a1B2" * 9
    with pytest.raises(BadSpec) as caught:
        read_skypilot(f"{V6E}run: GH_TOKEN={key} ./train.sh\n", "t.yaml")
    assert caught.value.message == "t.yaml:1: t has a key in its text"
    assert key not in caught.value.hint
