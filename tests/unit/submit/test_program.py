"""The script of a command that the hosts will lack."""

import pytest

from tpujob.submit.program import MissingScript, missing_script

SHIPPED = {".", "train.py", "sub", "sub/x.py", "run.sh"}
CERTAIN = {
    "python3 trian.py": "trian.py",
    "python3.11 -u -X utf8 trian.py --lr 1 2>&1 | tee log": "trian.py",
    "LR=1 exec /usr/bin/python3 trian.py  # the program": "trian.py",
    "cd sub && python3 train.py": "sub/train.py",
    "cd nope && python3 train.py": "nope/train.py",
    "# don't\nexport A=1\necho start\npython3 \\\n  trian.py": "trian.py",
    "set -euo pipefail\npython3 trian.py\npython3 train.py": "trian.py",
    "torchrun --nproc_per_node 4 --nnodes=2 trian.py --config c.py": "trian.py",
    "bash -ex go.sh": "go.sh",
    "./go": "go",
}
UNCERTAIN = {
    "python3 a.py || python3 train.py": "a.py",
    "python3 a.py; python3 train.py": "a.py",
    "set -e\nset +e\npython3 a.py\npython3 train.py": "a.py",
    "cd nope; python3 train.py": "nope/train.py",
    "git clone x\npython3 a.py": "a.py",
    "echo 'print(1)' > a.py\npython3 a.py": "a.py",
    "python3 train.py && python3 made.py": "made.py",
    "python3 a.py &\nwait": "a.py",
}
UNCLEAR = (
    "python3 train.py",
    "cd sub && python3 x.py && ../run.sh",
    "python3 sub",
    "python3 -m trian",
    "python3 -c 'import trian'",
    "python3 - < trian.py",
    "python3 $SCRIPT",
    "python3 {script}",
    "python3 /opt/trian.py",
    "cd /opt && python3 trian.py",
    "cd $HOME && python3 trian.py",
    "if [ -e a.py ]; then python3 a.py; fi",
    "[[ -e a.py ]] && python3 a.py",
    "cat > a.py <<EOF\nprint(1)\nEOF\npython3 a.py",
    "python3 a.py && echo 'one\ntwo' || true",
    "bash -lc 'python3 a.py'",
    "bash trainer",
    "torchrun --no-python a.py",
    "uv run a.py",
    "(python3 a.py)",
    "{ python3 a.py; }",
    "",
)


@pytest.mark.parametrize("command", [*CERTAIN, *UNCERTAIN, *UNCLEAR])
def test_which_script_is_missing(command: str) -> None:
    missing = missing_script(command, SHIPPED.__contains__)
    path = CERTAIN.get(command) or UNCERTAIN.get(command)
    assert missing == (MissingScript(path, command in CERTAIN) if path else None)
