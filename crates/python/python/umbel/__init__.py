"""Set-membership filters at memory speed, the same on every machine that asks.

>>> import umbel
>>> seen = umbel.Filter(1_000_000, 0.001)
>>> seen.add("https://example.org/")
True
>>> "https://example.org/" in seen, "https://example.org/other" in seen
(True, False)
"""

from ._umbel import (
    Answer,
    Client,
    ClosedError,
    CorruptError,
    CountingFilter,
    Error,
    Filter,
    FullError,
    MismatchError,
    RefusedError,
    Replica,
    UnreachableError,
    UnsupportedError,
    __version__,
)

__all__ = [
    "Answer",
    "Client",
    "ClosedError",
    "CorruptError",
    "CountingFilter",
    "Error",
    "Filter",
    "FullError",
    "MismatchError",
    "RefusedError",
    "Replica",
    "UnreachableError",
    "UnsupportedError",
    "__version__",
]
