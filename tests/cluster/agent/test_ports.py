import socket

from fairlead.cluster.agent import ports
from fairlead.cluster.agent.ports import free_ports


def test_ports_are_free_different_and_not_those_of_others() -> None:
    first = free_ports(2, frozenset())
    assert len(set(first)) == 2
    for port in first:
        with socket.create_server(("127.0.0.1", port)):
            assert port not in free_ports(40, frozenset())
    local = ports._first_local()
    assert not local or all(20_000 <= port < local for port in first)
    most = frozenset(range(20_000, local or 1)) - {25_000}
    assert set(free_ports(3, most)) & most == set(), "else those that the system chooses"
