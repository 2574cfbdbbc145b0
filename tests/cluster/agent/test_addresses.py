import pytest
from tests.cluster.agent.cluster import job

from fairlead.cluster.agent.addresses import GivenAddresses, RankZeroAddress, assign_addresses
from fairlead.cluster.protocol.messages import Rank
from fairlead.errors import ConfigError

HERE = (Rank(rank=0, devices=(0,)),)


@pytest.mark.parametrize("host", ["10.0.0.2", "node-7.example", "fe80::1:2"])
def test_an_address_is_read_as_it_is_written(host: str) -> None:
    address = RankZeroAddress(host, 29001, 29002, "word")
    assert str(address) == f"{host}:29001:29002:word"
    assert RankZeroAddress.parse(str(address), 1) == address


@pytest.mark.parametrize("text", ["", "10.0.0.2", "10.0.0.2:5:word", "10.0.0.2:a:6:word"])
def test_what_is_no_address_is_refused_with_its_job(text: str) -> None:
    with pytest.raises(ConfigError, match="job 7: master: expected host:port:gang_port:secret"):
        RankZeroAddress.parse(text, 7)


def test_ranks_elsewhere_are_told_a_host_that_they_reach() -> None:
    given = assign_addresses(job(1, ranks=HERE, world_size=2, nodes=2), "10.0.0.2")
    assert given.here == given.elsewhere
    assert given.here is not None
    assert given.here.host == "10.0.0.2"
    assert given.ports >= {given.here.port, given.here.rank_sync_port}


def test_where_all_ranks_are_here_nobody_else_is_told() -> None:
    given = assign_addresses(job(1), "10.0.0.2")
    assert given.elsewhere is None
    assert given.here is not None
    assert given.here.host == "127.0.0.1"


def test_where_rank_0_is_elsewhere_the_orders_tell() -> None:
    ranks = (Rank(rank=1, devices=(0,)),)
    assignment = job(1, ranks=ranks, world_size=2, nodes=2, node_rank=1, has_rank_0=False)
    assert assign_addresses(assignment, "10.0.0.2") == GivenAddresses()


def test_a_job_that_serves_its_progress_has_a_port_of_its_own() -> None:
    assignment = job(1, unmanaged=True, progress_url="http://127.0.0.1:{port}/")
    given = assign_addresses(assignment, "10.0.0.2")
    assert given.progress_port
    assert len(given.ports) == 3
    assert assign_addresses(job(1), "10.0.0.2").progress_port == 0
