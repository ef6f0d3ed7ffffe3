"""What the end of a program's output proves, and the lines that an attempt keeps as proof of its cause. Pure.

The last error of the program decides. Other lines name a cause only near the end, if no step followed. Texts that a
healthy program may print, too, and causes that cost slices or mark a machine, count only as that error itself. A new
text in SIGNS needs an end of a log in `tests/unit/domain/failures/ends/`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from tpujob.contract import Exit
from tpujob.domain.model import Cause, Proof
from tpujob.domain.observations import HostReport, OutputLine

LINES = 10  #: of evidence that an attempt keeps
WIDTH = 240  #: characters of one with its host
SHOWN = 200  #: characters of a line in a sentence
#: lines, and seconds, before the end that are near it
NEAR_LINES, NEAR_SECONDS = 10, 60.0

#: where the files of an attempt lie on its host; the folder of the job's code is `work/` there
_FOLDER = re.compile(r"/[^\s\"']*/\.tpujob/attempts/[^/\s\"']+/(?:work/)?")
_MARKS = re.compile(r"[\s^~]*")
_CLASS = re.compile(r"((?:[^\W\d]\w*\.)*[A-Z]\w*)(?::|\s*$)")


def proofs(
    culprit: HostReport, named: Sequence[str], ordered: Sequence[HostReport]
) -> tuple[Proof, ...]:
    """Return the lines that prove the cause, then the ends of the other hosts."""
    lines = _last_words(culprit.evidence, named)
    own = [proof(culprit.host, line) for line in lines]
    others = [r for r in ordered if r.host != culprit.host]
    room = max(1, LINES - len(own) - 1)
    after = [proof(r.host, f"also ended: {ending(code_of(r))}") for r in others[:room]]
    left = len(others) - room
    rest = [Proof(None, f"{left} more hosts also ended")] if left > 0 else []
    return (*own, *after, *rest)


def _last_words(lines: Sequence[OutputLine], named: Sequence[str]) -> list[str]:
    """Return the end of the last error with the lines that name its cause, or the end of everything, with paths from
    the job's folder. The last line says most."""
    error = [line.text for line in lines if line.part in ("frame", "error")]
    rest = [text for text in dict.fromkeys(named) if text not in error][-4:]
    plain = [line.text for line in lines if not line.part and _says_something(line.text)]
    texts = (*rest, *error) if error else rest or plain
    return [_FOLDER.sub("", text) for text in texts if not _MARKS.fullmatch(text)][-6:]


def last_error(lines: Sequence[OutputLine]) -> str:
    """Return the line that names the last error; empty: there is none."""
    return next((line.text.strip() for line in lines if line.part == "error"), "")


def last_line(lines: Sequence[OutputLine]) -> str:
    """Return the last error, or else the last line of output; empty: there is none."""
    plain = [x.text.strip("│ \t") for x in lines if not x.part and _says_something(x.text)]
    return last_error(lines) or (plain[-1] if plain else "")


def _says_something(text: str) -> bool:
    return re.search(r"\w", text) is not None and not NOISE.search(text)


def error_class(error: str) -> str:
    """Return the class of the error that `last_error` names; empty: it does not begin with one."""
    match = _CLASS.match(error[:100])
    return match[1] if match else ""


def proof(host: int, text: str) -> Proof:
    """Return a line of evidence, cut so that it has WIDTH characters with its host."""
    return Proof(host, text[: WIDTH - len(str(Proof(host, "")))])


def shorten(line: str) -> str:
    """Return a line for a sentence, with paths from the job's folder: of a long one, the begin and the end."""
    line = _FOLDER.sub("", line)
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 82]} … {line[-79:]}"


def code_of(report: HostReport) -> int:
    """Return the exit code of a program that has ended; of one that was not started, the code of an error."""
    return report.exit_code if report.exit_code is not None else int(Exit.ERROR)


def ending(code: int) -> str:
    """Return an exit code in words."""
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


# Texts that name a cause ---------------------------------------------------------------------------------------------


class Reach(IntEnum):
    """Where a text counts, each with the places before it."""

    ERROR = 0  #: in the line that names the last error, or the error it was raised from
    MESSAGE = 1  #: in the rest of that error's message
    WORDS = 2  #: in the last lines of a program that printed no error
    NEAR = 3  #: in the last lines, also beside another error: the text says that the program stops for this


