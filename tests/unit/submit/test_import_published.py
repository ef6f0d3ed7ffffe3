"""The TPU files of SkyPilot's own examples (`examples/tpu`) and of both repositories of jobman, each with its keys and
the values that decide: each is imported, or refused for a reason with its line, and no key of them is unknown."""

from collections.abc import Sequence

import pytest

from tpujob.domain.spec import jobspec
from tpujob.errors import BadSpec
from tpujob.submit.import_keys import KeyNote
from tpujob.submit.import_plan import text_of
from tpujob.submit.jobman import read_jobman
from tpujob.submit.skypilot import read_skypilot

V2 = "resources: {accelerators: tpu-v2-8, accelerator_args: {runtime_version: tpu-vm-base, tpu_vm: True}}\n"
CONDA = "setup: |\n  conda activate flax || conda create -n flax python=3.8 -y\n"
NODE = """\
name: mnist-tpu-node
resources: {instance_type: n1-highmem-8, accelerators: tpu-v2-8, accelerator_args: {ARGS}}
file_mounts: {/dataset: {name: demo-mnist-tpu, store: gcs, mode: MOUNT}}
run: |
  export PYTHONPATH=/home/gcpuser/sky_workdir/models
  python3 mnist_main.py --tpu=${TPU_NAME}
"""
V6E = "resources: {accelerators: tpu-v6e-8}\nsetup: pip3 install huggingface_hub\n"
#: SkyPilot's file -> text, and a part of each question and of each warning but that of the pricing
SKYPILOT = {
    "tpu_app.yaml": (
        "name: tpu_app\nworkdir: ./examples/tpu/tpu_app_code\nresources: {accelerators: tpu-v2-8}\n"
        f"{CONDA}run: python -u run_tpu.py\n",
        ["no conda"],
    ),
    "tpu_node_mnist.yaml": (
        NODE.replace("ARGS", "runtime_version: 2.12.0, tpu_vm: False"),
        ["TPU Nodes exist no more", "2.12.0 is the TensorFlow of a TPU Node", "TPU_NAME has no equal", "~/sky_workdir"],
    ),
    "tpu_node_mnist.yml": (
        NODE.replace("ARGS", "runtime_version: 2.5.0"),
        ["2.5.0 is the TensorFlow of a TPU Node", "TPU_NAME has no equal", "~/sky_workdir"],
    ),
    "tpuvm_app.yaml": (f"name: tpuvm_mnist\n{V2}{CONDA}run: python3 main.py\n", ["no conda"]),
    "tpuvm_mnist.yaml": (
        f"name: tpuvm_mnist\nresources: {{accelerators: tpu-v2-8}}\n{CONDA}run: conda activate flax\n",
        ["no conda", "no conda"],
    ),
    "tpuvm_pod_mnist.yml": (
        f"name: tpuvm_mnist\n{V2.replace('v2-8', 'v2-32')}num_nodes: 1\n{CONDA}run: python3 main.py\n",
        ["no conda"],
    ),
    "v6e/train-llama3-8b.yaml": (
        f"{V6E}secrets: {{HF_TOKEN: null}}\nworkdir: .\nrun: x --config_name /home/$USER/sky_workdir/config-8B.json\n",
        ["~/sky_workdir"],
    ),
    "v6e/serve-llama2-7b.yaml": (
        f"{V6E}envs:\n  HF_TOKEN: # yours\n  model_name: llama-2\n"
        "  input_ckpt_dir: /home/gcpuser/sky_workdir/ckpt/original\nrun: python run_server.py\n",
        ["~/sky_workdir"],
    ),
}  # fmt: skip
REFUSED = {
    "tpuvm_multinode.yml": (f"{V2}num_nodes: 2\nrun: sleep 120\n", "Multislice"),
    "v6e/benchmark-llama2-7b.yaml": ("envs: {model_name: llama-2}\nrun: x\n", "asks for no TPU"),
    "gke.yaml": ("resources: {accelerators: 'tpu-v5-lite-podslice:1'}\nrun: x\n", "no such type"),
}

