"""The operators `torch.ops.backlight.*`: what torch.compile, torch.export and dispatch modes see.

They take no default values, since releases differ in whether a default reaches the backward.
"""

import torch

from . import _backlight, _call
from ._options import FORWARDS, Options, check_bound, check_scale, choice
from .errors import ArgumentError

_OPTIONS = (
    "bool causal, bool top_left, int window_left, int window_right, float? softmax_scale, bool deterministic"
)
_PACKED = "Tensor cu_seqlens_q, Tensor cu_seqlens_kv, Tensor? seqused_q, Tensor? seqused_kv, SymInt max_seqlen_q, SymInt max_seqlen_kv"

SCHEMAS = {
    "attention_forward": f"(Tensor q, Tensor k, Tensor v, {_OPTIONS}, bool bshd, str forward) -> (Tensor, Tensor)",
    "attention_backward": "(Tensor d_o, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, "
    f"{_OPTIONS}, bool bshd) -> (Tensor, Tensor, Tensor)",
    "attention_varlen_forward": f"(Tensor q, Tensor k, Tensor v, {_PACKED}, {_OPTIONS}) -> (Tensor, Tensor)",
    "attention_varlen_backward": "(Tensor d_o, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, "
    f"{_PACKED}, {_OPTIONS}) -> (Tensor, Tensor, Tensor)",
}

_library = torch.library.Library("backlight", "DEF")
for _name, _schema in SCHEMAS.items():
    # Inductor is not to change the strides that the fake kernels were shown.
    _library.define(_name + _schema, tags=(torch.Tag.needs_fixed_stride_order,))

_find_backward = _backlight.find_backward

_calls = {}
_MOST_CALLS = 4096


def _kept(key, make):
    call = _calls.get(key)
    if call is None:
        call = make()
        if len(_calls) >= _MOST_CALLS:
            _calls.clear()
        _calls[key] = call
    return call


def _key(q, k, v):
    return q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype, q.device, k.device, v.device


def _checked(options):
    made = Options(*options)
    check_bound("window_left", made.window_left)
    check_bound("window_right", made.window_right)
    check_scale(made.softmax_scale)
    choice("forward", made.forward, FORWARDS)
    return made


def _dense(q, k, v, options):
    call = _kept((_key(q, k, v), options), lambda: _call.dense_call(q, k, v, _checked(options), True))
    _backlight.keep_call(q, k, v, options, call, call.o_shape, call.lse_shape)
    return call


def _packed(q, k, v, cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv, max_seqlens, options):
    arrays = tuple(
        None if x is None else (x.shape, x.dtype, x.device, x.is_contiguous())
        for x in (cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv)
    )
    return _kept(
        (_key(q, k, v), arrays, max_seqlens, options),
        lambda: _call.packed_call(
            q, k, v, cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv, max_seqlens, _checked(options), True
        ),
    )


def _empty_out(q, head_dim_v):
    """O as the operators give it: dense, its dimensions in the order that those of q have in memory."""
    if q.shape[-1] == head_dim_v:
        return torch.empty_like(q)
    if q.dim() == 4 and not q.is_contiguous() and q.transpose(1, 2).is_contiguous():
        b, h, s, _ = q.shape
        return q.new_empty((b, s, h, head_dim_v)).transpose(1, 2)
    return q.new_empty((*q.shape[:-1], head_dim_v))


def _as_promised(o, q):
    """O with the strides that the fake kernel has told."""
    if o.shape == q.shape and o.stride() == q.stride():
        return o
    promised = _empty_out(q, o.shape[-1])
    return o if o.stride() == promised.stride() else promised.copy_(o)


def forward(q, k, v, causal, top_left, window_left, window_right, softmax_scale, deterministic, bshd, forward):
    options = (causal, top_left, window_left, window_right, softmax_scale, deterministic, bshd, forward)
    call = _backlight.find_call(q, k, v, options) or _dense(q, k, v, options)
    o, lse = call.forward(*_call.readable(q, k, v))
    return _as_promised(o, q), lse


def backward(
    d_o, q, k, v, o, lse, causal, top_left, window_left, window_right, softmax_scale, deterministic, bshd
):
    options = (causal, top_left, window_left, window_right, softmax_scale, deterministic, bshd, "auto")
    call = _find_backward(d_o, q, k, v, o, lse, options)
    if call is not None:
        return call.backward(d_o, q, k, v, o, lse)
    call = _dense(q, k, v, options)
    _check_rows(call, d_o, o, lse)
    return _promised_gradients(call, d_o, q, k, v, o, lse)


