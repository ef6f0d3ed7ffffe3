"""Columns of the list, jobs that are chosen by what they are, and the words of other tools."""

import os
import subprocess
import sys
from io import StringIO
from typing import Any

import pytest
import typer

from tests.support.commands import Tpujob
from tests.support.scripted import ScriptedJobs, job_view
from tpujob.cli import output
from tpujob.cli.app import COMMANDS, FOREIGN_COMMANDS
from tpujob.cli.options import complete_state, duration
from tpujob.domain.model import State
from tpujob.errors import NotFound


def test_a_word_of_another_tool_names_the_command_in_one_line(tpujob: Tpujob) -> None:
    for word, command in FOREIGN_COMMANDS.items():
        error = tpujob(word, "-u", "me", code=2).err
        assert error == f"tpujob: there is no command {word}: use tpujob {command}\n"
        assert command.split()[0] in COMMANDS
        assert word not in COMMANDS


def test_the_status_of_a_job_is_shown_by_another_command(tpujob: Tpujob) -> None:
    error = tpujob("status", "40", code=2).err
    assert error == "tpujob: `tpujob status` shows no job: use tpujob show 40\n"


def test_help_is_the_option_as_a_word(tpujob: Tpujob) -> None:
    assert tpujob("help", "create").out == tpujob("create", "--help").out
    assert tpujob("help").out == tpujob("--help").out


def test_what_is_no_number_is_refused_in_plain_words(tpujob: Tpujob) -> None:
    assert "'ten' is not a whole number." in tpujob("logs", "1", "--tail", "ten", code=2).err
    estimate = ("cost", "estimate", "job.yaml", "--hours", "ten")
    assert "'ten' is not a number." in tpujob(*estimate, code=2).err


def test_a_mistyped_verb_of_the_queue_is_answered_with_the_verbs(
    tpujob: Tpujob, api: ScriptedJobs
) -> None:
    api.raises = NotFound("no job of yours is called 'topp'")
    hint = "The first word can be top, hold, release, requeue; all others name jobs."
    assert hint in tpujob("queue", "topp", "1", code=3).err


def test_states_are_completed() -> None:
    assert complete_state("re") == ["releasing"]
    assert complete_state("") == [*State]


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("tpujob outp", ["outputs"]),
        ("tpujob outputs ", ["000042", "digits"]),
        ("tpujob outputs dig", ["digits"]),
        ("tpujob list --state re", ["releasing"]),
        ("tpujob logs --sin", ["--since"]),
        ("tpujob cost rep", ["report"]),
    ],
)
def test_a_line_is_completed_by_its_command_alone(
    tpujob: Tpujob, api: ScriptedJobs, line: str, offers: list[str]
) -> None:
    """In the shell, where each key press starts a process: the other commands are not imported."""
    words = line.split(" ")
    shell = {"_TPUJOB_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words)}
    script = "import sys\nfrom tpujob.cli.app import run\ntry: run([])\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **shell, "COMP_CWORD": str(len(words) - 1)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == offers, done.stderr
    assert "tpujob.cli.commands.contexts" not in done.stderr.split()
    assert "tpujob.domain.model" not in done.stderr.split()


def test_a_time_is_a_number_of_seconds_or_has_units() -> None:
    texts = ("45", "0.2", "30s", "10m", "1.5h", "1h30m", "2d")
    assert [duration(text) for text in texts] == [45, 0.2, 30, 600, 5400, 5400, 172800]
    for text in ("", "soon", "-1", "1 h", "h", "5h5", "1e9"):
        with pytest.raises(typer.BadParameter):
            duration(text)


def test_the_list_has_the_columns_that_are_asked_for_in_their_order(tpujob: Tpujob) -> None:
    lines = tpujob("list", "--columns", "state, id,spent").out.splitlines()
    assert lines[0].split() == ["Status", "Job", "ID", "Spent"]
    assert lines[1].split()[:2] == ["running", "000042"]
    error = tpujob("list", "--columns", "id,nodelist", code=2).err
    assert "there is no column nodelist" in error
    assert "Columns: id, user, name, type, zone" in error
    tpujob("list", "--columns", "id", "--json", code=2)


@pytest.fixture
def three(api: ScriptedJobs) -> ScriptedJobs:
    api.jobs |= {id: job_view(id, state="queued") for id in ("000002", "000003")}
    return api


def test_jobs_that_match_are_steered(tpujob: Tpujob, three: ScriptedJobs) -> None:
    result = tpujob("cancel", "--state", "queued", "--mine", "--yes")
    assert [call["job"] for call in three.named("cancel")] == [*three.jobs]
    assert result.out.count("Job 0000") == 3
    tpujob("delete", "--mine", "-y")
    tpujob("clean", "--mine", "--yes")
    calls = [{k: v for k, v in call.items() if v and k != "limit"} for call in three.named("list")]
    assert calls == [
        {"states": ["queued"], "mine": True},
        {"mine": True, "active": True},
        {"mine": True},
    ]


@pytest.mark.parametrize("words", [["1", "--mine"], [], ["1", "--state", "queued"]])
def test_jobs_are_named_or_chosen(words: list[str], tpujob: Tpujob, api: ScriptedJobs) -> None:
    assert "name jobs, or choose them" in tpujob("cancel", *words, code=2).err
    assert api.named("cancel") == []


@pytest.mark.parametrize("answer", [True, False])
def test_a_person_is_asked_once_about_all_that_match(
    answer: bool, tpujob: Tpujob, three: ScriptedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []

    def confirm(text: str, **_: Any) -> bool:
        questions.append(text)
        return answer

    monkeypatch.setattr("tpujob.cli.commands.jobs.typer.confirm", confirm)
    monkeypatch.setattr("tpujob.cli.commands.jobs.get_screen", lambda: output.Screen(asks=True))
    tpujob("delete", "--state", "queued", code=0 if answer else 130)
    assert len(questions) == 1
    assert questions[0].startswith("Delete 000042 ")
    assert len(three.named("delete")) == (3 if answer else 0)


@pytest.mark.parametrize("verb", ["cancel", "delete", "clean"])
@pytest.mark.parametrize("typed", ["", "n\n", "y\n"])
def test_without_a_terminal_a_question_is_no_permission(
    verb: str, typed: str, tpujob: Tpujob, three: ScriptedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`echo n | tpujob delete JOB`, a line of cron and `ssh HOST tpujob cancel --mine` end nothing."""
    monkeypatch.setattr("sys.stdin", StringIO(typed))
    chosen = [["--state", "queued"], ["--mine"], *([] if verb == "cancel" else [["42"]])]
    for words in chosen:
        error = tpujob(verb, *words, code=2).err
        assert (
            f"nothing was done, as there is no terminal for the question: {verb.title()} " in error
        )
        assert "000042" in error
        assert "--yes" in error
    assert three.named(verb) == []
