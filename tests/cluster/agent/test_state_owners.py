"""The state directory of an agent is its own user's."""

import os
from pathlib import Path

import pytest

from fairlead.cluster.agent.state_directory import lock_state
from fairlead.errors import ConfigError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
NOBODY = 65534


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """A directory in which everybody may make one, as in /tmp."""
    made = tmp_path / "public"
    made.mkdir()
    made.chmod(0o1777)
    return made


@pytest.mark.parametrize("given_away", ["fairlead", "fairlead/n1"])
def test_a_directory_that_another_user_made_before_is_refused(
    public: Path, given_away: str
) -> None:
    state = public / "fairlead" / "n1"
    state.mkdir(parents=True)
    os.chown(public / given_away, NOBODY, NOBODY)
    with pytest.raises(ConfigError, match=rf"{given_away} belongs to another user"):
        lock_state(state)
    assert list(state.iterdir()) == []


def test_a_folder_of_another_user_who_is_trusted_with_it_is_not(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    os.chown(project, NOBODY, NOBODY)
    os.close(lock_state(project / "n1"))
