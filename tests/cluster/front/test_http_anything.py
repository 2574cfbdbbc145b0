"""Anything that can be sent to the API, from its own description: documented answers, never a crash."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from tests.cluster.served import Served, served

from fairlead.cluster.front.api.schema import describe
from fairlead.cluster.front.facade import Facade
from fairlead.cluster.front.http_app import create_app
from fairlead.cluster.front.metrics import FrontCounters
from fairlead.cluster.protocol.job_spec import JobSpec

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("state") / "s") as running:
        with running.client() as admin:
            admin.add_user("someone", "tenant", "user")
            admin.submit([JobSpec(command=("true",), total_steps=1)] * 3)
        yield running


# The description needs no cluster behind it, and the tests are named before there is one.
schema = schemathesis.openapi.from_dict(describe(create_app(cast(Facade, None), FrontCounters())))


@schema.parametrize()
@settings(max_examples=10, suppress_health_check=list(HealthCheck))
def test_every_endpoint_answers_as_described(case: Any, front: Served) -> None:
    case.call_and_validate(
        base_url=front.url,
        headers={"Authorization": f"Bearer {front.admin}"},
        checks=CHECKS,
        timeout=120,
    )
