"""The one exception users meet when what they passed in cannot be used."""


class InputError(ValueError):
    """Bad input: the message names the argument, what was expected, what came and what to do.

    It is a `ValueError`, so existing `except ValueError` handlers keep working; the command line
    turns it into one line and exit code 2.
    """


class ProcessError(RuntimeError):
    """Another process of a distributed selection ended or hangs; this one cannot go on."""
