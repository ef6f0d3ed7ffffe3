"""jobman's tasks, state and job YAMLs as job files: each form that is found in the field, and each trap."""

from typing import Any

import pytest

from tests.unit.submit.jobman_files import FILES, STATE, TASKS, WORKER
from tpujob.domain.spec import jobspec, yaml
from tpujob.errors import BadSpec
from tpujob.submit.import_plan import ImportPlan, text_of
from tpujob.submit.jobman import read_jobman

TASK = "accelerators: {{v4-8: {{tasks: [{}]}}}}\n"


def jobs(plan: ImportPlan) -> dict[str, dict[str, Any]]:
    """The specs by name, each as its file is read back."""
    specs = {}
    for draft in plan.jobs:
        assert yaml.load(text_of(draft), draft.name).data == draft.spec
        specs[draft.name] = draft.spec
    return specs


def notes(plan: ImportPlan, key: str) -> list[tuple[str, str]]:
    return [(note.outcome, note.text) for note in plan.notes if note.key == key]


def read(text: str, **options: Any) -> ImportPlan:
    return read_jobman({"tasks.yaml": text}, **options)


def test_a_labs_queue_becomes_job_files_that_load() -> None:
    plan = read_jobman(FILES)
    specs = jobs(plan)
    assert list(specs) == ["eval-seed42", "train-seed43", "small", "hello-world"]
    assert plan.done == ("train-seed42",)
    for draft in plan.jobs:
        jobspec.load(text_of(draft).replace("array: 2\n", ""), draft.name)
    assert specs["eval-seed42"] == {
        "name": "eval-seed42",
        "tpu": {
            "type": "v6e-64",
            "pricing": "spot",
            "runtime_version": "v2-alpha-tpuv6e",
            "zones": ["us-central1-b"],
        },
        "run": {
            "env": {"BUCKET_NAME": "lab-data"},
            "secrets": ["WANDB_API_KEY"],
            "command": 'cd ~/nets\n[ "$TPUJOB_HOST" = 0 ] || exit 0\nbash eval/run.sh',
        },
        "mounts": [
            {"bucket": "gs://lab-data", "to": "~/gcs", "read_only": False},
            {"bucket": "gs://lab-data", "to": "~/gcs-data", "read_only": False},
            {"bucket": "gs://lab-c4", "to": "/mnt/c4", "read_only": False},
        ],
        "env": {"uv": "requirements.txt", "python": "3.10"},
        "code": "assets",
        "setup": "(\nsudo apt-get install -y jq\n)\n"
        "test -d ~/nets || git clone --branch main https://github.com/lab/nets ~/nets",
        "recovery": {"failures": 2},
    }
    assert specs["small"]["array"] == 2
    assert specs["small"]["recovery"] == {"failures": 2}, "0 is read as 3"
    assert "git clone --branch main https://github.com/lab/other ~/other" in specs["small"]["setup"]
    assert specs["train-seed43"]["start"] == "held", "it had failed"
    assert specs["hello-world"] == {
        "name": "hello-world",
        "tpu": {"type": "v4-16", "pricing": "reserved", "zones": "us-central2-b"},
        "run": {"command": "echo us-central2-b\npython3 train.py"},
        "env": {"docker": "lab/image:latest"},
    }


def test_every_key_is_in_the_table_and_no_value_of_a_secret_anywhere() -> None:
    plan = read_jobman(FILES)
    noted = {(note.source, note.line) for note in plan.notes}
    for source, text in FILES.items():
        document = yaml.load(text, source)
        for path, line in document.lines.items():
            value: Any = document.data
            for part in path:
                value = value[part]
            of_a_list = isinstance((*path, 0)[-1], int) or "history" in path
            if not isinstance(value, dict | list) and not of_a_list:
                assert (source, line) in noted, (source, line, path)
    assert "0123456789" not in f"{plan}"


def test_the_shipped_example_which_defines_no_task_in_jobman_is_read_as_meant() -> None:
    task = "    tasks:\n      - {id: some-task, run: bash train/some_script.sh}\n"
    plan = read(f"repos:\n  maxtext: https://x\ndefaults:\n  repo: maxtext\n\n  v4-128:\n{task}")
    assert jobs(plan)["some-task"]["tpu"]["type"] == "v4-128"
    ((outcome, reason),) = notes(plan, "defaults.v4-128")
    assert outcome == "question"
    assert "jobman finds no task here" in reason
    plan = read(f"tasks: [{{id: b, run: x, accelerator: v4-8}}]\naccelerators:\n  v4-8:\n{task}")
    assert jobs(plan).keys() == {"some-task"}
    assert notes(plan, "tasks") == [("dropped", "jobman reads no tasks outside `accelerators`")]


def test_the_shipped_worker_has_placeholders_which_are_asked_for() -> None:
    worker = WORKER.replace("zone: us-central1-b", "zone: ...")
    worker = worker.replace("bucket_name: lab-data", "bucket_name: ...")
    plan = read_jobman({"tasks.yaml": TASKS, "worker.yaml": worker})
    assert ("question", "a placeholder, left out; write the value") in notes(plan, "tpu.zone")
    assert [mount["bucket"] for mount in jobs(plan)["train-seed42"]["mounts"]] == ["gs://lab-c4"]