def varlen_forward(
    q, k, v, cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv, max_seqlen_q, max_seqlen_kv, causal, top_left,
    window_left, window_right, softmax_scale, deterministic,
):  # fmt: skip
    options = (causal, top_left, window_left, window_right, softmax_scale, deterministic)
    call = _packed(
        q, k, v, cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv, (max_seqlen_q, max_seqlen_kv), options
    )
    o, lse = call.forward(*_call.readable(q, k, v), cu_seqlens_q, cu_seqlens_kv, seqused_kv)
    return _as_promised(o, q), lse


def varlen_backward(
    d_o, q, k, v, o, lse, cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv, max_seqlen_q, max_seqlen_kv, causal,
    top_left, window_left, window_right, softmax_scale, deterministic,
):  # fmt: skip
    options = (causal, top_left, window_left, window_right, softmax_scale, deterministic)
    call = _packed(
        q, k, v, cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv, (max_seqlen_q, max_seqlen_kv), options
    )
    _check_rows(call, d_o, o, lse)
    return _promised_gradients(
        call, d_o, q, k, v, o, lse, cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv
    )


def _check_rows(call, d_o, o, lse):
    for name, tensor, shape, dtype in (
        ("d_o", d_o, call.o_shape, call.dtype), ("o", o, call.o_shape, call.dtype),
        ("lse", lse, call.lse_shape, torch.float32),
    ):  # fmt: skip
        if tensor.shape != shape or tensor.dtype != dtype or tensor.device != call.device:
            raise ArgumentError(
                f"{name} is {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}: it must be {dtype} {tuple(shape)} "
                f"on {call.device}"
            )


def _promised_gradients(call, d_o, q, k, v, o, lse, *arrays):
    """Gradients with the strides that the fake kernels have told: of the tensors, not of copies."""
    copies = _call.readable(q, k, v)
    gradients = call.backward(d_o, *copies, o, lse, *arrays)
    if copies[0] is q and copies[1] is k and copies[2] is v:
        return gradients  # As nearly always.
    return tuple(
        gradient if copy is x else torch.empty_like(x).copy_(gradient)
        for gradient, copy, x in zip(gradients, copies, (q, k, v))
    )


def _fake_forward(q, k, v, causal, top_left, window_left, window_right, softmax_scale, deterministic, bshd, forward):
    b, s, h = (q.shape[0], q.shape[1], q.shape[2]) if bshd else (q.shape[0], q.shape[2], q.shape[1])
    return _empty_out(q, v.shape[-1]), q.new_empty((b, h, s), dtype=torch.float32)


def _fake_backward(d_o, q, k, v, o, lse, *options):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _fake_varlen_forward(q, k, v, *options):
    return _empty_out(q, v.shape[-1]), q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)


def _save_dense(ctx, inputs, output):
    ctx.set_materialize_grads(False)
    # Its gradient is not computed.
    ctx.mark_non_differentiable(output[1])
    ctx.options = inputs[3:10]
    ctx.save_for_backward(*inputs[:3], *output)


def _differentiate_dense(ctx, d_o, d_lse):
    nothing = (None,) * 8
    if d_o is None:
        return (None, None, None, *nothing)
    q, k, v, o, lse = ctx.saved_tensors
    return (*torch.ops.backlight.attention_backward.default(d_o, q, k, v, o, lse, *ctx.options), *nothing)


def _save_packed(ctx, inputs, output):
    ctx.set_materialize_grads(False)
    # Its gradient is not computed.
    ctx.mark_non_differentiable(output[1])
    ctx.options = inputs[7:]
    ctx.save_for_backward(*inputs[:7], *output)


def _differentiate_packed(ctx, d_o, d_lse):
    nothing = (None,) * 12
    if d_o is None:
        return (None, None, None, *nothing)
    q, k, v, cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv, o, lse = ctx.saved_tensors
    gradients = torch.ops.backlight.attention_varlen_backward.default(
        d_o, q, k, v, o, lse, cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv, *ctx.options
    )
    return (*gradients, *nothing)


_FAKES = {
    "attention_forward": _fake_forward,
    "attention_backward": _fake_backward,
    "attention_varlen_forward": _fake_varlen_forward,
    "attention_varlen_backward": _fake_backward,
}
IMPLEMENTATIONS = {
    "attention_forward": forward,
    "attention_backward": backward,
    "attention_varlen_forward": varlen_forward,
    "attention_varlen_backward": varlen_backward,
}
for _name, _implementation in IMPLEMENTATIONS.items():
    _library.impl(_name, _implementation, "CUDA")
    torch.library.register_fake(f"backlight::{_name}", _FAKES[_name], lib=_library)
torch.library.register_autograd(
    "backlight::attention_forward", _differentiate_dense, setup_context=_save_dense, lib=_library
)
torch.library.register_autograd(
    "backlight::attention_varlen_forward", _differentiate_packed, setup_context=_save_packed, lib=_library
)
