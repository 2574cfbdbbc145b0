"""A process that has imported what jobs import, and forks ranks: a start without the imports.

It has no threads and never touches a GPU, so that its forks may do both. A rank is forked twice, so that
it is not the zygote's child but, by way of the subreaper, the spawner's, which waits for all ranks.
"""

import contextlib
import gc
import importlib.machinery
import importlib.util
import os
import random
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import msgspec

from fairlead.client.parking import VARIABLE as PARKING_VARIABLE
from fairlead.client.parking import ParkingDescriptors
from fairlead.cluster.agent.cgroups import AttemptGroup
from fairlead.cluster.agent.proc import TOKEN, show_token, tag_process

PLACEHOLDER = (
    "0" * 32
)  # where the token of a rank will be, in its environment as the kernel shows it
MAX_MEMORY = 2 << 30  # of memory, of a process for scripts
_ENTRIES = 5000  # of a script's folder that are looked at
_MAX_REQUEST = 1 << 17  # bytes of a request; longer ones are exec'd instead
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """Become this rank. With it come file descriptors: the log first, then locks to keep, that of the job
    first, and at last its end of the socket for parking, if it ``parks``."""

    job: int
    attempt: int
    rank: int
    argv: tuple[str, ...]  # python ... script.py args | python ... -m module args
    env: dict[str, str]
    cwd: str
    group: AttemptGroup | None = None  # that it is to be in
    parks: bool = False


