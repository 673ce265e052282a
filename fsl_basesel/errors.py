"""`InputError` for input that cannot be used, `ProcessError` for a failed process."""


class InputError(ValueError):
    """Bad input: the message names the argument, what was expected, what was found and what to do.

    It is a `ValueError`, so existing `except ValueError` handlers keep working; the command line
    turns it into one line and exit code 2.
    """


class ProcessError(RuntimeError):
    """Another process of a distributed selection ended or hangs; this one cannot continue."""
