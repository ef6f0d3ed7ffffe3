"""Values of a sweep in a shell command: each arrives as one word, and nothing in it is executed."""

import subprocess

import pytest

from tpujob.domain.spec.shell import fill

VALUES = (
    "1e-5",
    "a b",
    "q'uo\"te $HOME `echo x` $(echo y)",
    "",
    "é/ü",
    "a\\",
    "--lr=3",
    "*",
    "~",
    "a\nb; echo c",
    "'; echo x; '",
    '"; echo x; "',
    "#",
    "${HOME}",
    "!!",
)
#: the name stands where the shell takes a value as it is
COMMANDS = (
    "printf '<%s>' {x} end",
    "printf '<%s>' \"{x}\" end",
    "printf '<%s>' 'a {x}' end",
    "printf '<%s>' $'a\\n{x}' end",
    "printf '<%s>' --x={x},{x} \"$(printf %s {x})\" end",
    "A={x}; # don't\nprintf '<%s>' \"$A\" \"it's {x}\"",
    "cat <<'EOF' >/dev/null\nit's\nEOF\nprintf '<%s>' {x} end",
    "f() { printf '<%s>' \"$1\" end; }; f {x}",
    "# {x}\nprintf '<%s>' end",
    "printf '<%s>' ${A:-it} \"${A:-it}\" $((1 << 2)) {x} end",
)
#: the name stands where another reading of the value would follow
REFUSED = (
    "eval echo {x}",
    "bash -c 'echo {x}'",
    'sh -exc "echo {x}"',
    'bash -o pipefail -c "echo {x}"',
    'echo "echo {x}" | bash',
    "bash <<EOF\necho {x}\nEOF",
    "cat <<EOF {x} EOF\n",
    "cat <<A <<B {x}\nbody\nA\n",
    "echo `echo {x}`",
    'echo "${A:-{x}}"',
    "echo $(({x} + 1))",
    "echo \\{x}",
    "echo 'no end {x}",
    "echo $(case a in a) echo {x};; esac)",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_value_arrives_as_it_is(command: str) -> None:
    def output(value: str) -> str:
        argv = ["bash", "-c", fill(command, {"x": value})]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        return done.stdout

    expected = output("MARK")
    assert [output(value) for value in VALUES] == [expected.replace("MARK", v) for v in VALUES]


@pytest.mark.parametrize("command", REFUSED)
def test_a_value_that_would_be_read_once_more_is_refused(command: str) -> None:
    assert fill(command, {"x": "1e-5"}) == command.replace("{x}", "1e-5")
    with pytest.raises(ValueError, match=r'write "\$TPUJOB_PARAM_X" there'):
        fill(command, {"x": "a b"})


def test_what_only_resembles_another_shell_is_none() -> None:
    for command in ("bash train.sh -c {x}", "my-sh -c {x}", "python sh.py -c {x}"):
        assert fill(command, {"x": "a b"}) == command.replace("{x}", "'a b'")
    assert fill("echo ${x} {y} {}", {"x": "a b"}) == "echo ${x} {y} {}"