@dataclass(frozen=True, slots=True)
class ErrorPattern:
    """A text that names a cause."""

    cause: Cause
    pattern: re.Pattern[str]
    words: str
    reach: Reach
    #: it counts only with this exit code, and if the program printed no error; None: with any
    code: int | None = None


def _sign(
    cause: Cause, reach: Reach, words: str, pattern: str, code: int | None = None
) -> ErrorPattern:
    return ErrorPattern(cause, re.compile(pattern), words, reach, code)


_TPU_OF_OTHERS = "another process holds the TPU"
_NO_TPU = "the TPU of this host does not come up"
_HBM = "the memory of the TPU is too small for the program"
_HOST_MEMORY = "the memory of the host is too small for the program"
_NO_PERMISSION = "the program lacks a permission"
_NOT_INSTALLED = "something that the program needs is not installed"
_USAGE = "the program does not take these arguments"
_NOT_FINITE = "a number is not finite"
_WAITED = "the program waited too long for its other processes"
_DISK = "the disk of the host is full"
_NO_COMMAND = "a command that the program starts is missing, or is not executable"
_NO_PROGRAM = "the file cannot be executed: `bash FILE` runs a script without `chmod +x`"

#: the first pattern that matches counts: a TPU in use, for example, also prints that its initialization failed
SIGNS: tuple[ErrorPattern, ...] = (
    _sign(
        Cause.TPU_BUSY, Reach.WORDS, _TPU_OF_OTHERS,
        r"Couldn't open iommu group|/dev/(?:vfio|accel)\S* Operation not permitted|The TPU is already in use by"
        r"|Internal error when accessing libtpu multi-process lockfile"
        r"|(?i:(?:vfio|accel\d|iommu|tpu).*Device or resource busy)",
    ),
    _sign(Cause.TPU_BUSY, Reach.ERROR, _TPU_OF_OTHERS, r"libtpu\.so (?:is )?already in used?\b"),
    _sign(Cause.OOM_HOST, Reach.WORDS, _HOST_MEMORY, r"(?i:exhausted.*(?:host memory|pinned_host|allocator cpu))"),
    _sign(
        Cause.OOM_HBM, Reach.WORDS, _HBM,
        r"memory space (?:hbm|vmem|smem)|Exceeded hbm capacity|That was not possible\. There are \S+ free"
        r"|Aborting compilation early because it's unlikely to have enough"
        r"|^(?!.*(?i:quota)).*(?i:RESOURCE_?\s?EXHAUSTED.*(?:\bhbm|memory|allocat|to reserve))",
    ),
    _sign(
        Cause.OOM_HOST, Reach.WORDS, _HOST_MEMORY,
        r"(?:^|[.\s])_?(?:Array|Arrow)?MemoryError(?::|\s*$)|std::bad_alloc|Cannot allocate memory"
        r"|can't allocate memory|(?i:out of memory: Killed process)|DataLoader worker .*killed by signal: Killed"
        r"|(?i:out of shared memory)|memory allocation of \d+ bytes failed|^Unable to allocate [\d.]+ [GTM]iB"
        r"|OOMKilled|\boom[-_]kill event|^(?!.*\b(?:may|might|could)\b).*killed by the OOM"
        r"|killed due to memory pressure|node running low on memory|exceeded (?:job )?memory limit",
    ),
    _sign(
        Cause.OOM_HOST, Reach.ERROR, _HOST_MEMORY,
        r"^(?!.*(?i:cuda|gpu|device|hbm|resource)).*(?i:(?:out ?of|not enough|insufficient) ?memory)",
    ),
    _sign(
        Cause.SETUP, Reach.WORDS, _NO_PROGRAM,
        r": Permission denied$|: cannot execute\b|Exec format error|: bad interpreter: ", 126,
    ),
    _sign(Cause.SETUP, Reach.WORDS, _NO_PROGRAM, r"(?i:\bexecv\w*\W.*permission denied|\bexec: .*permission denied)"),
    _sign(
        Cause.PERMISSION, Reach.WORDS, _NO_PERMISSION,
        r"^(?!.*(?i:rate.?limit|open the log)).*(?:"
        r"not have (?:\S+\.\S+\.\S+ |the )?(?:access|permission)"
        r"|(?i:permission_?\s?denied|access_?\s?(?:is )?denied|denied (?:on|for) resource)|(?:^|: )denied(?:: |\.?$)"
        r"|^(?:ERROR|remote): Repository not found"
        r"|gated repo|GatedRepo|invalid_grant|\bPermissionError: |Credentials?Error\b"
        r"|\b40[13]\b(?:.{0,60}\bForbidden|:? (?:Client Error|Unauthorized|GET|POST|PUT|DELETE|PATCH)\b)"
        r"|(?i:(?:(?:code|status)\W{1,4}|error\W{1,2})40[13]\b)|, 40[13]$"
        r"|error occurred \(\w*(?:Access|Token|Signature)|google\.auth\.exceptions\.(?!Transport)\w+"
        r"|^sudo: (?:a (?:terminal|password) is required|no tty present)|(?i:could not read username"
        r"|(?:unable to|cannot|could not) (?:locate|find|load) (?:(?:application )?default )?credentials"
        r"|unauthenticated(?! \w)|unauthorized|not authorized|authentication failed|token is required"
        r"|insufficient (?:authentication )?(?:scope|perm)|api[_ ]key not|requires? an? api[_ ]key"
        r"|no api[_ ]key|missing (?:username|credentials?|(?:api|access|auth\w*) (?:key|token))|kaggle\.json"
        r"|not in the authorized list|must be (?:authenticated|logged in)"
        r"|not (?:currently )?(?:logged in|have an active account)|no (?:pull|push|read|write) access"
        r"|forbidden from|(?:user|account|caller) is forbidden|is forbidden: user|(?:set|keyerror:).{0,20}_api_?key\b"
        r"|(?:invalid|bad) (?:api[_ ]key|username or|(?:user|access) token|\w* ?credentials)))",
    ),
    _sign(
        Cause.SETUP, Reach.WORDS, "there is no `python` where it runs: Ubuntu has only `python3`; use that",
        r"^\S+(?: line \d+:| \d+:)? python: (?:command )?not found$|env: ‘?python’?: No such file",
    ),
    _sign(
        Cause.SETUP, Reach.WORDS, _NOT_INSTALLED,
        r": (?:command )?not found$|^\S*env: .*: No such file|^\S+: (?:(?:line )?\d+: )?\S+: No such file", 127,
    ),
    _sign(
        Cause.SETUP, Reach.WORDS, _NOT_INSTALLED,
        r"^(?:\S+: )?(?:ModuleNotFoundError: )?No module named |Packages?NotFound|DistributionNotFound"
        r"|^ImportError:(?!.*circular import)|cannot open shared object file|undefined symbol"
        r"|not defined in file \S+ with link time|must be regenerated with"
        r"|(?:version `\S+' not found|not available in this library)"
        r"|Error while finding module specification for|ResolutionImpossible"
        r"|No (?:matching )?distributions? (?:at all )?found"
        r"|No solution found when resolving|have conflicting dependencies|Could not solve for environment specs"
        r"|did not run successfully\b|^(?:ERROR|FAILED): Build (?:failed|did NOT complete)"
        r"|[Ff]ailed (?:to build|building wheel)|subprocess-exited-with-error|requires a different Python"
        r"|^Command not found: |^sudo: \S+: command not found|may indicate binary incompatibility"
        r"|Check installed software versions|(?:jax(?:lib)?|libtpu) version .*(?:incompatible|too old)"
        r"|^(?!.*(?i:checkpoint|dataset|config|schema)).*(?i:\bmismatched .{0,60}\bversions?\b|\bversions? mismatch"
        r"|(?:built|compiled) (?:with|against|for) an? (?:later|newer|older|different) version)"
        r"|(?:requires?|needs?) .{0,40}[<>=~]= ?(?:[1-9]\d*\.\d|\d+\.\d+\.\d)"
        r"|EnvironmentNameNotFound|^Conda(?!HTTP)\w*E(?:rror|xception)|UnsatisfiableError|VersionConflict"
        r"|^- [\w.-]+=[\w.=]+=\w+_\d+$|module 'jaxlib\S* has no attribute"
        r"|Poetry configuration is invalid|^The current project could not be installed"
        r"|^CommandNotFoundError: |\bconda init\b|lockfile at \S+ needs to be updated|since poetry\.lock was last"
        r"|externally-managed-environment|metadata-generation-failed|requirements file: |is not installable"
        r"|cannot be installed in editable|not a valid editable requirement|Error (?:build|compil)ing .*extension"
        r"|^error: (?:Distribution not found|Failed to (?:parse|spawn|install|build)\b|invalid command "
        r"|[Cc]ommand .* failed with exit |.*(?:interpreter found|can't be installed))"
        r"|(?:No `|could not find a )pyproject\.toml|manifest unknown|no matching manifest|OCI runtime \w+ failed"
        r"|Cannot connect to the Docker daemon"
        r"|^CMake Error|^compilation terminated|^(?:\S*g(?:cc|\+\+)|clang\S*|cc1\w*|collect2): (?:fatal )?error: "
        r"|is not a git command|(?:no executable \S+|executable file not|Container command \S+ not) found"
        r"|^exec \S+: no such file|^E: (?:Unable to locate|Couldn't find|Package) ",
    ),
    _sign(
        Cause.SETUP, Reach.MESSAGE, _NOT_INSTALLED,
        r"(?i:not installed|not found in your env|pip install |\b(?:ninja|gcc|ffmpeg) (?:is required|not found))",
    ),
    _sign(
        Cause.BAD_HOST, Reach.ERROR, _NO_TPU,
        r"(?:TPU initialization failed|Failed to initialize TPU system)"
        r"(?!.*(?i:ret_check|invalid|topology|version|metadata|grpc|slice.?builder|unavailable|deadline|workers?\b|connect))",
    ),
    _sign(Cause.BAD_HOST, Reach.ERROR, "the memory of a TPU is broken", r"(?i:uncorrectable (?:ECC|memory) error)"),
    _sign(Cause.CRASH, Reach.WORDS, _DISK, r"No space left on device|Disk quota exceeded"),
    _sign(
        Cause.NONFINITE, Reach.NEAR, _NOT_FINITE,
        r"(?i:(?:\b(?:loss|grad\w*|norm)\b.{0,30}\b(?:nan|inf\w*|not finite|non-?finite)\b"
        r"|\b(?:nan|non-?finite)\b.{0,30}\b(?:loss|grad\w*|norm)\b)"
        r".*(?:stopping|terminating|aborting|giving up|exiting|ending|halting))"
        r"|Invalid loss, terminating training|diverged with loss = NaN",
    ),
    _sign(
        Cause.NONFINITE, Reach.MESSAGE, _NOT_FINITE,
        r"FloatingPointError: invalid value|(?i:minimum loss scale|loss scale already at min)|NanLoss"
        r"|^assert (?!.*\b(?:and|or)\b).*\bis_?(?:finite|nan|inf)\b|Tensor had (?:NaN|Inf)"
        r"|(?:Nan|Infinity) in summary histogram"
        r"|(?i:\b(?:loss\w*|grad\w*|norm|activations?|tensor|params?|parameters?|weights?|logits|tree)\b.{0,60}"
        r"\b(?:nans?|infs?|infinite|not finite|non-?finite)\b)|found invalid values: .*\bnan\b|^tensor\(\[+nan\b"
        r"|(?i:\b(?:nans?|non-?finite|not finite|infinite)\b.{0,40}\b(?:loss|grad\w*|weights|logits|stop\w*|at step"
        r"|generated|encountered|detected|values? in its \S+ output))",
    ),
    _sign(
        Cause.HANG, Reach.WORDS, _WAITED,
        r"^(?!.*(?i:heartbeat|failed or timed out))(?=.*(?i:timed? ?out|timeout|deadline.exceeded))"
        r".*(?i:barrier|rendezvous|coordination"
        r"|collective|waiting \d+ms|\b(?:ranks?|peers?)\b|all (?:hosts|processes|workers)|dataloader"
        r"|c10d|nccl|connect\(\)|client socket|torch\.distributed|(?:xla|jax)RuntimeError: DEADLINE_EXCEEDED)"
        r"|detects a hang|watchdog.*(?:hang|stuck)\b|wait timeout after \d+ms",
    ),
    _sign(
        Cause.BAD_SPEC, Reach.WORDS, _USAGE,
        r"^\s*(?i:usage): |^(?!\S+:\d+:)\S.{0,80}: error: |^error: (?:Parser key |'Configuration check failed)"
        r"|(?i:\b(?:no such|no value|missing|unrecognized|unexpected|invalid|required)\b.{0,30}"
        r"\b(?:options?|arguments?|commands?|parameters?|flags?|value for)\b)",
        code=2,
    ),
    _sign(
        Cause.BAD_SPEC, Reach.WORDS, _USAGE,
        r"^FATAL Flags parsing error|^ERROR: Unknown command line flag"
        r"|^ERROR: (?:Could not consume arg|The function received no value)"
        r"|^Could not (?:override|append to config)|^In \S+: (?:Could not find |Override )"
        r"|^(?:mismatched|extraneous) input '|^no viable alternative at input '|not used by the HfArgumentParser"
        r"|^(?:absl\.flags\.\S*\.(?!Unparsed|Duplicate)|click\.exceptions\.|argparse\.|draccus\.\S*\."
        r"|hydra\.errors\.(?!Instantiation))\w+: |Missing mandatory value: "
        r"|(?:passed|given) (?:at|on) the command.line",
    ),
)  # fmt: skip

