"""Exit codes, and the one place that turns an error into a code and one clear line."""

from __future__ import annotations

from broker import errors

OK, ERROR, USAGE, NOT_FOUND, REFUSED, TIMED_OUT, UNREACHABLE, JOB_FAILED, UNVERIFIED = range(9)
#: Ctrl-C, as shells count it.
INTERRUPTED = 130

#: The first family that fits decides.
CODES: tuple[tuple[type[Exception], int], ...] = (
    (errors.Invalid, USAGE),
    (errors.NotFound, NOT_FOUND),
    (errors.Refused, REFUSED),
    (errors.TimedOut, TIMED_OUT),
    (errors.Unavailable, UNREACHABLE),
    (errors.JobFailed, JOB_FAILED),
    (errors.Untrusted, UNVERIFIED),
)

#: A refusal by one of these rules means that there is no such job.
UNKNOWN_RULES = frozenset({"unknown", "tombstoned"})


class Exit(Exception):
    """The command ends with this code, after this line on stderr (if any)."""

    def __init__(self, code: int, line: str = "") -> None:
        super().__init__(line)
        self.code = code
        self.line = line


def judge(error: Exception) -> tuple[int, str]:
    """The exit code of an error, and what to say."""
    if isinstance(error, Exit):
        return error.code, error.line
    if isinstance(error, errors.Refused) and error.rule in UNKNOWN_RULES:
        return NOT_FOUND, str(error)
    for family, code in CODES:
        if isinstance(error, family):
            return code, str(error)
    if isinstance(error, errors.BrokerError | OSError):
        return ERROR, str(error)
    return ERROR, f"{type(error).__name__}: {error} (BROKER_LOG_LEVEL=debug shows where)"
