"""The engine of a program: `type = "process"` in the configuration file.

Its argument list is a template, filled from the payload, one element each: no shell ever reads it, and no value can
become or make an option: one that begins with `-`, or an argument that does so once filled, is only taken after `--`.
"""

from __future__ import annotations

import codecs
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Self

from broker import Misconfigured
from workers.context import Context
from workers.engine import Permanent, Stopped
from workers.system import die_with_parent

#: How much of the output is kept for the result: the first bytes of stdout, the last ones of stderr. Even where JSON
#: needs six bytes for each of them, the result stays under 1 MiB.
KEPT_BYTES_MAX = 64 * 1024
#: How often the wish to stop is looked at, in seconds.
LOOK_SECONDS = 0.05
#: How long the pipes are read after the program's end, where a child of it holds them open; and how often they are
#: looked at in that while at least. A pipe may hold a MiB, and we may stand still just then.
DRAIN_SECONDS, DRAIN_LOOKS = 0.5, 20

_FIELD = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}|[{}]")


@dataclass(frozen=True, slots=True)
class ProcessEngine:
    """Runs one program for each job. Exit code 0 is success; any other is a failure that may be tried again, unless
    it is one of `permanent_exit_codes`.
    """

    argv: Sequence[str]
    permanent_exit_codes: frozenset[int] = frozenset()

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> Self:
        """Read `[engines.<name>]`; raises Misconfigured, naming what is wrong."""
        where = f"engines.{name}"
        if unknown := set(table) - {"argv", "permanent_exit_codes"}:
            raise Misconfigured(f"{where}: unknown setting {', '.join(sorted(unknown))}")
        argv = table.get("argv")
        if not (isinstance(argv, list) and argv and all(isinstance(part, str) for part in argv)):
            raise Misconfigured(f"{where}: argv must be a list of texts, the program first")
        if any("\0" in part for part in argv):
            raise Misconfigured(f"{where}: argv must not hold NUL characters")
        for part in argv:
            for found in _FIELD.finditer(part):
                if found[0] in ("{", "}"):
                    raise Misconfigured(
                        f"{where}: {part!r} holds a single {found[0]}: write {{name}} for a value, "
                        "{{ and }} for the characters"
                    )
        if _names(argv[0]):
            raise Misconfigured(f"{where}: the program itself cannot come from the payload")
        codes = table.get("permanent_exit_codes", [])
        if not (
            isinstance(codes, list)
            and all(type(code) is int and 1 <= code <= 255 for code in codes)
        ):
            raise Misconfigured(f"{where}: permanent_exit_codes must be a list of numbers 1 to 255")
        return cls(tuple(argv), frozenset(codes))

    def run(self, context: Context, payload: Any) -> dict[str, Any]:
        """Run it to its end; what it writes goes to the output lane as it comes."""
        argv = fill(self.argv, payload)
        ended = _Run(context, argv).to_end()
        if ended.code == 0:
            return ended.result()
        if ended.code in self.permanent_exit_codes:
            raise Permanent(ended.failure())
        raise ProgramFailed(ended.failure())


class ProgramFailed(Exception):
    """The program ended with an exit code other than 0, or by a signal."""


def fill(template: Sequence[str], payload: Any) -> list[str]:
    """The argument list for a payload. Raises Permanent where the payload does not fit the template."""
    filled = []
    literal = False  # whether `--` stands before
    for part in template:
        for name in _names(part):
            value = _value(payload, name)
            if value.startswith("-") and not literal:
                raise Permanent(
                    f"payload.{name} begins with '-', and this engine takes it where the program would "
                    "read an option"
                )
        argument = _FIELD.sub(lambda found: _text(found, payload), part)
        if argument.startswith("-") and not part.startswith("-") and not literal:
            raise Permanent(
                f"the argument {part!r} begins with '-' once it is filled, where the program would read an option"
            )
        filled.append(argument)
        literal = literal or part == "--"
    return filled


def _names(part: str) -> list[str]:
    return [found[1] for found in _FIELD.finditer(part) if found[1]]


