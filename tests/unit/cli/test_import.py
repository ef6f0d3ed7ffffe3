"""`tpujob import`: the table of keys, the files that are written, and that nothing is overwritten or submitted."""

from pathlib import Path

import pytest

from tests.support.commands import Tpujob
from tests.support.golden import golden
from tests.support.paths import ROOT
from tests.support.scripted import ScriptedJobs
from tests.unit.submit.jobman_files import FILES
from tpujob.domain.spec import jobspec


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a lab's jobman, which is below the current one."""
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    (tmp_path / "assets").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_of_an_import(
    lab: Path, tpujob: Tpujob, api: ScriptedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    golden("import-jobman", tpujob("import", "jobman", "q").out)
    assert api.calls == []
    files = sorted((lab / "tpujob-import").glob("*"))
    names = ["eval-seed42", "hello-world", "small", "train-seed43"]
    assert [file.stem for file in files] == names
    spec = jobspec.load(files[0].read_text(), "job")
    assert spec.code == "../assets", "jobman runs in the folder above"
    for file in files[1:]:
        file.unlink()
    error = tpujob("import", "jobman", "q", code=2).err
    assert "tpujob-import/eval-seed42.yaml is there already; nothing was written" in error
    assert [*(lab / "tpujob-import").glob("*")] == files[:1]
    error = tpujob("import", "jobman", "q", "--to", "q/tasks.yaml/new", code=2).err
    assert "cannot write q/tasks.yaml/new: Not a directory\n  Name another folder" in error


def test_the_file_of_tasks_alone_is_read_with_its_state(lab: Path, tpujob: Tpujob) -> None:
    record = tpujob("import", "jobman", "q/tasks.yaml", "--to", "new", "--code", ".", "--json").json
    assert record["done"] == ["train-seed42"]
    assert {key["source"] for key in record["keys"]} == {"q/tasks.yaml", "q/tasks_state.yaml"}
    assert record["jobs"][0]["file"] == "new/eval-seed42.yaml"
    assert jobspec.load((lab / "new" / "eval-seed42.yaml").read_text(), "job").code == ".."


def test_a_skypilot_file_with_its_missing_value(
    tmp_path: Path, tpujob: Tpujob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file, to = tmp_path / "sky.yaml", tmp_path / "out"
    tpu = "resources: {accelerators: tpu-v6e-8}"
    file.write_text(f"workdir: .\n{tpu}\nenvs: {{TAG: }}\nrun: x $TAG\n")
    words = ("import", "skypilot", str(file), "--to", str(to))
    assert tpujob(*words, code=65).err.splitlines() == [
        f"tpujob: {file}:3: envs.TAG: no value is given for TAG",
        "  Add --env TAG=...",
    ]
    output = tpujob(*words, "--env", "TAG=a=b").out
    assert f"tpujob create {to}/sky.yaml\n" in output
    spec = jobspec.load((to / "sky.yaml").read_text(), "job")
    assert (spec.code, spec.run.env) == ("..", {"TAG": "a=b"})


def test_paths_of_skypilot_are_relative_to_the_folder_of_the_command(
    lab: Path, tpujob: Tpujob, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = lab / "examples" / "tpu" / "app.yaml"
    for folder in ("app_code", "examples/tpu/app_code", "beside"):
        (file.parent / folder).mkdir(parents=True)
    task = "resources: {accelerators: tpu-v4-8}\nrun: x\nworkdir: "
    for workdir, current, code in (
        ("./examples/tpu/app_code", lab, "../examples/tpu/app_code"),
        (".", lab, ".."),
        ("beside", lab, "../examples/tpu/beside"),  # not there: the folder of the file has it
        ("./app_code", file.parent, "../app_code"),
    ):
        monkeypatch.chdir(current)
        file.write_text(task + workdir)
        to = current / "imported"
        record = tpujob("import", "skypilot", str(file), "--to", str(to), "--json").json
        assert not [key for key in record["keys"] if "there is no folder" in key["text"]]
        assert jobspec.load((to / "app.yaml").read_text(), "job").code == code
        (to / "app.yaml").unlink()


DOCUMENTED = """\
repos:
  nets: https://github.com/lab/nets

defaults:
  repo: nets
  zone: us-central1-b
  max_retries: 3
accelerators:
  v6e-64:
    tasks:
      - id: train
        run: bash train/run.sh
        workers: all
      - id: eval
        run: bash eval/run.sh
        depends_on: train
        workers: all
"""


def test_the_page_about_imports_shows_what_is_printed(
    lab: Path, tpujob: Tpujob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "88")
    (lab / "queue_machines").mkdir()
    (lab / "queue_machines" / "tasks.yaml").write_text(DOCUMENTED)
    page = (ROOT / "docs" / "import.md").read_text(encoding="utf-8")
    command, _, printed = page.split("```console\n$ ")[1].split("```")[0].partition("\n")
    assert tpujob(*command.split()[1:]).out == printed


@pytest.mark.parametrize(
    ("name", "text", "what", "command"),
    [
        ("my sky.yaml", "name: a\nresources: {accelerators: tpu-v4-8}\nrun: x\n", "a task of SkyPilot",
         "tpujob import skypilot 'my sky.yaml'"),
        ("pipe.yaml", "name: p\n---\nname: a\nnum_nodes: 1\nrun: x\n", "a task of SkyPilot",
         "tpujob import skypilot pipe.yaml"),
        ("tasks.yaml", FILES["q/tasks.yaml"], "a file of jobman", "tpujob import jobman tasks.yaml"),
        ("state.yaml", FILES["q/tasks_state.yaml"], "a file of jobman", "tpujob import jobman state.yaml"),
        ("worker.yaml", FILES["q/worker_v6e64.yaml"], "a file of jobman", "tpujob import jobman worker.yaml"),
        ("job.sbatch", "#!/bin/bash\n#SBATCH --nodes=2\nsrun python train.py\n", "a script of Slurm",
         "tpujob run --type v4-8 --code . -- bash job.sbatch"),
    ],
)  # fmt: skip
def test_create_names_the_command_for_a_file_of_another_tool(
    lab: Path, tpujob: Tpujob, api: ScriptedJobs, name: str, text: str, what: str, command: str
) -> None:
    (lab / name).write_text(text)
    error, hint = tpujob("create", name, code=65).err.splitlines()
    assert error == f"tpujob: {name}: is {what}, not a job file"
    assert hint.startswith(f"  `{command}` ")
    assert api.calls == []


def test_an_unknown_key_of_a_job_file_is_no_file_of_another_tool(lab: Path, tpujob: Tpujob) -> None:
    (lab / "a.yaml").write_text("name: a\ntpu: {type: v4-8}\nresources: 1\nrun: {command: x}\n")
    assert "a.yaml:3: resources: no such key" in tpujob("create", "a.yaml", code=65).err


def test_folders_with_keys_are_not_copied_to_a_bucket(
    lab: Path, tpujob: Tpujob, api: ScriptedJobs
) -> None:
    for name in (".ssh/work_rsa", "home/.ssh/config", "home/notes", "conf/.netrc", "c4/a.npy"):
        (lab / name).parent.mkdir(parents=True, exist_ok=True)
        (lab / name).touch()
    (lab / "linked").symlink_to(".ssh")
    mounts = "".join(f"  /{name}: {name}\n" for name in (".ssh", "home", "conf", "linked", "c4"))
    task = "resources: {accelerators: tpu-v4-8}\nrun: x\nfile_mounts:\n"
    (lab / "sky.yaml").write_text(f"{task}{mounts}  ~/.ssh/id_rsa: ~/.ssh/id_rsa\n")
    record = tpujob("import", "skypilot", "sky.yaml", "--json").json
    assert [entry["from"] for entry in record["jobs"][0]["spec"]["data"]] == ["c4"]
    keys = "left out, as private keys never go to hosts"
    lines = [key["line"] for key in record["keys"] if key["text"].startswith(keys)]
    assert lines == [4, 5, 6, 7, 9]
    job = "name: a\ntpu: {type: v4-8}\nrun: {command: x}\ndata: {from: %s, to: d}\n"
    for name, key in (
        (".ssh", ".ssh"), ("home", "home/.ssh/config"), ("conf", "conf/.netrc"), ("linked", ".ssh"),
    ):  # fmt: skip
        (lab / "a.yaml").write_text(job % name)
        error = tpujob("create", "a.yaml", code=65).err
        assert f"data: {lab / key} may be a key, and data goes to a bucket" in error
    assert api.calls == []
