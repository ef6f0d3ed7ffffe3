"""`create` with an environment: what is missing is said before anything is paid for."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import Tpujob
from tests.support.scripted import ScriptedJobs


def test_a_requirements_file_that_is_not_in_the_code_is_named(
    tpujob: Tpujob, api: ScriptedJobs, job_file: Path
) -> None:
    given = job_file.read_text(encoding="utf-8")
    job_file.write_text(f"{given}code: .\nenv: {{uv: requirements.txt}}\n", encoding="utf-8")
    said = tpujob("create", str(job_file), code=65)
    assert "env.uv: there is no file requirements.txt in" in said.err
    assert api.named("create") == []
    (job_file.parent / "requirements.txt").write_text("jax\n", encoding="utf-8")
    assert "nothing was submitted" in tpujob("create", str(job_file), "--dry-run").out


def test_an_environment_without_what_a_bundled_program_needs_is_remarked_upon(
    tpujob: Tpujob, api: ScriptedJobs, tmp_path: Path
) -> None:
    file, packages = tmp_path / "mlp.yaml", tmp_path / "requirements.txt"
    file.write_text(
        "name: a\ntpu: {type: v4-8}\nrun: {workload: mlp}\ncode: .\nenv: {uv: requirements.txt}\n"
    )
    packages.write_text("optax\n")
    said = tpujob("create", str(file), "--dry-run")
    assert "requirements.txt does not name jax, which mlp needs; without `env`" in said.err
    packages.write_text("jax[tpu]\n")
    assert "jax" not in tpujob("create", str(file), "--dry-run").err