#: errors of which lines near them, or a kill by the kernel, may be the reason
_OF_TPU = re.compile(r"No accelerator found|nitializ.*(?i:tpu|backend|accelerator)")
_OF_WORKER = re.compile(
    r"exited unexpectedly|abruptly|BrokenProcessPool|Broken ?Pipe|EOFError|Connection(?:Reset|Refused|Aborted)Error"
    r"|SIGKILL|signal 9|exitcode ?: ?-9|ChildFailedError|terminated with (?:signal|exit code)|Killed|died with"
    r"|ActorDiedError|WorkerCrashedError|worker died|Simulation crashed"
)

#: errors of a launcher about its child: the lines before them are the child's, and may have its exit code
_LAUNCHER = re.compile(
    r"ChildFailedError|CalledProcessError|ProcessExitedException|^Signal \d|: Pip failed|could not be transferred"
    r"|(?:[Ss]ee|[Cc]heck)\b.{1,60}\babove\b|See inner exception|died unexpectedly|WorkerCrashedError"
)
_CHILD_CODE = re.compile(r"(?:exitcode|exit (?:code|status))[\s:]{1,4}(\d+)")

#: what an installer prints when the network fails or it is killed: it may succeed the next time, and nothing is missing
_MAY_PASS = re.compile(
    r"(?i:timed out|connection (?:reset|refused|aborted|broken|closed|error)|broken pipe|unreachable"
    r"|ConnectionError|(?:connect|read)timeout|name resolution|failure resolving|could not resolve|not known"
    r"|error sending request|body error|too many requests|bad gateway|service unavailable|certificate"
    r"|exit (?:code|status):? 137\b)"
)

