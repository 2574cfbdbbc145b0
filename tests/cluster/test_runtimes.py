"""Jobs in environments that are not ours, on a real cluster: each is paused on its way, and resumed."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.cluster import anywhere
from tests.cluster.cluster import (
    Running,
    running,
    until,
)
from tests.interpreters import interpreter, wanted

from fairlead.cluster.http_client import Client
from fairlead.cluster.protocol.job_spec import JobSpec

HERE = Path(__file__).parent
SCRIPT = HERE / "anywhere.py"
STEPS = 240
LIMIT_S = 120.0
OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"


def make_venv(python: Path | str, directory: Path) -> Path:
    """With nothing in it, not even pip."""
    subprocess.run([str(python), "-m", "venv", "--without-pip", str(directory)], check=True)
    return directory


@dataclass
class Bench:
    """A cluster, and a place for environments."""

    running: Running
    client: Client
    directory: Path

    def train(self, **runtime: object) -> "Trained":
        """A job that is paused on its way and resumed."""
        words = runtime.pop("command", ("python", str(SCRIPT)))
        (job,) = self.client.submit(
            [JobSpec(command=words, total_steps=STEPS, cwd=str(HERE), **runtime)]  # type: ignore[arg-type]
        )
        self._until(job, lambda: self.client.job(job).steps >= 20, "progress")
        self.client.pause(job)
        self._until(job, lambda: self.client.job(job).state == "paused", "the pause")
        self._until(job, lambda: self.client.job(job).node == "", "the end of the start")
        self.client.resume(job)
        self._until(job, lambda: self.client.job(job).state == "completed", "the end")
        assert [attempt.why for attempt in self.client.attempts(job)] == ["paused", "completed"]
        self._until(job, lambda: "total " in self.client.log(job)[0], "the last of its output")
        return Trained(job, self.client.log(job)[0])

    def _until(self, job: int, holds: Callable[[], bool], what: str) -> None:
        def seen() -> bool:
            view = self.client.job(job)
            assert view.state != "dropped", f"{view.reason}\n{self.client.log(job)[0]}"
            return holds()

        until(seen, LIMIT_S, what)


@dataclass
class Trained:
    """What is left of a job."""

    job: int
    log: str

    def check(self, python: str) -> None:
        """All batches were done once and in order, by this Python, in two starts, with the agent's client."""
        first, second = re.findall(rf"python {python} at step (\d+)\n", self.log)
        assert int(first) == 0 < 20 <= int(second), self.log
        total = 0
        for step in range(STEPS):
            total = total * 31 + step % anywhere.PASS + 1 & 0xFFFFFFFF
        assert f"total {total}\n" in self.log
        assert "/client-" in self.log.partition("client ")[2], "the agent's own client is used"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    directory = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONDA_ENVS_PATH", str(directory / "envs"))
        with running(directory, agents={"one": "v100=2"}) as found, found.client() as client:
            until(lambda: any(node.state == "up" for node in client.nodes()))
            yield Bench(found, client, directory)


@pytest.mark.parametrize(
    "version", ["3.9", *(pytest.param(v, marks=pytest.mark.long) for v in ("3.10", "3.12", "3.14"))]
)
def test_a_bare_venv_of_another_python(bench: Bench, version: str) -> None:
    venv = make_venv(wanted(version), bench.directory / f"venv-{version}")
    bench.train(venv=str(venv)).check(version)


def test_an_interpreter_by_its_path(bench: Bench) -> None:
    other = interpreter("3.13")
    python = other or make_venv(sys.executable, bench.directory / "venv") / "bin" / f"python{OWN}"
    bench.train(python=str(python)).check("3.13" if other else OWN)


def test_a_conda_environment_by_its_name(bench: Bench) -> None:
    make_venv(sys.executable, bench.directory / "envs" / "mine")
    trained = bench.train(
        conda="mine",
        command=("sh", "-c", f"echo in $CONDA_DEFAULT_ENV at $CONDA_PREFIX; exec python {SCRIPT}"),
    )
    trained.check(OWN)
    assert f"in mine at {bench.directory}/envs/mine\n" in trained.log


def test_a_container(bench: Bench) -> None:
    """No engine is needed: one is played, with a file system of its own where the tests run as root."""
    engine = bench.directory / "podman"
    source = (HERE / "container_engine.py").read_text()
    engine.write_text(f"#!{sys.executable}\n{source}")
    engine.chmod(0o755)
    template = (str(engine), "run", "{options}", sys.base_prefix)
    bench.train(container=template, command=(f"python{OWN}", str(SCRIPT))).check(OWN)
    message = (bench.directory / "podman.args").read_text()
    assert message.count("--network") == 2, "two starts"
    assert "agent-one/client-" in message
    assert "FAIRLEAD_TOKEN" in message
    assert "FAIRLEAD_TOKEN=" not in message, "secrets are no arguments"


@pytest.mark.torch
def test_torch_alone(bench: Bench) -> None:
    """PyTorch without NumPy, and without Fairlead."""
    torch = pytest.importorskip("torch")
    venv = make_venv(sys.executable, bench.directory / "venv-torch")
    packages = Path(torch.__file__).parents[1]
    there = venv / "lib" / f"python{OWN}" / "site-packages"
    wanted: tuple[str, ...] = (
        "torch",
        "torchgen",
        "functorch",
        "typing_extensions.py",
        "sympy",
        "mpmath",
    )
    wanted += ("networkx", "jinja2", "markupsafe", "filelock", "fsspec", "setuptools", "nvidia")
    for name in wanted:
        if (packages / name).exists():
            (there / name).symlink_to(packages / name)
    probe = (
        "import importlib.util as u; print([m for m in ('numpy', 'fairlead') if u.find_spec(m)])"
    )
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    bare = subprocess.run(
        [venv / "bin" / "python", "-c", probe],
        env=clean,
        capture_output=True,
        text=True,
        check=True,
    )
    assert bare.stdout == "[]\n"
    trained = bench.train(venv=str(venv), command=("python", "-W", "ignore", str(SCRIPT), "torch"))
    trained.check(OWN)
    assert f"torch {torch.__version__}\n" in trained.log


@pytest.mark.long
def test_numpy_of_another_major_version(bench: Bench) -> None:
    """As many training environments pin it. Fetches a wheel."""
    python = interpreter("3.12") or interpreter("3.11")
    if python is None:
        pytest.skip("there is neither Python 3.12 nor 3.11 here")
    venv = bench.directory / "venv-numpy"
    subprocess.run([str(python), "-m", "venv", str(venv)], check=True)
    pip = [str(venv / "bin" / "pip"), "install", "--quiet", "numpy==1.26.4"]
    subprocess.run(pip, check=True, capture_output=True)
    trained = bench.train(venv=str(venv), command=("python", str(SCRIPT), "numpy"))
    trained.check(python.name.removeprefix("python"))
    assert "numpy 1.26.4\n" in trained.log
