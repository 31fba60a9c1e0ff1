"""The exception for wrong input."""


class InputError(ValueError):
    """The user's input is wrong, not the program.

    The message is one sentence that names the field, its value and the remedy. The command line prints it without a
    traceback and exits with status 2; in a notebook it is an ordinary `ValueError`. Half a surrogate
    pair, which cannot be printed, is escaped.
    """

    def __init__(self, message: str):
        super().__init__(message.encode("utf-8", "backslashreplace").decode())
