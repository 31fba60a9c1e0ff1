"""The one exception that means: the input is wrong, not the program."""


class InputError(ValueError):
    """Something the user gave cannot be used.

    The message is one sentence that names the field, its value and the remedy. The command line prints it without a
    traceback and exits with status 2; in a notebook it is an ordinary `ValueError`.
    """
