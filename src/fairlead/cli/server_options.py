"""Options that say which server to ask and as whom."""

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import typer

from fairlead.cli.client_config import find_connection
from fairlead.cli.option_records import set_parameters
from fairlead.cli.token_files import read_token
from fairlead.cluster.http_client import DEFAULT_URL, Client
from fairlead.cluster.protocol.plausible import one_line
from fairlead.errors import InputError

T = TypeVar("T")
_AT_ONCE = 16  # calls: each waits until it is durable
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
CaOption = Annotated[
    str | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        help="Certificates to trust, for an https server. Default: the variable FAIRLEAD_CA, else those of "
        "`fairlead login`.",
    ),
]
JobArgument = Annotated[int, typer.Argument(metavar="JOB", min=0, help="Id of the job.")]
JobsArgument = Annotated[list[int], typer.Argument(metavar="JOB...", min=0, help="Ids of jobs.")]


def connection(
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            metavar="URL",
            help="The server. Default: the variable FAIRLEAD_SERVER, else that of `fairlead login`, else "
            f"{DEFAULT_URL}.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="File with the token. Default: the variable FAIRLEAD_TOKEN, else that of `fairlead login`.",
        ),
    ] = None,
    ca: CaOption = None,
) -> Client:
    """The client that these options describe."""
    token = None if token_file is None else read_token(token_file)
    found = find_connection(server, token, ca)
    return Client(found.url, found.token, found.ca)


def asks_server(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is a ``Client`` gets the options of ``connection`` for it."""
    shared = inspect.signature(connection).parameters
    own_parameters = list(inspect.signature(command).parameters.values())[1:]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        with connection(**{name: given.pop(name) for name in shared}) as client:
            command(client, **given)

    set_parameters(run, [*own_parameters, *shared.values()])
    return run


def each(
    kind: str,
    names: Iterable[T],
    act: Callable[[T], list[str] | None],
    done: str | Callable[[T], str],
) -> None:
    """Call ``act`` for each name, several at once, and raise the first refusal at the end. act: returns
    sentences on what is lost by it; done: what is said of each then, behind its kind and name."""

    def said(name: T) -> ActionResult:
        lost = act(name) or ()
        return ActionResult(f"{kind} {name} {done if isinstance(done, str) else done(name)}", lost)

    raise_first(try_each(names, said))


class ActionResult(NamedTuple):
    """What is printed of something that was done."""

    line: str
    lost: Sequence[str] = ()  # sentences on what is lost by it


def try_each(names: Iterable[T], act: Callable[[T], ActionResult]) -> list[InputError]:
    """Call ``act`` for each name, several at once, and print what was done. Returns the refusals."""
    refused: list[InputError] = []
    distinct = list(dict.fromkeys(names))
    with ThreadPoolExecutor(min(_AT_ONCE, len(distinct) or 1)) as threads:
        first = [threads.submit(act, name) for name in distinct[:1]]
        wait(first)  # it opens the connection that all use
        for answer in [*first, *(threads.submit(act, name) for name in distinct[1:])]:
            try:
                done = answer.result()
                print(done.line, flush=True)
                warn(done.lost)
            except InputError as problem:
                refused.append(problem)
            except BaseException:  # the server is away: what has not been asked is not
                threads.shutdown(cancel_futures=True)
                raise
    return refused


def raise_first(refused: Sequence[InputError]) -> None:
    """Raise the first refusal, if there is one, after the others are printed."""
    warn(str(further) for further in refused[1:])
    if refused:
        raise refused[0]


def warn(sentences: Iterable[str]) -> None:
    """Print warnings on stderr."""
    for sentence in sentences:
        print(f"fairlead: {one_line(sentence)}", file=sys.stderr, flush=True)