def _text(found: re.Match[str], payload: Any) -> str:
    return _value(payload, found[1]) if found[1] else found[0][0]


def _value(payload: Any, name: str) -> str:
    if not isinstance(payload, dict) or name not in payload:
        raise Permanent(f"the payload has no {name!r}, which this engine needs")
    value = payload[name]
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise Permanent(f"payload.{name} must be a text or a number")
    text = str(value)
    if "\0" in text:
        raise Permanent(f"payload.{name} holds a NUL character")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise Permanent(f"payload.{name} is not valid Unicode text") from None
    return text


@dataclass(slots=True)
class _Run:
    """One run of the program."""

    context: Context
    argv: Sequence[str]
    code: int = 0
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    stdout_bytes: int = 0

    def to_end(self) -> Self:
        parent = os.getpid()
        environment = os.environ | {
            "BROKER_JOB": self.context.key,
            "BROKER_ATTEMPT": str(self.context.attempt),
        }
        try:
            # It stays in our process group: the worker kills that as a whole.
            program = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                preexec_fn=lambda: die_with_parent(parent),  # noqa: PLW1509 - we have no threads
            )
        except OSError as wrong:
            raise ProgramFailed(f"cannot run {self.argv[0]}: {wrong.strerror}") from None
        with program:
            try:
                self._follow(program)
            except BaseException:
                program.kill()
                raise
        self.code = program.returncode
        if self.context.saw_stop:
            raise Stopped
        return self

    def _follow(self, program: subprocess.Popen[bytes]) -> None:
        """Read what it writes until it ended; pass a wish to stop on."""
        assert program.stdout
        assert program.stderr
        decoders = {program.stdout: _decoder(), program.stderr: _decoder()}
        stopped = False
        ended_at, looks = 0.0, 0
        with selectors.DefaultSelector() as pipes:
            for pipe in decoders:
                pipes.register(pipe, selectors.EVENT_READ)
            while pipes.get_map():
                for ready, _ in pipes.select(
                    DRAIN_SECONDS / DRAIN_LOOKS if ended_at else LOOK_SECONDS
                ):
                    if not self._read(program, ready.fileobj, decoders):  # type: ignore[arg-type]
                        pipes.unregister(ready.fileobj)
                if self.context.cancelled and not stopped:
                    program.send_signal(signal.SIGTERM)
                    stopped = True
                now = time.monotonic()
                if program.poll() is not None:
                    looks += bool(ended_at)
                    ended_at = ended_at or now
                    if looks >= DRAIN_LOOKS and now - ended_at > DRAIN_SECONDS:
                        return
        while program.poll() is None:
            if self.context.cancelled and not stopped:
                program.send_signal(signal.SIGTERM)
                stopped = True
            try:
                program.wait(LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                continue

    def _read(
        self,
        program: subprocess.Popen[bytes],
        pipe: IO[bytes],
        decoders: dict[IO[bytes], codecs.IncrementalDecoder],
    ) -> bool:
        chunk = os.read(pipe.fileno(), KEPT_BYTES_MAX)
        if pipe is program.stdout:
            self.stdout_bytes += len(chunk)
            self.stdout += chunk[: KEPT_BYTES_MAX - len(self.stdout)]
        else:
            self.stderr += chunk
            del self.stderr[:-KEPT_BYTES_MAX]
        if text := decoders[pipe].decode(chunk, final=not chunk):
            self.context.write(text)
        return bool(chunk)

    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = {"exit_code": 0, "stdout": self.stdout.decode(errors="replace")}
        if self.stdout_bytes > len(self.stdout):
            result["stdout_bytes"] = self.stdout_bytes  # so many there were: it was cut
        return result

    def failure(self) -> str:
        """One line on how it ended, then the end of what it wrote to stderr."""
        if self.code < 0:
            try:
                how = f"killed by {signal.Signals(-self.code).name}"
            except ValueError:
                how = f"killed by signal {-self.code}"
        else:
            how = f"exit code {self.code}"
        said = self.stderr.decode(errors="replace").strip()
        last = said.rpartition("\n")[2]
        return f"{how}: {last}\n\n{said}" if said else how


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")(errors="replace")
