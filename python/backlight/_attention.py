"""`attention` and `attention_varlen`: PyTorch's forward, Backlight's backward."""

import torch

from . import _call
from ._options import ALIGNMENTS, FORWARDS, LAYOUTS, Options, check_scale, choice, flag, window_of
from ._operators import _MOST_CALLS  # Which registers the operators.
from .errors import ArgumentTypeError, UnsupportedError

_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)
_is_compiling = torch.compiler.is_compiling
_dispatch_modes = torch._C._len_torch_dispatch_stack
_is_transformed = torch._C._are_functorch_transforms_active
_is_deterministic = torch.are_deterministic_algorithms_enabled
_is_grad_enabled = torch.is_grad_enabled
_find_call = _call._backlight.find_call

# Calls by the arguments as they were given, so that a second call like it is checked no more.
_dense_calls = {}
_packed_calls = {}


class _Attention(torch.autograd.Function):
    """The eager way, which spares the operators' way through the dispatcher and Python's adapters."""

    @staticmethod
    def forward(ctx, q, k, v, call):
        o, lse = call.forward(q, k, v)
        ctx.call = call
        ctx.save_for_backward(q, k, v, o, lse)
        return o

    @staticmethod
    def backward(ctx, d_o):
        if torch.is_grad_enabled():
            return _Gradients.apply(d_o, *ctx.saved_tensors, ctx.call, ()) + (None,)
        return (*ctx.call.backward(d_o, *ctx.saved_tensors), None)


# What `apply` comes to for tensors that no transform has wrapped, as those that `find_call` finds.
_apply = super(torch.autograd.Function, _Attention).apply


class _PackedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv, call):
        o, lse = call.forward(q, k, v, cu_seqlens_q, cu_seqlens_kv, seqused_kv)
        ctx.call = call
        ctx.save_for_backward(q, k, v, o, lse, cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv)
        return o

    @staticmethod
    def backward(ctx, d_o):
        nothing = (None,) * 5
        if torch.is_grad_enabled():
            saved = ctx.saved_tensors
            return _Gradients.apply(d_o, *saved[:5], ctx.call, saved[5:]) + nothing
        return (*ctx.call.backward(d_o, *ctx.saved_tensors), *nothing)


class _Gradients(torch.autograd.Function):
    """The backward where its own derivative may be asked for (`create_graph`): there is none."""

    @staticmethod
    def forward(ctx, d_o, q, k, v, o, lse, call, arrays):
        return call.backward(d_o, q, k, v, o, lse, *arrays)

    @staticmethod
    def backward(ctx, *gradients):
        raise UnsupportedError("backlight.attention has no second derivative")


def _is_plain(*tensors):
    """Nothing stands between the call and the device: no tracing, no mode, no transform, no subclass."""
    for tensor in tensors:
        if type(tensor) not in _PLAIN_TENSORS:
            return False
    return not (_is_compiling() or _dispatch_modes() or _is_transformed())


def _options(causal, window, softmax_scale, deterministic, mask_alignment, bshd, forward):
    choice("mask_alignment", mask_alignment, ALIGNMENTS)
    choice("forward", forward, FORWARDS)
    left, right = window_of(window)
    check_scale(softmax_scale)
    scale = None if softmax_scale is None else float(softmax_scale)
    if type(causal) is not bool:
        causal = flag("causal", causal)
    if type(deterministic) is not bool:
        deterministic = flag("deterministic", deterministic)
    return Options(causal, mask_alignment == "top_left", left, right, scale, deterministic, bshd, forward)


def _values(options):
    return tuple(getattr(options, name) for name in Options.__slots__)


def _under_autocast(q, k, v):
    """Autocast's type for all three, where it is on and they are of several floating-point types, or of fp32."""
    if not all(isinstance(x, torch.Tensor) and x.is_cuda and x.is_floating_point() for x in (q, k, v)):
        return q, k, v
    if not torch.is_autocast_enabled("cuda") or (q.dtype == k.dtype == v.dtype and q.dtype.itemsize == 2):
        return q, k, v
    dtype = torch.get_autocast_dtype("cuda")
    return q.to(dtype), k.to(dtype), v.to(dtype)


def _needs_gradient(q, k, v):
    return torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)


