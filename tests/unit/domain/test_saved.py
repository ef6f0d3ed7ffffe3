"""Which objects of a job's folder are a checkpoint, and which are one output."""

import pytest

from tpujob.domain.saved import SavedFiles, SavedObject, group_saved


def test_checkpoints_come_by_step_then_the_others_by_path() -> None:
    names = (
        "outputs/host-0/tb/events.out.tfevents.1700000000.h",
        "checkpoints/1000/params/0", "checkpoints/200/params/0", "checkpoints/200/params/1",
        "outputs/host-0/loss.csv", "outputs/host-0.list", "attempts/1/host-0/events.jsonl",
    )  # fmt: skip
    groups = group_saved(SavedObject(name, 10, float(n)) for n, name in enumerate(names))
    assert groups == [
        SavedFiles("checkpoints/200", 200, 2, 20, 3.0),
        SavedFiles("checkpoints/1000", 1000, 1, 10, 1.0),
        SavedFiles("outputs/host-0/loss.csv", None, 1, 10, 4.0),
        SavedFiles("outputs/host-0/tb", None, 1, 10, 0.0),
    ]


@pytest.mark.parametrize(
    ("path", "group", "step"),
    [
        ("checkpoints/step_00200/a", "checkpoints/step_00200", 200),
        ("checkpoints/run-a/300/a/b", "checkpoints/run-a/300", 300),
        ("checkpoints/200.orbax-checkpoint-tmp/a", "checkpoints/200.orbax-checkpoint-tmp", None),
        ("checkpoints/v2/a", "checkpoints/v2", None),
        ("outputs/host-12/ckpt-40.npz", "outputs/host-12/ckpt-40.npz", 40),
        ("outputs/host-1/checkpoints/40/a", "outputs/host-1/checkpoints/40", 40),
        ("outputs/x.txt", "outputs/x.txt", None),
        ("outputs/host-3", "outputs/host-3", None),
    ],
)
def test_a_step_is_read_from_the_name_and_never_guessed(
    path: str, group: str, step: int | None
) -> None:
    (saved,) = group_saved([SavedObject(path, 1, 0.0)])
    assert (saved.path, saved.step) == (group, step)
