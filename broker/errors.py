"""Every error of the project, in families by who must act.

Callers catch a family, not a line: `Refused` and `Invalid` are the caller's to mend, `Unavailable` is Redis's
(retry), `Misconfigured`, `Damaged` and `Unwritable` the operator's, `Untrusted` a peer's. A refused *event* is no
error: it is an answer (see `broker.rules.merge`); only a call that asked for one effect and did not get it raises
`Refused`.
"""


class BrokerError(Exception):
    """The root: whatever fleet-broker raises on purpose."""


class Invalid(BrokerError, ValueError):
    """The caller gave a value outside its bounds; the message names it.

    `key` names the job that it was said of, as far as an event tells; `field` what holds the value, where that has a
    name; `index` the place from 0 of what holds it, in a list. Empty, or None, elsewhere.
    """

    index: int | None = None

    def __init__(self, message: str = "", key: str = "", field: str = "") -> None:
        super().__init__(message)
        self.key = key
        self.field = field


class Malformed(Invalid):
    """The caller sent what is no event at all: no JSON object, or none that names an event we know."""


class NotFound(BrokerError, LookupError):
    """The caller named a job, node or log that is not known."""


class Refused(BrokerError):
    """The caller asked for something that the rules do not allow; `rule` is its name in the merge table."""

    def __init__(self, rule: str, message: str = "") -> None:
        super().__init__(message or f"refused: {rule}")
        self.rule = rule


class TimedOut(BrokerError, TimeoutError):
    """The caller's own deadline passed while it waited; nothing was lost."""


class JobFailed(BrokerError):
    """The job that the caller waited for failed, was cancelled or was removed."""


class Gone(BrokerError):
    """The reader's cursor no longer fits the log of `origin`: it must list that origin again."""

    def __init__(self, origin: str, why: str) -> None:
        super().__init__(
            f"the log of {origin} no longer holds this position ({why}): list it again"
        )
        self.origin = origin
        self.why = why


class Resync(BrokerError):
    """The reader fell behind what is kept for it, or has not listed yet: it must take a snapshot."""


class Unavailable(BrokerError, ConnectionError):
    """Redis did not take the call (down, full, read-only, loading, busy): nothing is lost; retry."""


class Unanswered(Unavailable):
    """Redis did not answer: the call may have been taken or not; to repeat it does no harm where it names itself."""


class Busy(Unavailable):
    """This process has too many calls in hand: this one was not made; retry in a moment."""


class Unwritable(BrokerError, OSError):
    """The disk did not take a write (full, read-only, failing): nothing is lost; retry once it is mended."""


class Damaged(BrokerError):
    """A key holds what it should not (wrong type, unreadable value): the operator must look at it."""


class Misconfigured(BrokerError):
    """The operator's settings or the server found do not fit; the message says what to change."""


class Untrusted(BrokerError):
    """A peer's word could not be verified; `rule` names what failed (`expired`, `bad_signature`, ...)."""

    def __init__(self, rule: str, message: str = "") -> None:
        super().__init__(message or f"not trusted: {rule}")
        self.rule = rule