def test_multihost_runner_is_unwrapped() -> None:
    run = 'python3 multihost_runner.py --TPU_PREFIX=$P --COMMAND="bash a.sh; b"'
    plan = read(f"accelerators:\n  v6e-64:\n    tasks:\n      - id: a\n        run: {run}\n")
    assert jobs(plan)["a"]["run"]["command"] == "bash a.sh; b"


def test_a_folder_given_is_shipped_in_place_of_a_clone() -> None:
    plan = read_jobman({"tasks.yaml": TASKS}, code="/src/nets")
    for spec in jobs(plan).values():
        assert spec["code"] == "/src/nets"
        assert "setup" not in spec


def test_jobs_come_after_those_that_they_wait_for() -> None:
    tasks = "{id: c, run: x, depends_on: [b, a]}, {id: b, run: x, depends_on: a}, {id: a, run: x}"
    plan = read(TASK.format(tasks))
    dependencies = {name: spec.get("after") for name, spec in jobs(plan).items()}
    assert list(dependencies.items()) == [("a", None), ("b", ["a"]), ("c", ["b", "a"])]


def test_names_are_made_of_ids_and_stay_apart() -> None:
    tasks = ", ".join(f"{{id: {id}, run: x}}" for id in ("A_b", "a-b", "7", "x" * 60))
    names = list(jobs(read(TASK.format(tasks))))
    assert names[0] == "a-b"
    assert names[1].startswith("a-b-")
    assert names[2] == "job-7"
    assert len(names[3]) == 40
    assert len({*names}) == 4


@pytest.mark.parametrize("end", ["\\n", "\\x85", "\\u2028"])
def test_an_id_adds_no_key_to_its_job_file(end: str) -> None:
    task = f'{{id: "a{end}data: /home/ada #", run: x}}'
    assert jobs(read(TASK.format(task))).keys() == {"a-data-home-ada"}


def test_running_tasks_are_an_error_until_jobman_has_stopped() -> None:
    state = STATE.replace(
        "    running: []\n    priority: true", "    running: [{job_id: '000048'}]"
    )
    files = FILES | {"q/tasks_state.yaml": state}
    with pytest.raises(BadSpec) as caught:
        read_jobman(files)
    assert caught.value.message == "q/tasks_state.yaml:16: small is running in jobman"
    assert "--while-jobman-runs" in caught.value.hint
    assert jobs(read_jobman(files, while_running=True))["small"]["start"] == "held"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{id: a, run: x}, {id: a, run: y}", "tasks[].id: a is also in line 2"),
        ("{id: a, run: x, depends_on: b}", "tasks[].depends_on: there is no task b"),
        ("{id: a, run: x, depends_on: b}, {id: b, run: x, depends_on: a}", "these wait for each other: "),
        ("{id: a}", "tasks[]: a task needs id and run, below an accelerator"),
        ("{id: a, run: 7}", "tasks[].run: must be text, not the number 7"),
        ("{id: a, run: x, max_jobs: many}", "tasks[].max_jobs: must be a whole number"),
        ("{id: a, run: x, workers: [{a: 1}]}", "tasks[].workers: must be a whole number"),
        ("{id: a, run: x, zone: europe}", "tasks[].zone: europe is not a zone with TPUs"),
        ("{id: a, run: x, repo: r, workdir: ../..}", "tasks[].workdir: '../..' is not the name"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_line(text: str, message: str) -> None:
    with pytest.raises(BadSpec) as caught:
        read("repos: {r: https://x}\n" + TASK.format(text))
    assert caught.value.message.startswith("tasks.yaml:2: ")
    assert message in caught.value.message


REFUSED = "job: {name: w, environment: {TPUJOB_X: 1}}\ntpu: {accelerator: v4-8}\ncommand: {cmd: x}"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "accelerators: {h100-8: {tasks: [{id: a, run: x}]}}", ":1: tasks[].accelerator: "),
        ("tasks_state.yaml", "tasks:\n  small: [a]", ":2: state[]: must be a mapping"),
        ("tasks_state.yaml", "tasks:\n  small: {running: ", ":2: not valid YAML"),
        ("w.yaml", "tpu: {accelerator: v4-8, pricing: cheap}", ":1: tpu.pricing: cheap is not a pricing"),
        ("w.yaml", "tpu: {}", ":1: tpu.accelerator: "),
        ("w.yaml", "tpu: v4-8", ":1: tpu: must be a mapping"),
        ("w.yaml", REFUSED, ":1: w cannot be a job here: run.env.TPUJOB_X"),
    ],
)  # fmt: skip
def test_an_unreadable_file_is_named_with_its_line(name: str, text: str, message: str) -> None:
    with pytest.raises(BadSpec) as caught:
        read_jobman({"tasks.yaml": TASKS, name: text})
    assert caught.value.message.startswith(name + message)


@pytest.mark.parametrize("files", [{}, {"tasks.yaml": "repos: {a: b}\n"}])
def test_nothing_to_import_is_an_error(files: dict[str, str]) -> None:
    with pytest.raises(BadSpec, match="there is no task and no job of jobman in"):
        read_jobman(files)
