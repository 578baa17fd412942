"""The command line. `main` finds the command, imports its module and nothing else, and answers with an exit code.

A command is a typer function, or an application of several verbs, in a module of its own name or group
(`broker.cli.commands` is the table); here is what all of them share: one line on stderr for an error, quiet on Ctrl-C
and on a closed pipe, and no import before it is needed, so that `broker --help` is instant.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name) and return its exit code; never raises."""
    words = list(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    try:
        code = _dispatch(words)
        sys.stdout.flush()
    except BrokenPipeError:
        code = 0  # the reader has seen enough
    except KeyboardInterrupt:
        from broker.cli.exits import INTERRUPTED

        code = INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the one place where every error ends
        code = _tell(error, words[0] if words else "")
    _flush_or_discard()
    return code


def _dispatch(words: list[str]) -> int:
    from broker.cli.commands import COMMANDS, overview

    if "_BROKER_COMPLETE" in os.environ or words[:1] in (
        ["--install-completion"],
        ["--show-completion"],
    ):
        _typer(COMMANDS).main(args=words, prog_name="broker")
        return 0
    if words[:1] in ([], ["--help"], ["-h"], ["help"]):
        print(overview())
        return 0 if words else 2
    if words[0] == "--version":
        from importlib.metadata import version

        print(f"fleet-broker {version('fleet-broker')}")
        return 0
    name = words[0]
    if name not in COMMANDS:
        raise _unknown(name, list(COMMANDS))
    return _invoke(_typer([name]), words[1:], f"broker {name}")


def _typer(names: Sequence[str] | dict[str, Any]) -> Any:
    """A typer application of these commands alone."""
    from importlib import import_module

    import typer

    from broker.cli.commands import COMMANDS

    whole = len(names) > 1
    app = typer.Typer(add_completion=whole, rich_markup_mode=None, pretty_exceptions_enable=False)
    for name in names:
        found = getattr(import_module(COMMANDS[name].module), name)
        if not isinstance(found, typer.Typer):
            app.command(name, context_settings={"help_option_names": ["-h", "--help"]})(found)
        elif whole:
            app.add_typer(found, name=name)
        else:  # a command of several verbs
            return typer.main.get_command(found)
    return typer.main.get_command(app)


def _invoke(command: Any, words: list[str], name: str) -> int:
    """Run a command without click's own handling of errors, signals and closed pipes: `main` has one for all."""
    import typer

    try:
        with command.make_context(name, words) as context:
            command.invoke(context)
    except typer.Exit as end:  # --help
        return int(end.exit_code)
    return 0


def _unknown(name: str, known: list[str]) -> Exception:
    from difflib import get_close_matches

    from broker.cli.exits import USAGE, Exit

    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else "broker --help lists them"
    return Exit(USAGE, f"there is no command {name!r}; {hint}")


def _tell(error: Exception, name: str) -> int:
    """Say what went wrong in one line, and give the exit code."""
    from broker.cli.exits import USAGE, Exit, judge
    from broker.text import safe

    is_plain = isinstance(error, Exit) or hasattr(error, "format_message")
    if not is_plain and os.environ.get("BROKER_LOG_LEVEL", "").lower() == "debug":
        import traceback

        traceback.print_exception(error)
    usage = getattr(error, "format_message", None)  # typer's own: a wrong option or argument
    if found := getattr(error.__cause__, "errors", None):  # and what it has checked by pydantic
        from broker.worded import worded

        error.message = worded(found()[0])  # type: ignore[attr-defined]
    said = " ".join(usage().split()) if usage else ""  # a list of choices comes in lines of its own
    code, line = (USAGE, f"{said} (broker {name} --help)") if usage else judge(error)
    if line:
        print(f"broker: {safe(line.strip())}", file=sys.stderr)
    return code


def _prepare_streams() -> None:
    """Closed streams become empty ones, and no character is unprintable."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
        reconfigure = getattr(getattr(sys, name), "reconfigure", None)
        if reconfigure:
            reconfigure(errors="backslashreplace")


def _flush_or_discard() -> None:
    """What nobody can take any more must not be complained about when the interpreter exits."""
    try:
        sys.stdout.flush()
    except OSError:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except (OSError, ValueError):
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
