"""Commands that are imported when they are called: asking a server needs no solver and no data frames."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from fairlead.cli import interrupts

_NEGATIVE = re.compile(r"-(\d[\d_.eE+-]*|\.\d+|inf|nan)")
AFTER_DASHES = "fairlead.after_dashes"  # in the context's meta: the words behind the first --


class Command(TyperCommand):
    """A command that knows which of its words came after ``--``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Click drops the ``--`` itself; so this remembers where it was. An option that is named in
        ``repeatable`` of the command's function takes all words up to the next option."""
        ctx.meta[AFTER_DASHES] = args[args.index("--") + 1 :] if "--" in args else []
        words = _repeated(args, getattr(self.callback, "repeatable", ()))
        without_negative = ["0" if _NEGATIVE.fullmatch(word) else word for word in words]
        if without_negative != list(words):  # a number, and no option; any other may be a wrong one
            self.make_parser(ctx).parse_args(args=without_negative)
            ctx.ignore_unknown_options = True
        try:
            self._check_given_once(ctx, words)
            left = super().parse_args(ctx, list(words))
            self._check_unicode(ctx)
            return left
        except typer.BadParameter as problem:
            problem.message = self._with_value(problem, ctx, words)
            raise

    def _check_given_once(self, ctx: Any, words: list[str]) -> None:
        """Raise BadParameter where an option that has one value is given several times: the last would
        silently win."""
        order: list[Any] = self.make_parser(ctx).parse_args(args=list(words))[2]
        for param in order:
            takes_one = param.param_type_name == "option" and not (param.multiple or param.is_flag)
            if takes_one and not param.count and order.count(param) > 1:
                raise typer.BadParameter("is given twice, and takes one value", ctx, param)

    def _check_unicode(self, ctx: Any) -> None:
        """Raise BadParameter for a text whose bytes are not UTF-8: only paths can be of any bytes."""
        params: list[Any] = list(self.get_params(ctx))
        for param in params:
            value = ctx.params.get(param.name)
            for text in value if isinstance(value, list | tuple) else [value]:
                if isinstance(text, str) and not _is_unicode(text):
                    raise typer.BadParameter("is not valid UTF-8", ctx, param)

    def _with_value(self, problem: Any, ctx: Any, words: list[str]) -> str:
        """The message of a problem, with the value that is wrong."""
        if problem.param is None or not problem.message:  # it is missing
            return str(problem.message)
        given = self.make_parser(ctx).parse_args(args=list(words))[0].get(problem.param.name)
        several = given if isinstance(given, list | tuple) else [given]
        values = ", ".join(repr(one) for one in several if one is not None)
        message = problem.message.rstrip(".")
        return message if values in message else f"{message}, got {values}"


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _repeated(args: list[str], repeatable: Sequence[str]) -> list[str]:
    """``--seeds 0 1`` as ``--seeds 0 --seeds 1``, which is how click takes several values."""
    found: list[str] = []
    option = ""
    for at, word in enumerate(args):
        if word.startswith("--"):
            option = word if word in repeatable else ""
            if word == "--":
                return [*found, *args[at:]]
        elif option and found[-1] != option:
            found.append(option)
        found.append(word)
    return found


@dataclass(frozen=True)
class LazyCommand:
    """A command, or a group of commands, and where it is."""

    name: str
    target: str  # module:name below fairlead.cli; a function or a typer.Typer
    help: str  # the first sentence of its own help (a test compares them)

    def load(self) -> Any:
        """Import the command and return it."""
        module, _, name = self.target.partition(":")
        found = getattr(import_module(f"fairlead.cli.{module}"), name)
        parent = typer.Typer(rich_markup_mode=None, add_completion=False)
        parent.callback()(lambda: None)
        if isinstance(found, typer.Typer):
            for one in found.registered_commands:
                one.cls = Command
            parent.add_typer(found, name=self.name)
        else:
            parent.command(self.name, cls=Command)(found)
        return typer.main.get_group(parent).commands[self.name]


class _Stub(TyperCommand):
    """Stands in a group for a command until that is called."""

    def __init__(self, lazy: LazyCommand) -> None:
        super().__init__(lazy.name, callback=None, help=lazy.help, short_help=lazy.help)
        self.lazy = lazy

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        """The context of the command itself, which runs in this one's place: its work begins now."""
        context = self.lazy.load().make_context(*arguments, **named)
        interrupts.raise_interrupt()
        return context


def group_of(commands: Iterable[LazyCommand]) -> type[TyperGroup]:
    """A group class whose commands are these."""

    class Group(TyperGroup):
        def __init__(self, **named: Any) -> None:
            super().__init__(**named)
            for one in commands:
                self.add_command(_Stub(one))

    return Group
