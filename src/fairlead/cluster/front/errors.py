"""Errors on their way from the driver's process to the front: the class is kept, and the sentence."""

from collections.abc import Iterator

from fairlead.cluster.front import facade  # defines classes of errors
from fairlead.cluster.front.messages import CallProblem
from fairlead.errors import FairleadError


def pack(problem: BaseException) -> CallProblem:
    """The error as a message. What was not raised on purpose is told without its sentence."""
    if not isinstance(problem, FairleadError):
        return CallProblem(
            kinds=(), sentence="the driver made a mistake; the server's log says more"
        )
    kinds = [kind.__name__ for kind in type(problem).__mro__ if issubclass(kind, FairleadError)]
    wait_s = problem.wait_s if isinstance(problem, facade.TooManyError) else None
    return CallProblem(kinds=tuple(kinds), sentence=str(problem), wait_s=wait_s)


def unpack(problem: CallProblem) -> Exception:
    """The error again: of its own class, or of the nearest above it that this process knows."""
    if problem.wait_s is not None:
        return facade.TooManyError(problem.sentence, problem.wait_s)
    known = {kind.__name__: kind for kind in _kinds(FairleadError)}
    for name in problem.kinds:
        if name in known:
            return known[name](problem.sentence)
    return RuntimeError(problem.sentence)


def _kinds(root: type[FairleadError]) -> Iterator[type[FairleadError]]:
    yield root
    for kind in root.__subclasses__():
        yield from _kinds(kind)
