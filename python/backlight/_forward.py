"""O and LSE by PyTorch's own operators.

FlashAttention-2 serves everything: it takes windows, grouped heads and packed sequences, and aligns masks
bottom-right. What it lacks is brought about by slices and zero columns. cuDNN's forward is faster on Hopper and
takes the plain problems.
"""

import torch

from ._options import MOST_BOUND_OF_FLASH

_flash_dense = torch._scaled_dot_product_flash_attention
# The operator that takes windows and packed sequences has no function of its own in `torch`.
_flash_general = torch.ops.aten._flash_attention_forward.default
_cudnn = getattr(torch, "_scaled_dot_product_cudnn_attention", None)

# Below so many multiply-adds of one product, the host's time counts for more than the device's.
_CUDNN_PAYS_FROM = 1 << 32


def flash_mask(causal, top_left, window_left, window_right, seqlen_q, seqlen_kv):
    """(rows, keys, causal, left, right): the first `rows` queries attend to some of the first `keys` keys, under
    that mask aligned bottom-right; no other query attends to any key, and no other key is attended to."""
    left, right = window_left, 0 if causal else window_right
    rows, keys = seqlen_q, seqlen_kv
    if top_left and seqlen_q != seqlen_kv and (left >= 0 or right >= 0):
        if left >= 0:
            rows = min(seqlen_q, seqlen_kv + left)
        if right >= 0:
            keys = min(seqlen_kv, seqlen_q + right)
        if left >= 0:
            left += keys - rows
        if right >= 0:
            right += rows - keys
    if right == 0 and left < 0:
        return rows, keys, True, -1, -1
    return rows, keys, False, left, right


def _windows(left, right):
    """Bounds that FlashAttention-2 keeps in 32 bits; one of more than all keys and queries is none."""
    if left < 0 and right < 0:
        return {}
    return {"window_size_left": min(left, MOST_BOUND_OF_FLASH), "window_size_right": min(right, MOST_BOUND_OF_FLASH)}


def _misread_bounds(mask):
    """Whether FlashAttention-2 takes a bound of the mask for another. A side without one has a bound of as many keys
    as there are, for it, and one of at least so many has none: either is wrong for the first of more queries than
    keys."""
    rows, keys, _, left, right = mask
    return rows > keys and (left >= 0 or right >= 0)


def _padded(tensor, head_dim):
    missing = head_dim - tensor.shape[-1]
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor


def _empty_forward(call):
    def forward(q, k, v):
        lse_shape = (call.batch, call.heads, call.seqlen_q)
        lse = torch.full(lse_shape, float("-inf"), dtype=torch.float32, device=q.device)
        return torch.zeros((*q.shape[:-1], call.head_dim_v), dtype=q.dtype, device=q.device), lse

    return forward


def _takes_cudnn(call, mask):
    """Whether cuDNN's forward takes the problem; its causal mask is aligned top-left."""
    rows, keys, is_causal, left, right = mask
    o = call.options
    return (
        _cudnn is not None
        and torch.version.hip is None
        and call.device.type == "cuda"
        and torch.cuda.get_device_capability(call.device)[0] in (9, 10)
        and (rows, keys) == (call.seqlen_q, call.seqlen_kv)
        and left < 0
        and right < 0
        and (not is_causal or call.seqlen_q == call.seqlen_kv)
        and max(call.head_dim, call.head_dim_v) <= 128
        and call.heads == call.heads_kv
        and min(call.seqlen_q, call.seqlen_kv) >= 128
        and o.forward != "flash"
    )


def _cudnn_forward(call, is_causal, flash):
    scale, bshd = call.scale, call.options.bshd

    def cudnn(q, k, v):
        if bshd:
            q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        o, lse = _cudnn(q, k, v, None, True, 0.0, is_causal, False, scale=scale)[:2]
        # (batch, heads, seqlen_q, 1) in most releases.
        lse = lse.view(lse.shape[:3])
        return (o.transpose(1, 2) if bshd else o), lse

    def first(q, k, v):
        """cuDNN's versions differ in what they take: one that refuses is not asked again."""
        try:
            result = cudnn(q, k, v)
        except (RuntimeError, TypeError):  # The latter where the operator has other arguments, as in 2.4.
            call.forward = flash
            return flash(q, k, v)
        call.forward = cudnn
        return result

    return first


def dense_forward(call):
    """A function of (q, k, v) that gives O, in the layout of q, and LSE (batch, heads, seqlen_q)."""
    if call.is_empty:
        return _empty_forward(call)
    o = call.options
    mask = flash_mask(o.causal, o.top_left, o.window_left, o.window_right, call.seqlen_q, call.seqlen_kv)
    rows, keys, is_causal, left, right = mask
    is_plain = (
        left < 0 and right < 0 and call.head_dim == call.head_dim_v and (rows, keys) == (call.seqlen_q, call.seqlen_kv)
    )
    flash = _plain_flash(call, is_causal) if is_plain else _general_flash(call, mask)
    if _takes_cudnn(call, mask):
        work = call.batch * call.heads * call.seqlen_q * call.seqlen_kv * call.head_dim
        if o.forward == "cudnn" or work >= _CUDNN_PAYS_FROM:
            return _cudnn_forward(call, is_causal, flash)
    return flash


