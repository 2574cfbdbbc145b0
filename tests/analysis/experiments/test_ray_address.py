"""Addresses at which there is no Ray cluster: found before Ray tries for minutes."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import grpc
import pytest

from fairlead.analysis.experiments import ray_address
from fairlead.analysis.experiments.executor import Limits, SweepProgress
from fairlead.analysis.experiments.ray_address import check_ray_address
from fairlead.analysis.experiments.ray_executor import RayExecutor
from fairlead.errors import ConfigError


@pytest.fixture
def bound() -> Iterator[socket.socket]:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield one


def address_of(one: socket.socket) -> str:
    return f"127.0.0.1:{one.getsockname()[1]}"


def test_a_grpc_server_may_be_a_ray_cluster() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        check_ray_address(f"127.0.0.1:{port}")
        check_ray_address(f"ray://127.0.0.1:{port}/name")
    finally:
        server.stop(None).wait()


def test_other_addresses_are_left_to_ray() -> None:
    for address in ("", "auto", "local"):
        check_ray_address(address)


def test_nobody_at_the_address_is_one_sentence(bound: socket.socket) -> None:
    address = address_of(bound)  # nobody listens
    with pytest.raises(ConfigError, match=f"--ray-address {address}: no Ray cluster answers"):
        check_ray_address(address)


def test_nobody_who_answers_is_one_sentence(
    bound: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_address, "REPLY_TIMEOUT_S", 1.0)
    bound.listen()
    address = address_of(bound)
    with pytest.raises(ConfigError, match=f"--ray-address {address}: who listens there is not"):
        check_ray_address(address)


def test_a_server_of_pages_is_one_sentence() -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        address = f"127.0.0.1:{server.server_port}"
        with pytest.raises(ConfigError, match=f"--ray-address {address}: who listens there is not"):
            check_ray_address(address)
        thread.join()


def test_a_sweep_checks_its_address_first(bound: socket.socket) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    executor = RayExecutor(address=address_of(bound))
    with pytest.raises(ConfigError, match="no Ray cluster answers"):
        executor.run([], Limits(), lambda *_: None, SweepProgress(lambda *_: None))