#: what the cloud answers with 403, too, maybe on a line of its own
_QUOTA = re.compile(r"(?i:insufficient .{0,20}quota|quota.?exceeded|exceed\w* .{0,30}quota)")

#: what a process prints when another one, or another host, is gone
ECHO = re.compile(
    r"PollForError|coordination service.*(?i:error|unavailable|fatal|shut)|tasks? (?:is|are) unhealthy"
    r"|stopped sending heartbeats|(?i:heartbeat timeout)|(?i:barrier (?:timed out|failed))"
    r"|another task (?:died|has (?:failed|crashed))|Watchdog caught collective operation timeout"
    r"|(?i:(?:gloo|nccl|c10d|tcpstore|coordination|rendezvous|mesh_service).*"
    r"(?:connection (?:reset|closed|refused)|socket closed|broken pipe|timed? ?out|has failed))"
    r"|(?:Xla|Jax)RuntimeError: UNAVAILABLE.*(?i:socket|connect)|(?i:unavailable: socket closed)|grpc_status\W{0,3}14\b"
    r"|Connection (?:reset|closed) by remote peer|Rendezvous(?:Timeout|Connection|Closed)Error"
    r"|Dist(?:Store|Network)Error(?!.*failed to (?:listen|bind))"
    r"|UnavailableError: .*Socket closed|store->\w+\(.*Socket Timeout"
    r"|DEADLINE_EXCEEDED.*(?i:barrier|coordination|connect\(\))|ncclRemoteError|remote process exited"
)

