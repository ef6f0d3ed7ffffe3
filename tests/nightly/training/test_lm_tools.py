"""`--sample`, `--export` and `--import`, on the checkpoints of a run."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.support.checkpoint_rig import remove_the_manifest
from tests.support.workload_rig import Job
from workloads.lm import tools

pytestmark = pytest.mark.long

SMALL = ("--layers=2", "--dim=32", "--heads=2", "--kv-heads=1", "--ff=48", "--vocab=257")
FLAGS = (*SMALL, "--sequence=32", "--data=pydoc", "--batch=8", "--dtype=float32")


def use(*flags: str) -> int:
    """The exit code of `python -m workloads.lm` with these flags, in this process."""
    with pytest.raises(SystemExit) as ended:
        tools.main([*FLAGS, *flags])
    return int(ended.value.code or 0)


def content_of(folder: str) -> dict[str, bytes | None]:
    """Each file and folder below it, with every byte."""
    paths = sorted(Path(folder).rglob("*"))
    return {str(path): path.read_bytes() if path.is_file() else None for path in paths}


def test_a_model_is_trained_exported_imported_trained_on_and_writes(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    job.module = "workloads.lm"
    job.run(*FLAGS, "--steps=2", "--checkpoint-every=1", "--keep=2", devices=1)
    monkeypatch.setenv("TPUJOB_WORKDIR", job.workdir)
    monkeypatch.setenv("TPUJOB_CACHE", str(tmp_path / "cache"))
    assert use(f"--export={folder}") == 0, capsys.readouterr().err
    assert capsys.readouterr().out == f"wrote the weights of step 2 to {folder}\n"

    assert use("--sample=The ", "--count=5") == 0
    assert len(capsys.readouterr().out.encode()) > len("The \n")

    assert use(f"--import={folder}") == 78
    assert "there are checkpoints already" in capsys.readouterr().err

    under_way = Path(job.workdir) / "checkpoints" / "3" / "state" / "manifest.ocdbt"
    under_way.parent.mkdir(parents=True)
    under_way.write_text("a save of the run, which goes on meanwhile")
    remove_the_manifest(Path(job.workdir) / "checkpoints" / "2")
    before = content_of(job.workdir)
    assert use(f"--export={tmp_path / 'older'}") == 0
    output = capsys.readouterr()
    assert output.out == f"wrote the weights of step 1 to {tmp_path / 'older'}\n"
    assert output.err.startswith("lm: not the checkpoint of step 2: it cannot be read: "), (
        output.err
    )
    assert content_of(job.workdir) == before, "the folder of the run was changed"

    monkeypatch.setenv("TPUJOB_WORKDIR", str(tmp_path / "other"))
    assert use("--sample=x") == 78
    assert "there is no checkpoint" in capsys.readouterr().err
    assert use(f"--import={folder}", "--dim=64") == 78
    assert capsys.readouterr().err == f"lm: {folder} has another shape: use --dim=32\n"

    assert use(f"--import={folder}", "--stacked") == 0
    assert use(f"--export={tmp_path / 'again'}", "--stacked") == 0
    first, other = (
        load_file(place / "model.safetensors") for place in (folder, tmp_path / "again")
    )
    assert first.keys() == other.keys()
    assert all(np.array_equal(first[name], other[name]) for name in first)
    assert use("--sample=x") == 78
    assert capsys.readouterr().err.endswith("of step 0 has another shape: use --stacked\n")
    assert use("--sample=x", "--export=y") == 78
    assert "one of --sample, --export and --import" in capsys.readouterr().err
