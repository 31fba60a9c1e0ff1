"""The exception for wrong input."""

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class InputError(ValueError):
    """The user's input is wrong, not the program.

    The message is one sentence that names the field, its value and the remedy. The command line prints it without a
    traceback and exits with status 2; in a notebook it is an ordinary `ValueError`. Half a surrogate
    pair, which cannot be printed, and control characters, such as a line break in the name of a file, are escaped.

    >>> str(InputError("a\\nb.png is empty"))
    'a\\\\nb.png is empty'
    """

    def __init__(self, message: str):
        escaped = _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), message)
        super().__init__(escaped.encode("utf-8", "backslashreplace").decode())