class Forked(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The rank's own answer: it has a session and can be signalled."""

    job: int
    attempt: int
    rank: int
    pid: int


class Prepared(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All is imported, and it can be forked."""

    loaded: tuple[str, ...]  # names of all modules at the top level


def _is_file(path: Path) -> bool:
    """Return whether it is one. Path.is_file would raise where a name is too long or a folder is closed."""
    return os.path.isfile(path)


def can_fork(argv: Sequence[str], env: dict[str, str], cwd: str) -> bool:
    """Return whether it is a Python script or module for the very interpreter that the zygote runs."""
    program = shutil.which(argv[0], path=env.get("PATH"))
    if program is None or not Path(program).name.startswith("python"):
        return False
    if not _is_ours(Path(program)):
        return False
    script = script_of(argv)
    return bool(script) and (script[0] == "-m" or _is_file(Path(cwd) / script[0]))


def _is_ours(program: Path) -> bool:
    """The interpreter of the agent's own environment, under whichever of its names."""
    interpreter = Path(sys.executable)
    return program.absolute().parent == interpreter.absolute().parent and program.samefile(
        interpreter
    )


def script_of(argv: Sequence[str]) -> Sequence[str]:
    """Return the words after the interpreter and -u; empty for a command of another form."""
    remaining = list(argv[1:])
    while remaining and remaining[0] == "-u":
        remaining.pop(0)
    if not remaining or (remaining[0] == "-m" and len(remaining) < 2):
        return []
    return remaining if remaining[0] == "-m" or not remaining[0].startswith("-") else []


def neighbours(argv: Sequence[str], cwd: str) -> tuple[str, ...] | None:
    """Names of modules beside the script of a command, which it would import first; None = not known."""
    script = script_of(argv)
    if not script:
        return None
    try:
        with os.scandir(Path(cwd, script[0]).resolve().parent) as entries:
            names = [entry.name.partition(".")[0] for entry in islice(entries, _ENTRIES)]
    except (OSError, RuntimeError):  # a circle of links
        return None
    return tuple(names) if len(names) < _ENTRIES else None


def missing(modules: str) -> str:
    """The first of these modules, as ``numpy,torch._dynamo``, that is not installed; empty: all are.

    Nothing is imported, so that whoever asks stays small and without threads.
    """
    return next((name for name in filter(None, modules.split(",")) if not _exists(name)), "")


def _exists(module: str) -> bool:
    if module in sys.modules:
        return True  # os.path, for example, is in no file of this name
    first, *parts = module.split(".")
    spec = importlib.util.find_spec(first) or importlib.machinery.PathFinder.find_spec(
        first,
        [os.getcwd()],  # where ``python -m`` looks, too
    )
    name = first
    for part in parts:
        if spec is None or spec.submodule_search_locations is None:
            return False
        name = f"{name}.{part}"
        places = list(spec.submodule_search_locations)
        spec = importlib.machinery.PathFinder.find_spec(name, places)
    return spec is not None


class Zygote:
    """The spawner's side."""

    def __init__(self, modules: str, *, for_script: bool = False) -> None:
        """for_script: nobody has named these modules, so it looks whether it may be forked with them."""
        self.modules = modules
        self.loaded: frozenset[str] = frozenset()  # once it is ready
        self._for_script = for_script
        self._process: subprocess.Popen[bytes] | None = None
        self.peer: socket.socket | None = None

    @property
    def pid(self) -> int:
        """0 = it does not run."""
        return 0 if self._process is None else self._process.pid

    @property
    def ready(self) -> bool:
        """Return whether it has imported everything."""
        return bool(self.loaded)

    def start(self, base_env: dict[str, str]) -> socket.socket:
        """Its answers arrive on the socket that is returned."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        env = {**dict.fromkeys(_THREADS, "1"), **base_env, TOKEN: PLACEHOLDER}
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", __name__, str(theirs.fileno()), self.modules),
                    *(["for-script"] if self._for_script else []),
                ],
                env=env,
                cwd="/" if self._for_script else None,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.peer = ours
        return ours

    def fork(self, request: Fork, descriptors: Sequence[int]) -> bool:
        """False: it cannot take this one now."""
        message = msgspec.msgpack.encode(request)
        if self.peer is None or len(message) > _MAX_REQUEST:
            return False
        try:
            socket.send_fds(self.peer, [message], descriptors)
        except OSError:
            return False
        return True

    def answers(self) -> list[Forked] | None:
        """Return the answers that have arrived; None when the zygote has gone."""
        found: list[Forked] = []
        while self.peer is not None:
            try:
                data = self.peer.recv(_MAX_REQUEST)
            except BlockingIOError:
                return found
            except OSError:
                data = b""
            if not data:
                break
            answer = msgspec.msgpack.decode(data, type=Forked | Prepared)
            if isinstance(answer, Prepared):
                self.loaded = frozenset(answer.loaded)
            else:
                found.append(answer)
        return found or None

    def hang_up(self) -> None:
        """Have no rank begin that it forks from now on, or has forked and that has not answered: these end.
        What has been answered can still be read."""
        if self.peer is not None:
            self.peer.shutdown(socket.SHUT_RD)

    def stop(self) -> None:
        """It ends when its socket is closed; it owns nothing."""
        if self.peer is not None:
            self.peer.close()
            self.peer = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def main() -> None:
    """``python -m fairlead.cluster.agent.zygote DESCRIPTOR MODULES [for-script]``."""
    for_script = len(sys.argv) > 3
    who = f"prepared process {sys.argv[2]}" if for_script else f"--prefork {sys.argv[2]}"
    peer = socket.socket(fileno=int(sys.argv[1]))
    for module in filter(None, sys.argv[2].split(",")):
        try:
            __import__(module)
        except Exception as problem:
            text = f"{type(problem).__name__}: {problem}"
            sys.exit(f"fairlead: {who}: {module} cannot be imported: {text}; jobs are exec'd")
    if threading.active_count() > 1:
        sys.exit(f"fairlead: {who}: an import has started threads; jobs are exec'd")
    if for_script and (why := unfit()):
        sys.exit(f"fairlead: {who}: {why}; jobs are exec'd")
    gc.collect()
    gc.freeze()  # else the collector would write to, and so copy, every page after a fork
    loaded = tuple({name.partition(".")[0] for name in sys.modules})
    with contextlib.suppress(OSError):
        peer.send(msgspec.msgpack.encode(Prepared(loaded=loaded)))
    request = _serve(peer)
    if request is not None:
        _run(request)


def unfit() -> str:
    """Return why this process, with what it has imported, may not be forked; "" = it may."""
    if len(os.listdir("/proc/self/task")) > 1:
        return "an import has started threads"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "an import has initialised CUDA"
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    if pages * os.sysconf("SC_PAGE_SIZE") > MAX_MEMORY:
        return f"it takes more than {MAX_MEMORY >> 20} MiB"
    return ""


def _serve(peer: socket.socket) -> Fork | None:
    """Fork on request. Returns in a rank, with what it is to do, or at the end."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(peer, _MAX_REQUEST, 64)
        if not message:
            return None
        request = msgspec.msgpack.decode(message, type=Fork)
        parent = os.fork()
        if parent == 0:
            if os.fork():
                os._exit(0)
            _become(request, descriptors, peer)
            return request
        for descriptor in descriptors:
            os.close(descriptor)
        os.waitpid(parent, 0)


def _become(request: Fork, descriptors: list[int], peer: socket.socket) -> None:
    os.setsid()
    if request.group is not None:
        request.group.enter()
    show_token(PLACEHOLDER, request.env[TOKEN])
    tag_process(request.env[TOKEN])
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (descriptors[0], 1), (descriptors[0], 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(descriptors[0])  # the others are locks, kept until this process ends
    answer = Forked(job=request.job, attempt=request.attempt, rank=request.rank, pid=os.getpid())
    try:
        peer.send(msgspec.msgpack.encode(answer))
    except OSError:  # the spawner has died, and who ends its ranks may have looked already
        os._exit(1)
    peer.close()
    os.environ.clear()
    os.environ.update(request.env)
    if request.parks:
        _, job_lock, *others, socket_end = descriptors
        parking = ParkingDescriptors(socket_end, (job_lock,), tuple(others))
        os.environ[PARKING_VARIABLE] = str(parking)
    os.chdir(request.cwd)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def _run(request: Fork) -> None:
    """Run the script as the interpreter would."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    _fresh_randomness()
    script = list(script_of(request.argv))
    extra = [entry for entry in request.env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[1:1] = [entry for entry in extra if entry not in sys.path]
    if script[0] == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = script[1:]
        runpy.run_module(script[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(script[0]).resolve().parent)
        sys.argv = script
        runpy.run_path(script[0], run_name="__main__")


def _fresh_randomness() -> None:
    """Seed random generators as in a new process: from the system where Python does so; torch keeps its
    constant seed."""
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules and (threads := os.environ.get("OMP_NUM_THREADS", "")).isdigit():
        sys.modules["torch"].set_num_threads(int(threads))


if __name__ == "__main__":
    main()
