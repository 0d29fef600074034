"""Routing F.scaled_dot_product_attention through Backlight."""

import collections
import logging
import threading

import torch

from . import _attention, _call
from ._options import check_scale
from .errors import Error

logger = logging.getLogger("backlight")

# Contexts may be nested, and entered in several threads: the function is put back with the last one.
_lock = threading.Lock()
_active = []
_original = None
_capabilities = {}


@torch.compiler.assume_constant_result
def _capability(device_index):
    found = _capabilities.get(device_index)
    if found is None and not torch.cuda.is_available():
        return (9, 0)  # The tensor is a fake one, of a device that is elsewhere.
    if found is None:
        found = _capabilities[device_index] = torch.cuda.get_device_capability(device_index)
    return found


def why_not(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """Why a call of F.scaled_dot_product_attention is left to PyTorch; None where Backlight takes it."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, torch.Tensor):
            return f"{name} is no tensor"
        if tensor.device.type not in _call._DEVICE_TYPES:
            return f"{name} is on {tensor.device}, not on a CUDA device"
        if tensor.is_nested:
            return f"{name} is a nested tensor"
    if attn_mask is not None:
        return "attn_mask is given"
    if dropout_p != 0.0:
        return f"dropout_p is {dropout_p}, not 0"
    if not _attention._needs_gradient(query, key, value):
        return "no gradient is wanted"
    q, k, v = _attention._under_autocast(query, key, value)
    try:
        _call.check_dense(q, k, v, False, enable_gqa)
        check_scale(scale)
    except Error as error:
        return str(error)
    if 0 in (*q.shape, *k.shape):
        return "a tensor is empty"
    if query.is_cuda and _capability(query.device.index) < (9, 0):
        return "the device is of a compute capability below 9.0"
    return None


class Routing:
    """What a `patch_sdpa` has done: calls that were routed, and why others were not, with how often each.

    Calls within a compiled graph are decided when it is traced, and not counted.
    """

    def __init__(self, explain):
        self.explain = explain
        self.routed = 0
        self.reasons = collections.Counter()

    def note(self, reason):
        if reason is None:
            self.routed += 1
            return
        if self.explain and reason not in self.reasons:
            logger.warning("scaled_dot_product_attention is left to PyTorch: %s", reason)
        self.reasons[reason] += 1


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """What F.scaled_dot_product_attention is within `patch_sdpa`."""
    reason = why_not(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if not torch.compiler.is_compiling():
        for routing in _active:
            routing.note(reason)
    if reason is None:
        return _attention.attention(
            query, key, value, causal=is_causal, softmax_scale=scale, enable_gqa=enable_gqa
        )
    # Releases before 2.5 know no enable_gqa.
    more = {"enable_gqa": True} if enable_gqa else {}
    return _original(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale, **more)


class patch_sdpa:
    """Within this context, torch.nn.functional.scaled_dot_product_attention is Backlight's where it can be.

        with backlight.patch_sdpa(explain=True) as routing:
            loss(model(x)).backward()
        print(routing.routed, routing.reasons)

    A call is routed if it wants a gradient, has no mask and no dropout, and has tensors that `attention` takes; others
    go to PyTorch's function as before. Who has imported the function itself (`from torch.nn.functional import …`)
    keeps PyTorch's. It holds for all threads. With explain, each new reason is logged once (logger "backlight").
    """

    def __init__(self, explain=False):
        self._routing = Routing(explain)

    def __enter__(self):
        global _original
        with _lock:
            if not _active:
                _original = torch.nn.functional.scaled_dot_product_attention
                torch.nn.functional.scaled_dot_product_attention = scaled_dot_product_attention
            _active.append(self._routing)
        return self._routing

    def __exit__(self, *exception):
        with _lock:
            if self._routing not in _active:
                raise Error("patch_sdpa was left without having been entered")
            _active.remove(self._routing)
            if not _active:
                torch.nn.functional.scaled_dot_product_attention = _original
