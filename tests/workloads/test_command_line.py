"""``python -m fairlead.workloads``: what it prints, and what it refuses."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.workloads.trained_job import train

from fairlead.workloads.command_line import main
from fairlead.workloads.registry import WORKLOADS

NEEDS_TORCH = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["resnet"],
            "invalid choice: 'resnet' (choose from resnet18, resnet50, cyclegan, a3c, lm, "
            "transformer, recommendation)",
        ),
        ([], "the following arguments are required: NAME"),
        (["lm", "--batch-size", "0"], "--batch-size: expected a whole number >= 1, got '0'"),
        (["lm", "--steps", "some"], "--steps: expected a whole number >= 1, got 'some'"),
        (["lm", "--seed", "-1"], "--seed: expected a whole number >= 0, got '-1'"),
        (
            ["lm", "--mode", "fast"],
            "--mode: invalid choice: 'fast' (choose from static, accordion, gns)",
        ),
        (["lm", "--data", "/nowhere"], "--data: expected a folder, there is none at '/nowhere'"),
        (["lm", "--big"], "unrecognized arguments: --big"),
    ],
)
def test_a_bad_option_is_refused_in_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    # Python 3.11 quotes the choices, later ones do not.
    said = capsys.readouterr().err.replace("'resnet18'", "resnet18")
    assert said == f"fairlead: {sentence}\n" or "choose from" in sentence
    assert sentence.partition("(")[0] in said


@pytest.mark.torch
@NEEDS_TORCH
@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("resnet18", "{data}: expected the file data_batch_1, there is none"),
        ("resnet50", "{data}: expected a folder of images for each class, there is none"),
        ("cyclegan", "{data}/trainB: expected a folder of .jpg or .png images, there is none"),
        ("lm", "{data}: expected the file wiki.train.tokens, there is none"),
        ("transformer", "{data}: expected the file train.de, there is none"),
        ("recommendation", "{data}: expected the file ratings.csv, there is none"),
    ],
)
def test_a_folder_without_its_data_is_refused(
    name: str,
    missing: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kept_determinism: None,
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--small", "--data", str(tmp_path)])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"fairlead: {missing.format(data=tmp_path)}\n"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "fairlead.workloads", *arguments]


def test_the_help_names_all_workloads_and_needs_no_library() -> None:
    blocked = "import sys; sys.modules['torch'] = None; sys.argv[1:] = ['--help']\n"
    code = blocked + "from fairlead.workloads.command_line import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    text = " ".join(done.stdout.split())
    for one in WORKLOADS.values():
        assert f"{one.name}: {', '.join(map(str, one.batch_sizes))}" in text


@pytest.mark.parametrize(
    ("name", "library"), [("lm", "torch"), pytest.param("a3c", "gymnasium", marks=NEEDS_TORCH)]
)
def test_a_library_that_is_absent_is_named(
    name: str,
    library: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kept_determinism: None,
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, "fairlead.workloads.actor_critic", raising=False)
    with pytest.raises(SystemExit) as ended:
        main([name])
    assert ended.value.code == 2
    said = f"{name}: needs {library}, which is not installed: pip install 'fairlead[workloads]'"
    assert capsys.readouterr().err == f"fairlead: {said}\n"


@pytest.mark.torch
@NEEDS_TORCH
def test_a_process_that_is_told_to_stop_saves_and_a_new_one_ends_alike(tmp_path: Path) -> None:
    options = ("lm", "--small", "--steps", "400", "--log-every", "20")
    env = {**os.environ, "OMP_NUM_THREADS": "1"}

    saving = command(*options, "--checkpoint-dir", str(tmp_path / "parts"))
    with subprocess.Popen(saving, env=env, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert next(first.stdout).startswith("step 20 batch 5 loss ")
        first.send_signal(signal.SIGTERM)
        rest = first.stdout.read()
        assert first.wait(60) == 0
    assert "done" not in rest
    second = subprocess.run(saving, env=env, capture_output=True, text=True, check=True)
    assert "step 20 " not in second.stdout
    whole = train("lm", tmp_path / "whole", steps=400)
    assert second.stdout.splitlines()[-1] == f"done: 400 steps, weights {whole.weights}"
