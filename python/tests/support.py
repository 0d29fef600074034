"""What the tests share: references, and a stand-in for a GPU."""

import contextlib
import unittest
from unittest import mock

import torch

from backlight import _backlight, _call, _forward, _operators
from emulation import emulate

HAS_GPU = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)
needs_gpu = unittest.skipUnless(HAS_GPU, "there is no GPU of compute capability 9.0 or newer")
needs_emulation = unittest.skipUnless(_backlight.has_emulated_device, "this build has no emulated device")


def mask(seqlen_q, seqlen_kv, causal=False, window=(-1, -1), top_left=True, device="cpu"):
    """(seqlen_q, seqlen_kv), True where a query attends to a key."""
    shift = 0 if top_left else seqlen_kv - seqlen_q
    position = torch.arange(seqlen_q, device=device)[:, None] + shift
    key = torch.arange(seqlen_kv, device=device)[None, :]
    allowed = torch.ones(seqlen_q, seqlen_kv, dtype=torch.bool, device=device)
    if causal:
        allowed &= key <= position
    if window[0] >= 0:
        allowed &= key >= position - window[0]
    if window[1] >= 0:
        allowed &= key <= position + window[1]
    return allowed


def reference(q, k, v, allowed=None, scale=None):
    """O and LSE of (batch, heads, seqlen, head_dim), in the type of q throughout; O = 0 where nothing is attended
    to. Differentiable."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = (q @ k.mT) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    lse = torch.logsumexp(scores.float(), -1)
    nothing = torch.isneginf(lse)[..., None]
    p = torch.softmax(scores.masked_fill(nothing, 0), -1).masked_fill(nothing, 0)
    return p @ v, lse


def _as_flash_reads(window, most_keys):
    """Bounds as FlashAttention-2 takes them, with its mistakes where there are more queries than keys."""
    left, right = (-1 if bound >= most_keys else bound for bound in window)
    if left < 0 and right < 0:
        return left, right
    return (most_keys if left < 0 else left), (most_keys if right < 0 else right)


def _flash(q, k, v, cu_seqlens_q, cu_seqlens_kv, max_q, max_kv, dropout, causal, debug, *, scale, **more):
    """As PyTorch's _flash_attention_forward: (…, seqlen, heads, head_dim), masks aligned bottom-right."""
    assert q.shape[-1] == k.shape[-1] == v.shape[-1], "it has one head dimension"
    window = _as_flash_reads((more.get("window_size_left", -1), more.get("window_size_right", -1)), max_kv)
    used = more.get("seqused_k")

    def one(q, k, v):
        allowed = mask(q.shape[1], k.shape[1], causal, window, top_left=False)
        q, k, v = (x.transpose(1, 2).float() for x in (q, k, v))
        out, lse = reference(q, k, v, allowed, scale)
        return out.transpose(1, 2), lse

    if cu_seqlens_q is None:
        out, lse = one(q, k, v)
        return torch.empty_like(q).copy_(out), lse
    out, lse = torch.zeros_like(q), torch.zeros(q.shape[1], q.shape[0])
    for i in range(len(cu_seqlens_q) - 1):
        a, b = cu_seqlens_q[i : i + 2].tolist()
        c, d = cu_seqlens_kv[i : i + 2].tolist()
        if used is not None:
            d = c + int(used[i])
        one_out, one_lse = one(q[None, a:b], k[None, c:d], v[None, c:d])
        out[a:b], lse[:, a:b] = one_out[0], one_lse[0]
    return out, lse


def _flash_dense(q, k, v, dropout, causal, debug, *, scale):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out, lse = _flash(q, k, v, None, None, q.shape[1], k.shape[1], dropout, causal, debug, scale=scale)
    return out.transpose(1, 2), lse, None


class EmulatedPlan:
    """A plan of the emulated device on tensors of the process: its kernels may touch its own memory alone, so that
    all goes there and back."""

    def __init__(self, *request):
        self._plan = _PLAN(*request)
        self.workspace_bytes = self._plan.workspace_bytes

    def run(self, *arguments):
        inputs, outputs, workspace, (stream, *arrays) = arguments[:6], arguments[6:9], arguments[9], arguments[10:]
        if workspace is None:  # As where memory is short: the kernels may not use PyTorch's.
            return False
        kept = []

        def there(x):
            if x is None:
                return None
            extent = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride()))
            memory = _backlight.new_device_array(0, "uint8", (extent * x.element_size() + 8,))
            kept.append(memory)
            moved = torch.from_dlpack(memory)[: extent * x.element_size()].view(x.dtype).as_strided(x.shape, x.stride())
            # An expanded tensor is copied element by element onto itself.
            for_writing = moved.as_strided(*_unexpanded(moved))
            for_writing.copy_(x.as_strided(*_unexpanded(x), x.storage_offset()))
            return moved

        moved = [there(x) for x in outputs]
        if not self._plan.run(*map(there, inputs), *moved, there(workspace), stream, *map(there, arrays)):
            return False
        _backlight.synchronise(0, 0)
        for x, there_x in zip(outputs, moved):
            x.copy_(there_x)
        return True


def _unexpanded(x):
    return [1 if stride == 0 else size for size, stride in zip(x.shape, x.stride())], x.stride()


_PLAN = _backlight.plan
_implementations = []


@contextlib.contextmanager
def emulated_device():
    """CPU tensors are taken as CUDA ones are: PyTorch's forward is a reference, our backward runs on the emulated
    device."""
    emulate()
    if not _implementations:
        library = torch.library.Library("backlight", "IMPL")
        for name, implementation in _operators.IMPLEMENTATIONS.items():
            library.impl(name, implementation, "CPU")
        _implementations.append(library)
    with (
        mock.patch.object(_call, "_DEVICE_TYPES", {"cpu"}),
        mock.patch.object(_call, "_raw_stream", lambda device: 0),
        mock.patch.object(_backlight, "plan", EmulatedPlan),
        mock.patch.object(_forward, "_flash_dense", _flash_dense),
        mock.patch.object(_forward, "_flash_general", _flash),
    ):
        yield


def relative_error(actual, expected):
    actual, expected = actual.detach().double(), expected.detach().double()
    return float((actual - expected).norm() / expected.norm().clamp_min(1e-30))
