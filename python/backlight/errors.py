"""Exceptions of the package: each is an `Error` and one of Python's own kinds."""

__all__ = ["ArgumentError", "ArgumentTypeError", "DeviceError", "Error", "UnsupportedError"]


class Error(Exception):
    """What the package raises. `code` is the library's name of the reason, such as "invalid_argument"."""

    code = "failed"


class ArgumentError(Error, ValueError):
    """An argument has a value that breaks a rule; the text names all three."""

    code = "invalid_argument"


class ArgumentTypeError(Error, TypeError):
    """An argument is of a type, or a tensor of a dtype, that is not taken."""

    code = "invalid_argument"


class UnsupportedError(Error, NotImplementedError):
    """The request is well formed, but there is nothing that serves it."""

    code = "unsupported"


class DeviceError(Error, RuntimeError):
    """The driver, the device, the compiler or a file failed, or is not there."""


_CLASSES = {
    "invalid_argument": ArgumentError,
    "unknown_kernel": ArgumentError,
    "workspace_too_small": ArgumentError,
    "shared_memory_exceeded": ArgumentError,
    "unsupported": UnsupportedError,
    "unsupported_device": UnsupportedError,
}


def of_code(code, text):
    """The exception for an error of the library's."""
    error = _CLASSES.get(code, DeviceError)(text)
    error.code = code
    return error