def _plain_flash(call, is_causal):
    scale = call.scale
    if not call.options.bshd:

        def forward(q, k, v):
            o, lse, *_ = _flash_dense(q, k, v, 0.0, is_causal, False, scale=scale)
            return o, lse

    else:

        def forward(q, k, v):
            o, lse, *_ = _flash_dense(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), 0.0, is_causal, False, scale=scale
            )
            return o.transpose(1, 2), lse

    return forward


def _general_flash(call, mask):
    rows, keys, is_causal, left, right = mask
    windows, scale, bshd = _windows(left, right), call.scale, call.options.bshd
    # It has one head dimension: columns of zeros change no score and no sum.
    head_dim = max(call.head_dim, call.head_dim_v)
    head_dim_v, seqlen_q, seqlen_kv = call.head_dim_v, call.seqlen_q, call.seqlen_kv

    def batched(q, k, v):
        return _flash_general(
            q, k, v, None, None, rows, keys, 0.0, is_causal, False, scale=scale, **windows
        )[:2]  # fmt: skip

    def one_after_another(q, k, v):
        """The same as packed sequences, of which any number may be said to be the most keys."""
        batch, heads = q.shape[0], q.shape[2]
        begins = torch.arange(batch + 1, dtype=torch.int32, device=q.device)
        o, lse = _flash_general(
            q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), begins * rows, begins * keys, rows, rows + keys, 0.0,
            is_causal, False, scale=scale, **windows,
        )[:2]  # fmt: skip
        if lse.dim() == 2:
            lse = lse.view(heads, batch, rows).transpose(0, 1).contiguous()
        return o.view(batch, rows, heads, head_dim), lse

    flash = one_after_another if _misread_bounds(mask) else batched

    def forward(q, k, v):
        if not bshd:
            q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        if keys != seqlen_kv:
            k, v = k[:, :keys], v[:, :keys]
        own = q[:, :rows] if rows != seqlen_q else q
        o, lse = flash(_padded(own, head_dim), _padded(k, head_dim), _padded(v, head_dim))
        if o.shape[-1] != head_dim_v:
            o = o[..., :head_dim_v]
        if rows != seqlen_q:
            missing = seqlen_q - rows
            o = torch.nn.functional.pad(o, (0, 0, 0, 0, 0, missing))
            lse = torch.nn.functional.pad(lse, (0, missing), value=float("-inf"))
        return (o if bshd else o.transpose(1, 2)), lse

    return forward


def packed_forward(call):
    """A function of (q, k, v, cu_seqlens_q, cu_seqlens_kv, seqused_kv) that gives O (total_q, heads, head_dim_v)
    and LSE (heads, total_q)."""
    o = call.options
    scale, seqlen_q, seqlen_kv = call.scale, call.seqlen_q, call.seqlen_kv
    head_dim, head_dim_v = max(call.head_dim, call.head_dim_v), call.head_dim_v
    if call.is_empty:

        def nothing(q, k, v, cu_seqlens_q, cu_seqlens_kv, seqused_kv):
            lse = torch.full((call.heads, call.total_q), float("-inf"), dtype=torch.float32, device=q.device)
            return torch.zeros((*q.shape[:-1], head_dim_v), dtype=q.dtype, device=q.device), lse

        return nothing

    is_causal = o.right == 0 and o.window_left < 0
    windows = {} if is_causal else _windows(o.window_left, o.right)
    # See _misread_bounds.
    most_keys = min(seqlen_q + seqlen_kv, MOST_BOUND_OF_FLASH) if windows else seqlen_kv

    def forward(q, k, v, cu_seqlens_q, cu_seqlens_kv, seqused_kv):
        used = {} if seqused_kv is None else {"seqused_k": seqused_kv}
        out, lse = _flash_general(
            _padded(q, head_dim), _padded(k, head_dim), _padded(v, head_dim), cu_seqlens_q, cu_seqlens_kv, seqlen_q,
            most_keys, 0.0, is_causal, False, scale=scale, **windows, **used,
        )[:2]  # fmt: skip
        if out.shape[-1] != head_dim_v:
            out = out[..., :head_dim_v]
        if lse.dim() == 3:
            lse = _rows_of_padded(lse, cu_seqlens_q, call.total_q)
        return out, lse

    return forward


def _rows_of_padded(lse, cu_seqlens_q, total_q):
    """(heads, total_q) of the (batch, heads, largest length) of releases before 2.6."""
    row = torch.arange(total_q, device=lse.device)
    sequence = (torch.searchsorted(cu_seqlens_q, row, right=True) - 1).clamp_(0, lse.shape[0] - 1)
    within = (row - cu_seqlens_q[sequence]).clamp_(0, lse.shape[2] - 1)
    return lse[sequence, :, within].t().contiguous()