def attention(
    q, k, v, *, causal=False, window=None, softmax_scale=None, enable_gqa=False, deterministic=False, layout="bhsd",
    mask_alignment="top_left", forward="auto",
):  # fmt: skip
    """softmax(scale · q kᵀ) v, with Backlight's backward.

    q: (batch, heads, seqlen_q, head_dim) for layout "bhsd", (batch, seqlen_q, heads, head_dim) for "bshd"; k and v
    likewise, with as many heads as q, or with enable_gqa a number that divides it, and v with a head_dim of its own
    if need be. bf16 or fp16 on a CUDA device of compute capability 9.0 or newer; head dimensions are multiples of 8
    up to 256. Returns the output in the layout of q.

    causal: no query attends to keys after its own position. window: (left, right), the keys before and after it
    that a query attends to, None or -1 for no bound. mask_alignment: a query's own position where there are more
    keys than queries or fewer: "top_left" has query 0 at key 0, as F.scaled_dot_product_attention has; "bottom_right"
    the last query at the last key, as FlashAttention has.
    softmax_scale: 1/sqrt(head_dim) by default. deterministic: equal inputs give equal bits of the gradients in every
    run; also where torch.use_deterministic_algorithms is on. forward: PyTorch's operator that computes the output,
    "flash" or "cudnn" (where it takes the problem); "auto" takes what is quicker.
    """
    if not (_is_compiling() or _dispatch_modes() or _is_transformed()):
        # A call like one before is found here.
        deterministic = _is_deterministic() or deterministic
        given = (causal, window, softmax_scale, enable_gqa, deterministic, layout, mask_alignment, forward)
        call = _find_call(q, k, v, given)
        if call is not None:
            if not (_is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)):
                return call.forward(q, k, v)[0]
            if call.plan is None and not call.is_empty:
                call.make_plan()
            return _apply(q, k, v, call)
    if _is_plain(q, k, v):
        key = call = None
        try:
            key = (q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype, q.device, k.device, v.device, *given)
            call = _dense_calls.get(key)
        except (TypeError, RuntimeError):  # A window that is a list, for example; a nested tensor, of no shape.
            pass
        if call is None:
            cast = _under_autocast(q, k, v)
            if cast[0] is not q or cast[1] is not k or cast[2] is not v:
                return attention(
                    *cast, causal=causal, window=window, softmax_scale=softmax_scale, enable_gqa=enable_gqa,
                    deterministic=deterministic, layout=layout, mask_alignment=mask_alignment, forward=forward,
                )  # fmt: skip
            options = _options(
                causal, window, softmax_scale, deterministic, mask_alignment,
                choice("layout", layout, LAYOUTS) == "bshd", forward,
            )  # fmt: skip
            call = _call.dense_call(q, k, v, options, flag("enable_gqa", enable_gqa))
            _keep(_dense_calls, key, call)
        _call._backlight.keep_call(q, k, v, given, call, call.o_shape, call.lse_shape)
        q, k, v = _call.readable(q, k, v)
        if _needs_gradient(q, k, v):
            if call.plan is None and not call.is_empty:
                call.make_plan()
            return _Attention.apply(q, k, v, call)
        return call.forward(q, k, v)[0]
    q, k, v = _under_autocast(q, k, v)
    bshd = choice("layout", layout, LAYOUTS) == "bshd"
    options = _options(
        causal, window, softmax_scale, _is_deterministic() or deterministic, mask_alignment, bshd, forward
    )
    _call.check_dense(q, k, v, bshd, flag("enable_gqa", enable_gqa))
    return torch.ops.backlight.attention_forward(q, k, v, *_values(options))[0]


def attention_varlen(
    q, k, v, cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv, *, seqused_q=None, seqused_kv=None,
    causal=False, window=None, softmax_scale=None, enable_gqa=False, deterministic=False,
    mask_alignment="bottom_right",
):  # fmt: skip
    """`attention` of sequences that lie one after another: q (total_q, heads, head_dim), k and v (total_kv, …).

    cu_seqlens: int32, one more than sequences; sequence i has the rows cu_seqlens[i] … cu_seqlens[i + 1]. They stay
    on the device, are read when the work runs, and must be right: what they hold is not checked. max_seqlen: the
    largest lengths, or more. seqused: int32, how many of its rows each sequence uses; of queries only without a mask.
    mask_alignment: "bottom_right", as FlashAttention has; "top_left" where cu_seqlens_q and cu_seqlens_kv are one
    tensor, which makes no difference. Gradients of rows that no sequence uses are 0; the output there is undefined.
    """
    options = _options(causal, window, softmax_scale, _is_deterministic() or deterministic, mask_alignment, False, "auto")
    max_seqlens = (max_seqlen_q, max_seqlen_kv)
    arrays = (cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv)
    for name, starts in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_kv", cu_seqlens_kv)):
        if not isinstance(starts, torch.Tensor):
            raise ArgumentTypeError(f"{name} is a {type(starts).__name__}: it must be a torch.Tensor")
    q, k, v = _under_autocast(q, k, v)
    _call.packed_top_left(options, *arrays)
    if _is_plain(q, k, v, *(x for x in arrays if x is not None)):
        key = call = None
        try:
            key = (
                q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype, q.device, k.device, v.device, max_seqlens,
                type(max_seqlen_q), type(max_seqlen_kv), enable_gqa, _values(options),
                tuple(None if x is None else (x.shape, x.dtype, x.device, x.is_contiguous()) for x in arrays),
            )  # fmt: skip
            call = _packed_calls.get(key)
        except (TypeError, RuntimeError):  # As in `attention`.
            pass
        if call is None:
            call = _call.packed_call(q, k, v, *arrays, max_seqlens, options, flag("enable_gqa", enable_gqa))
            _keep(_packed_calls, key, call)
        q, k, v = _call.readable(q, k, v)
        if _needs_gradient(q, k, v):
            if call.plan is None and not call.is_empty:
                call.make_plan()
            return _PackedAttention.apply(q, k, v, *arrays, call)
        return call.forward(q, k, v, cu_seqlens_q, cu_seqlens_kv, seqused_kv)[0]
    _call.check_packed(q, k, v, *arrays, max_seqlens, flag("enable_gqa", enable_gqa))
    return torch.ops.backlight.attention_varlen_forward(q, k, v, *arrays, *max_seqlens, *_values(options)[:6])[0]


def _keep(calls, key, call):
    try:
        hash(key)
    except TypeError:
        return
    if len(calls) >= _MOST_CALLS:
        calls.clear()
    calls[key] = call
