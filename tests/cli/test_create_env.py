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
