"""How decoders speak of damage: small parts raise without a name, the outermost one adds the file's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakeplan.errors import FormatError

HINT = "The file is damaged or is not a lakeFS file; nothing was taken from it."


def damaged(message: str) -> FormatError:
    """A FormatError that does not know its file yet; ``blame`` adds the name."""
    return FormatError(message, hint=HINT)


LIMIT_HINT = "See docs/limits.md. Nothing was taken from the file."


@contextmanager
def blame(name: str) -> Iterator[None]:
    """Names the file in every FormatError raised inside, and turns a read past the end of a buffer
    (IndexError) or bytes that are not UTF-8 into one."""
    try:
        yield
    except FormatError as error:
        if not error.where:
            error.where = name
        raise
    except IndexError as error:
        raise FormatError("ends in the middle of a value", where=name, hint=HINT) from error
    except UnicodeDecodeError as error:
        raise FormatError("text that is not UTF-8", where=name, hint=HINT, detail=str(error)) from error
