"""What is in deploy/ calls commands with options that there are."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from fairlead.cli.agent import _File
from fairlead.cli.application import COMMANDS
from fairlead.cluster.searching.samplers import PACKAGES

DEPLOY = Path(__file__).parents[2] / "deploy"


def _commands() -> list[tuple[str, list[str]]]:
    """(file, words of a call of ``fairlead``)."""
    units = sorted(DEPLOY.glob("systemd/*.service"))
    lines = [
        (unit.name, shlex.split(line))
        for unit in units
        for line in re.findall(r"^Exec\w+=(.*/fairlead .*)$", unit.read_text(), re.MULTILINE)
    ]
    text = (DEPLOY / "container" / "Containerfile").read_text()
    started = re.findall(r"^CMD (.*)$", text, re.MULTILINE)
    return lines + [("Containerfile", ["fairlead", *json.loads(words)]) for words in started]


@pytest.mark.parametrize(("file", "words"), _commands())
def test_commands_and_options_are_known(file: str, words: list[str]) -> None:
    program, name, *given = words
    assert Path(program).name == "fairlead"
    (deferred,) = (one for one in COMMANDS if one.name == name)
    known = {text for parameter in deferred.load().params for text in parameter.opts}
    assert {word for word in given if word.startswith("--")} <= known, file


def test_the_agents_file_in_the_unit_has_its_fields() -> None:
    text = (DEPLOY / "systemd" / "fairlead-agent.service").read_text()
    named = re.findall(r"^#   (\w+) = ", text, re.MULTILINE)
    assert "server" in named
    assert set(named) <= set(_File.__struct_fields__)


def test_the_servers_file_in_the_unit_has_its_fields() -> None:
    text = (DEPLOY / "systemd" / "fairlead-server.service").read_text()
    (serve,) = (one for one in COMMANDS if one.name == "serve")
    options = {text for parameter in serve.load().params for text in parameter.opts}
    named = re.findall(r"^#   (\w+) = ", text, re.MULTILINE)
    assert "host" in named
    assert {f"--{name.replace('_', '-')}" for name in named} <= options
    assert "ExecReload=/bin/kill -HUP $MAINPID" in text


def test_units_leave_what_a_person_has_to_look_at() -> None:
    for name in ("agent", "server"):
        text = (DEPLOY / "systemd" / f"fairlead-{name}.service").read_text()
        assert "\nRestartPreventExitStatus=2\n" in text, name


def test_the_container_is_published_beyond_its_machine_with_tls_alone() -> None:
    text = (DEPLOY / "container" / "Containerfile").read_text()
    calls = re.findall(r"^#   (podman run (?:.*\\\n#    )*.*)$", text, re.MULTILINE)
    assert len(calls) == 2
    for call in calls:
        ports = re.findall(r"-p (\S+)", call)
        assert len(ports) == 2
        assert "--tls-cert" in call or all(port.startswith("127.0.0.1:") for port in ports)


def test_a_server_in_the_container_has_every_sampler() -> None:
    text = (DEPLOY / "container" / "Containerfile").read_text()
    installed = re.findall(r"pip install .*'/source\[([\w,-]+)\]'", text)
    assert installed, "with extras"
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    extras = [project["optional-dependencies"][extra] for extra in installed[0].split(",")]
    packages = {re.match(r"[\w-]+", line)[0] for lines in extras for line in lines}  # type: ignore[index]
    assert {name for names in PACKAGES.values() for name in names} <= packages
