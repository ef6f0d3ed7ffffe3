"""A lab's jobman: tasks for two types, their state, two workers and a job with a command of its own."""

TASKS = """\
repos:
  nets: https://github.com/lab/nets
  other: {url: https://github.com/lab/other, branch: dev}

defaults:
  env: my_venv
  repo: nets
  branch: main
  workdir: nets
  zone: us-central1-b
  max_jobs: 1
  max_retries: 3

accelerators:
  v6e-64:
    tasks:
      - id: eval_seed42
        run: bash eval/run.sh
        depends_on: train-seed42
      - id: train-seed42
        run: bash train/run.sh 42
        workers: all
      - id: train-seed43
        run: bash train/run.sh 43
        workers: all
        hide: true
  v5e-8:
    zone: us-west4-a
    tasks:
      - id: small
        run: python3 small.py
        repo: other
        workdir: other
        zone: us-west4-a
        max_jobs: 2
        max_retries: 0
"""

STATE = """\
tasks:
  train-seed42:
    done: true
    running: []
    run_count: 2
    fail_count: 0
    history:
      - {job_id: '000045', started: '2026-01-15T08:00:00', ended: '2026-01-15T08:45:00', status: interrupted}
      - {job_id: '000047', started: '2026-01-15T09:00:00', ended: '2026-01-15T14:30:00', status: completed}
  train-seed43:
    done: true
    running: []
    fail_count: 3
    history:
      - {job_id: '000048', started: '2026-01-15T14:35:00', ended: '2026-01-15T14:36:00', status: failed}
  small:
    done: false
    running: []
    priority: true
  gone: {done: false}
"""

WORKER = """\
job:
  name: nets-qw-${tpu.accelerator}
  env_type: venv
  loop: true
  remote_user: ada
  environment:
    BUCKET_NAME: ${gcsfuse.bucket_name}
    TPU_PREFIX: ${tpu.name}
    WANDB_API_KEY: "0123456789"
  queue:
    enabled: true
    config: queue_machines/tasks.yaml
    prefix:
      - name: gcloud-setup
        workers: 0
        run: |
          echo "Setting up gcloud..."
          gcloud config set project vision
          gcloud config set compute/zone ${tpu.zone}
      - name: tools
        workers: all
        required: true
        run: sudo apt-get install -y jq

tpu:
  allocation_mode: queued-resources
  accelerator: v6e-64
  name: nets-qw-${tpu.accelerator}
  zone: us-central1-b
  version: v2-alpha-tpuv6e
  pricing: spot
  tags: [jobman, queue-worker]

gcsfuse:
  bucket_name: lab-data
  mount_path: /home/ada/gcs
  extra_mounts:
    - mount_path: /home/ada/gcs-data
      cache:
        dir: /mnt/ramdisk
        metadata_ttl_secs: -1
        file_cache_max_size_mb: 550000
    - mount_path: /mnt/c4
      bucket_name: lab-c4
      cache: {dir: /mnt/disk, metadata_ttl_secs: -1, file_cache_max_size_mb: 50000}

ssh:
  private_key: ~/.ssh/id_rsa

venv:
  name: my_venv
  requirements_file: assets/requirements.txt
  python: "python3.10"
"""

IDLE = """\
job:
  queue: {enabled: true, config: queue_machines/tasks.yaml}
tpu: {accelerator: v4-8, zone: us-central2-b, pricing: ondemand, allocation_mode: tpu-vm, name: idle, version: null}
"""

COMMAND = """\
job: {name: Hello_World, env_type: docker, loop: false}
tpu: {accelerator: v4-16, zone: us-central2-b, pricing: preemptible, name: x, flags: [--reserved, --network=lab]}
docker:
  image: lab/image:latest
  flags: ["--privileged", "--network=host", "--env HOME=/home/ada", "-v /dev:/dev", "-w /home/ada"]
conda: {name: fms, config_file: assets/fms.yaml}
command:
  cmd: |
    echo ${tpu.zone}
    python3 train.py
  workers: all
"""

FILES = {
    "q/tasks.yaml": TASKS,
    "q/tasks_state.yaml": STATE,
    "q/worker_v6e64.yaml": WORKER,
    "q/worker_v4.yaml": IDLE,
    "q/hello.yaml": COMMAND,
}