TPU = """\
tpu:
  allocation_mode: "queued-resources"
  accelerator: v6e-16
  name: lab-${tpu.accelerator}
  zone: us-east1-d
  version: v2-alpha-tpuv6e
  pricing: spot
"""
EXPERIMENT = (
    "  startup_script: null\n  tags: [jobman, experiment]\n  metadata: {owner: a, purpose: b}\n"
)
SSH = """\
gcsfuse: {bucket_name: lab_data, mount_path: /home/ada/gcs-bucket}
ssh:
  private_key: ~/.ssh/id_rsa
  identities:
    - {private_key: ~/.ssh/id_rsa, public_key: ~/.ssh/id_rsa.pub, config_entry: "Host 10.*"}
"""
DOCKER = """\
docker:
  image: lab/maxtext:latest
  env_vars: [HOME=/home/ada]
  mount_dirs: [/home/ada, /dev, "/home/ada/.config/gcloud:/root/.config/gcloud"]
  workdir: /home/ada
  flags: ["--privileged", "--network=host"]
"""
VENV = "venv: {name: m, requirements_file: assets/r.txt, python: python3.10}\n"
CONDA_OF_JOBMAN = "conda: {name: fms, config_file: assets/fms.yaml}\n"
COMMAND = """\
command:
  cmd: |
    gcloud config set compute/zone ${tpu.zone}
    bash train.sh
  workers: [0] # int | list | "all"
"""
EMAIL = "brevo_email: {api_key: null, sender: null, receiver: null}\n"
JOB = "job: {name: test-v6, env_type: docker, loop: False}\n"
JOBMAN = {
    # zlab-princeton-internal/jobman
    "config/test_jobman.yaml": f"{JOB.replace('docker', 'venv')}{TPU}{EXPERIMENT}{SSH}{VENV}{COMMAND}",
    "configs/quick_start.yaml": f"{JOB.replace('docker', 'venv')}{TPU}{EXPERIMENT}gcsfuse: null\nssh: null\n{VENV}"
    "command:\n  cmd: pip show jax\n  workers: all\n",
    "configs/v6-us-east1-d.yaml": f"{JOB}{TPU}  flags: []\n{SSH}{DOCKER}{CONDA_OF_JOBMAN}{VENV}{COMMAND}{EMAIL}",
    "tests/test_docker.yaml": f"{JOB}{TPU}  flags: []\n{DOCKER}{COMMAND}",
    "queue_machines_example/tasks.yaml": """\
repos: {maxtext: "https://github.com/..."}
defaults:
  {env: m, repo: maxtext, branch: main, workdir: maxtext, zone: us-central1-b, max_jobs: 1, max_retries: 3,
   v4-128: {tasks: [{id: some-task, run: bash train.sh}]}}
""",
    # Zephyr271828/TPU-VM-setup
    "configs/template.yaml": f"{JOB}{TPU}{EXPERIMENT}{SSH}{DOCKER}{CONDA_OF_JOBMAN}{VENV}{COMMAND}",
    "configs/example-v6.yaml": f"{JOB}{TPU}{EXPERIMENT}"
    f"ssh: {{private_key: ~/.ssh/id_rsa, public_key: ~/.ssh/id_rsa.pub}}\n{DOCKER}{COMMAND}",
}


def assert_every_key_is_known(notes: Sequence[KeyNote]) -> None:
    assert not [note for note in notes if note.text == "tpujob has no such key"]


@pytest.mark.parametrize("name", SKYPILOT)
def test_an_example_of_skypilot(name: str) -> None:
    text, expected = SKYPILOT[name]
    plan = read_skypilot(text, name)
    (draft,) = plan.jobs
    jobspec.load(text_of(draft), draft.name)
    assert_every_key_is_known(plan.notes)
    remarks = [note.text for note in plan.notes if note.outcome in ("question", "warning")]
    remarks = [text for text in remarks if "without use_spot" not in text]
    assert len(remarks) == len(expected), remarks
    for part in expected:
        remarks.remove(next(remark for remark in remarks if part in remark))


@pytest.mark.parametrize("name", REFUSED)
def test_an_example_that_has_no_equal_is_refused_with_its_line(name: str) -> None:
    text, reason = REFUSED[name]
    with pytest.raises(BadSpec) as caught:
        read_skypilot(text, name)
    assert caught.value.message.startswith(f"{name}:1: ")
    assert reason in caught.value.message


@pytest.mark.parametrize("name", JOBMAN)
def test_a_file_of_jobman(name: str) -> None:
    plan = read_jobman({name: JOBMAN[name]})
    (draft,) = plan.jobs
    jobspec.load(text_of(draft), draft.name)
    assert_every_key_is_known(plan.notes)
