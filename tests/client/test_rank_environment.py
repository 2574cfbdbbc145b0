import pytest

from fairlead.client.rank_environment import RankEnvironment, read_rank_environment
from fairlead.errors import ConfigError


def test_a_script_run_by_hand_is_rank_0_of_1() -> None:
    assert read_rank_environment({}) == RankEnvironment()


def test_what_an_agent_says() -> None:
    place = read_rank_environment(
        {
            "FAIRLEAD_SOCKET": "/run/agent",
            "FAIRLEAD_JOB": "7",
            "FAIRLEAD_ATTEMPT": "3",
            "FAIRLEAD_ACCEPT_LOSS": "1",
            "FAIRLEAD_RANK_SYNC": "[::1]:900",
            "RANK": "1",
            "WORLD_SIZE": "2",
        }
    )
    assert place == RankEnvironment(
        socket="/run/agent",
        job=7,
        attempt=3,
        accept_loss=True,
        rank_sync=("::1", 900),
        rank=1,
        world_size=2,
    )


def test_under_another_launcher_rank_0_listens_behind_its_port() -> None:
    place = read_rank_environment(
        {"WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "800"}
    )
    assert place.rank_sync == ("10.0.0.1", 801)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"FAIRLEAD_JOB": "seven"}, "FAIRLEAD_JOB.*'seven'"),
        ({"FAIRLEAD_TOTAL_STEPS": "-3"}, "FAIRLEAD_TOTAL_STEPS.*'-3'"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK.*less than WORLD_SIZE"),
        ({"WORLD_SIZE": "2", "FAIRLEAD_RANK_SYNC": "here"}, "FAIRLEAD_RANK_SYNC.*'here'"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE.*>= 1"),
    ],
)
def test_a_variable_that_cannot_be_is_named(environ: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_rank_environment(environ)
