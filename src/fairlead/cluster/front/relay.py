"""Calls of the facade from the front to the driver's process.

Arguments and results travel as msgpack of the types that ``facade.Facade`` declares, so a method that is
added there needs nothing here.
"""

import inspect
import logging
import typing
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, Protocol

import msgspec

from fairlead.cluster.front.errors import pack
from fairlead.cluster.front.facade import Facade
from fairlead.cluster.front.messages import Call, CallAnswer
from fairlead.cluster.protocol.access import TokenKind
from fairlead.cluster.protocol.api_models import Explanation, JobView
from fairlead.cluster.protocol.messages import Register, Welcome
from fairlead.errors import ConfigError, FairleadError

_log = logging.getLogger(__name__)
THREADS = 64  # calls that wait for the driver at once
# Of the facade: answered by the front itself
LOCAL = frozenset(
    (
        *("authenticate", "log", "metrics", "backup", "audit", "accounting"),
        *("find_jobs", "failed_nodes", "usage", "searches", "search", "search_curves"),
    )
)
READ_CALLS = frozenset(  # answered without the driver's thread
    (
        "job",
        "jobs",
        "jobs_of",
        "attempts",
        "explain",
        "what_if",
        "status",
        "samples",
        "metrics_text",
    )
)
JOB_CALLS = frozenset(("job", "jobs", "jobs_of", "attempts", "explain"))  # tell what became of jobs
REGISTER = "register"  # a call of an agent, whose answer comes as a future


class DriverInterface(Protocol):
    """The calls to the driver's process that the front may make, beside the methods of the facade."""

    def register(self, message: Register, token: TokenKind) -> Future[Welcome]:
        """A node comes up. token: with which it comes."""

    def metrics_text(self) -> str:
        """Return the driver's counters in the text format of Prometheus."""


class Signature(typing.NamedTuple):
    """The codecs of a method's arguments and result."""

    parameters: inspect.Signature  # without self
    arguments: "msgspec.msgpack.Decoder[Any]"
    result: "msgspec.msgpack.Decoder[Any]"


@cache
def signature(method: str) -> Signature:
    """Return the signature of a facade method that is relayed. Raises AttributeError for any other name."""
    declared = vars(Facade).get(method) or getattr(DriverInterface, method)
    hints = typing.get_type_hints(declared)
    found = inspect.signature(declared)
    bare = found.replace(parameters=list(found.parameters.values())[1:])  # without self
    arguments: Any = tuple[*(hints[name] for name in bare.parameters)]  # type: ignore[misc]
    result = Welcome if method == REGISTER else hints["return"]
    return Signature(bare, msgspec.msgpack.Decoder(arguments), msgspec.msgpack.Decoder(result))


def encode_arguments(method: str, given: tuple[Any, ...], named: dict[str, Any]) -> msgspec.Raw:
    """All arguments of a call in order. Raises ConfigError for numbers that do not exist."""
    bound = signature(method).parameters.bind(*given, **named)
    bound.apply_defaults()
    try:
        return msgspec.Raw(msgspec.msgpack.encode(bound.args))
    except OverflowError:
        raise ConfigError(f"{method}: a number is larger than 2^64") from None


class CallService:
    """Answers the calls of the front, in the driver's process; each waits on a thread of its own."""

    def __init__(
        self,
        driver: DriverInterface,
        send: Callable[[CallAnswer], None],
        *,
        wait: Callable[[], None],
        wait_until_written: Callable[[Collection[int]], None],
    ) -> None:
        """wait: for the driver's thread, before a question is answered beside it; wait_until_written: until
        what was read of these jobs is durable, raises StoreError where it cannot be made so."""
        self._wait = wait
        self._wait_until_written = wait_until_written
        self._driver = driver
        self._send = send
        self._pool = ThreadPoolExecutor(THREADS, "call")

    def close(self) -> None:
        """Calls under way are not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def take(self, call: Call) -> None:
        """Have it answered. Any thread; returns at once."""
        if call.method == REGISTER:  # it comes by the thousand, and waits for the driver alone
            self._take_register(call)
        else:
            self._pool.submit(self._answer, call)

    def _answer(self, call: Call) -> None:
        try:
            if call.method in READ_CALLS:
                self._wait()
            arguments = signature(call.method).arguments.decode(call.arguments)
            result = getattr(self._driver, call.method)(*arguments)
            if call.method in JOB_CALLS:
                self._wait_until_written(_jobs_of(result))
        except Exception as problem:
            self._refuse(call, problem)
        else:
            self._send(_answer_of(call, result))

    def _take_register(self, call: Call) -> None:
        def answered(future: "Future[Welcome]") -> None:
            problem = future.exception()
            if problem is not None:
                self._refuse(call, problem)
            else:
                self._send(_answer_of(call, future.result()))

        try:
            message, token = signature(REGISTER).arguments.decode(call.arguments)
            self._driver.register(message, token).add_done_callback(answered)
        except Exception as problem:
            self._refuse(call, problem)

    def _refuse(self, call: Call, problem: BaseException) -> None:
        if not isinstance(problem, FairleadError):
            _log.error("a call of %s failed", call.method, exc_info=problem)
        self._send(CallAnswer(number=call.number, problem=pack(problem)))


def _jobs_of(result: Any) -> set[int]:
    """Return the jobs of which an answer tells."""
    if isinstance(result, Explanation):
        return {result.job.id}
    if isinstance(result, JobView):
        return {result.id}
    return {one.id if isinstance(one, JobView) else one.job for one in result}


def _answer_of(call: Call, result: object) -> CallAnswer:
    return CallAnswer(number=call.number, result=msgspec.Raw(msgspec.msgpack.encode(result)))
