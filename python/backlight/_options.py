"""What callers say of the attention that they want, without any framework."""

import math
import numbers

from .errors import ArgumentError, ArgumentTypeError, UnsupportedError

LAYOUTS = ("bhsd", "bshd")
ALIGNMENTS = ("top_left", "bottom_right")
FORWARDS = ("auto", "flash", "cudnn")

_MOST_BOUND = 2**63 - 1
MOST_BOUND_OF_FLASH = 2**31 - 1  # FlashAttention-2 keeps its bounds in 32 bits.
_MOST_LENGTH = 2**30  # The library's own.


class Options:
    """How attention is computed, apart from the shapes.

    Windows are as many keys before and after a query's own as it attends to; -1 where there is no bound.
    """

    __slots__ = (
        "causal", "top_left", "window_left", "window_right", "softmax_scale", "deterministic", "bshd", "forward",
    )

    def __init__(
        self, causal, top_left, window_left, window_right, softmax_scale, deterministic, bshd=False, forward="auto"
    ):
        self.causal = causal
        self.top_left = top_left
        self.window_left = window_left
        self.window_right = window_right
        self.softmax_scale = softmax_scale
        self.deterministic = deterministic
        self.bshd = bshd
        self.forward = forward

    @property
    def right(self):
        """The bound that the causal mask and the window make together."""
        if not self.causal:
            return self.window_right
        return 0


def window_of(window):
    """(left, right), each -1 where unbounded."""
    if window is None:
        return -1, -1
    try:
        left, right = window
    except (TypeError, ValueError):
        raise ArgumentError(
            f"window is {window!r}: it must be None or two numbers, the keys before and after a query's own"
        ) from None
    bounds = []
    for name, bound in (("window[0]", left), ("window[1]", right)):
        bounds.append(check_bound(name, -1 if bound is None else bound))
    return tuple(bounds)


def check_bound(name, bound):
    if isinstance(bound, bool) or not isinstance(bound, (int, numbers.Integral)) or not -1 <= bound <= _MOST_BOUND:
        raise ArgumentError(
            f"{name} is {bound!r}: it must be a whole number below 2**63, or None or -1 for no bound"
        )
    return int(bound)


def check_max_seqlen(name, length, kinds=int):
    """`kinds`: the types that are taken. Of a symbolic length, only what it must not be is asked."""
    if isinstance(length, bool) or not isinstance(length, kinds) or length < 0:
        raise ArgumentError(f"{name} is {length!r}: it must be a whole number from 0 on")
    if isinstance(length, int) and length > _MOST_LENGTH:
        raise ArgumentError(f"{name} is {length!r}: it must be at most {_MOST_LENGTH}")


def flag(name, value):
    """A bool, or a number or a NumPy or PyTorch scalar that stands for one."""
    if isinstance(value, int) or (hasattr(value, "dtype") and getattr(value, "shape", None) == ()):
        return bool(value)
    raise ArgumentTypeError(f"{name} is {value!r}: it must be True or False")


def choice(name, value, values):
    if not isinstance(value, str) or value not in values:
        raise ArgumentError(f"{name} is {value!r}: it must be " + " or ".join(repr(v) for v in values))
    return value


def check_scale(softmax_scale):
    if softmax_scale is not None and not (
        isinstance(softmax_scale, (int, float, numbers.Real))
        and abs(softmax_scale) <= 1e38
        and math.isfinite(softmax_scale)
    ):
        raise ArgumentError(f"softmax_scale is {softmax_scale!r}: it must be None or a number from -1e38 to 1e38")
    return softmax_scale


def check_head_dim(name, head_dim):
    if head_dim % 8 or not 8 <= head_dim <= 256:
        raise UnsupportedError(f"head_dim of {name} is {head_dim}: it must be a multiple of 8 from 8 to 256")