#: the last error of a program that was told to stop
STOPPED = re.compile(r"SignalException|KeyboardInterrupt|SIGTERM")

#: output that says nothing: of libraries on every host without a key file, and advice of Hydra
NOISE = re.compile(r"google_auth_provider|Could not find the credentials file|HYDRA_FULL_ERROR=1")


def sign_of(report: HostReport) -> tuple[ErrorPattern, list[str]] | None:
    """Return the cause that the last error of a host's program names, or else its last lines, and the lines that name
    it; None: they name none."""
    lines, error = report.evidence, last_error(report.evidence)
    near = [line.text.strip() for line in lines if _is_near(line)]
    own = [x.text.strip() for x in lines if x.part in ("error", "cause")]
    whole = [*own, *(x.text.strip() for x in lines if x.part == "more")]
    of_worker = any(_OF_WORKER.search(text) for text in whole)
    if report.kernel_kills and (not error or of_worker):
        return KILLED, [error] if error else []
    codes = {code_of(report)}
    if _LAUNCHER.search(error):
        codes.update(int(code) for x in (error, *near) for code in _CHILD_CODE.findall(x))
        error = ""
    beside = [x for x in near if SIGNS[0].pattern.search(x)] if _OF_TPU.search(error) else []
    frame = next((x.text.strip() for x in reversed(lines) if x.part == "frame"), "")
    if error.startswith("AssertionError") and frame.startswith("assert "):
        whole.append(frame)  # the line of code is the condition
    if "child_exception_type" in frame and _NO_CHILD.match(error):
        return NOT_STARTED, [error]
    may_pass = any(_MAY_PASS.search(text) for text in near)
    for sign in SIGNS:
        if sign.words == _NO_TPU and report.progress.step is not None:
            continue  # it did come up
        if sign.code is not None and (error or sign.code not in codes):
            continue
        texts = list(own if sign.reach is Reach.ERROR else whole)
        if sign.cause in _COSTLY:
            texts = [*own, *beside]
        near_counts = not error or (of_worker and sign.cause is Cause.OOM_HOST)
        if sign.reach is Reach.NEAR or (sign.reach is Reach.WORDS and near_counts):
            texts += [] if sign.words == _NOT_INSTALLED and not sign.code and may_pass else near
        matches = [text for text in texts if sign.pattern.search(text)]
        if matches and not (sign.cause is Cause.PERMISSION and any(map(_QUOTA.search, texts))):
            return sign, matches
    return None


#: errors of `subprocess` about a command that it cannot execute; a path that is missing may be the folder to run it in
_NO_CHILD = re.compile(r"PermissionError: |FileNotFoundError: .*: '[^/']+'$")

KILLED = _sign(Cause.OOM_HOST, Reach.ERROR, _HOST_MEMORY, "")
NOT_STARTED = _sign(Cause.SETUP, Reach.ERROR, _NO_COMMAND, "")
_COSTLY = frozenset({Cause.TPU_BUSY, Cause.BAD_HOST})


def is_echo(evidence: Sequence[OutputLine]) -> bool:
    """Return whether the evidence of one host shows only that another host was gone: the program's last error, or else
    its last lines, report a lost peer. What ended that other host is unknown from here."""
    error = [line.text for line in evidence if line.part in ("error", "more")]
    near = [line.text for line in evidence if _is_near(line)]
    return any(ECHO.search(text) for text in error or near)


def _is_near(line: OutputLine) -> bool:
    """Return whether a line besides the error is one of the last, after which the program made no steps."""
    few, soon = line.later < NEAR_LINES, line.ago <= NEAR_SECONDS
    return not line.part and few and soon and not line.stepped
