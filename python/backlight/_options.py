"""What callers say of the attention that they want, without any framework."""

import math

from .errors import ArgumentError, UnsupportedError

LAYOUTS = ("bhsd", "bshd")
ALIGNMENTS = ("top_left", "bottom_right")


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
        if bound is None:
            bound = -1
        if isinstance(bound, bool) or not isinstance(bound, int) or bound < -1:
            raise ArgumentError(f"{name} is {bound!r}: it must be a whole number, or None or -1 for no bound")
        bounds.append(bound)
    return tuple(bounds)


def choice(name, value, values):
    if value not in values:
        raise ArgumentError(f"{name} is {value!r}: it must be " + " or ".join(repr(v) for v in values))
    return value


def check_scale(softmax_scale):
    if softmax_scale is not None and not (
        isinstance(softmax_scale, (int, float)) and math.isfinite(softmax_scale) and abs(softmax_scale) <= 1e38
    ):
        raise ArgumentError(f"softmax_scale is {softmax_scale!r}: it must be None or a number from -1e38 to 1e38")
    return softmax_scale


def check_head_dim(name, head_dim):
    if head_dim % 8 or not 8 <= head_dim <= 256:
        raise UnsupportedError(f"head_dim of {name} is {head_dim}: it must be a multiple of 8 from 8 to 256")
