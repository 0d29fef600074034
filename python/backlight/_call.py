"""One kind of call: checked once, then found by its key. What is checked here is what the library or
PyTorch's forward would refuse later, or not notice."""

import atexit
import weakref

import torch

from . import _backlight, _forward, _nvrtc  # noqa: F401  (_nvrtc tells the library where NVRTC is)
from ._options import check_head_dim, check_max_seqlen
from .errors import ArgumentError, ArgumentTypeError, UnsupportedError

_empty = torch.empty
_empty_like = torch.empty_like
_raw_stream = torch._C._cuda_getCurrentRawStream if hasattr(torch._C, "_cuda_getCurrentRawStream") else None
_DEVICE_TYPES = {"cuda"}
# Plain tensors are read, and workspaces taken, without Python objects (PyTorch 2.10 and newer).
_is_direct = all([_backlight.use_exchange_api(kind) for kind in (torch.Tensor, torch.nn.Parameter)])
_with_plans = weakref.WeakSet()


@atexit.register
def _release_plans():
    """Native objects that outlive the interpreter are told of as leaks; graphs and modules may hold calls until then."""
    _backlight.forget_calls()
    for call in list(_with_plans):
        call.plan = None


def packed_top_left(options, cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv):
    """Refuses masks that PyTorch's forward of packed sequences has not. It aligns them bottom-right, which is
    the same as top-left where each sequence has as many queries as keys."""
    if options.right < 0 and options.window_left < 0:
        options.top_left = False
        return
    if seqused_q is not None:
        raise UnsupportedError(
            "seqused_q is given: it must be None with a mask, which PyTorch's forward places by cu_seqlens_q"
        )
    if options.top_left:
        if cu_seqlens_q is not cu_seqlens_kv or seqused_kv is not None:
            raise UnsupportedError(
                "mask_alignment is 'top_left': it must be 'bottom_right' for packed sequences with a mask, unless "
                "cu_seqlens_q and cu_seqlens_kv are one tensor and there is no seqused_kv"
            )
        options.top_left = False


def check_strided(name, tensor):
    if tensor.is_nested:
        raise ArgumentTypeError(f"{name} is a nested tensor: it must be a plain one")
    if tensor.layout is not torch.strided:
        raise ArgumentTypeError(f"{name}.layout is {tensor.layout}: it must be torch.strided")


def check_tensors(tensors, dimensions):
    """`tensors` by name, q first: all on one device, of one 16-bit type, of so many dimensions."""
    (first_name, first), *_ = tensors.items()
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ArgumentTypeError(f"{name} is a {type(tensor).__name__}: it must be a torch.Tensor")
        check_strided(name, tensor)
        if tensor.device.type not in _DEVICE_TYPES:
            raise ArgumentError(f"{name}.device is {tensor.device}: it must be a CUDA device")
        if tensor.device != first.device:
            raise ArgumentError(f"{name}.device is {tensor.device}: it must be that of {first_name}, {first.device}")
        if tensor.dtype not in (torch.bfloat16, torch.float16):
            raise ArgumentTypeError(f"{name}.dtype is {tensor.dtype}: it must be torch.bfloat16 or torch.float16")
        if tensor.dtype != first.dtype:
            raise ArgumentTypeError(f"{name}.dtype is {tensor.dtype}: it must be that of {first_name}, {first.dtype}")
        if tensor.dim() != dimensions:
            raise ArgumentError(f"{name} has {tensor.dim()} dimensions: it must have {dimensions}")


def check_head_dims(q, k, v):
    check_head_dim("q", q.shape[-1])
    check_head_dim("v", v.shape[-1])
    if k.shape[-1] != q.shape[-1]:
        raise ArgumentError(f"head_dim of k is {k.shape[-1]}: it must be that of q, {q.shape[-1]}")


def check_heads(heads, heads_kv, heads_v, enable_gqa):
    if heads_v != heads_kv:
        raise ArgumentError(f"heads of v is {heads_v}: it must be that of k, {heads_kv}")
    if heads < 1 or heads_kv < 1 or heads % heads_kv:
        raise ArgumentError(f"heads of k is {heads_kv}: it must divide that of q, {heads}")
    if heads != heads_kv and not enable_gqa:
        raise ArgumentError(f"enable_gqa is False: it must be True where q has {heads} heads and k has {heads_kv}")


class Call:
    """Attention of one kind of tensors: shapes, type, device and options that were found good."""

    __slots__ = (
        "batch", "heads", "heads_kv", "seqlen_q", "seqlen_kv", "head_dim", "head_dim_v", "dtype", "device",
        "device_index", "options", "total_q", "total_kv", "is_empty", "forward", "plan", "workspace_bytes", "o_shape",
        "lse_shape", "__weakref__",
    )

    def make_plan(self):
        """Compiles, if need be, the backward's kernels."""
        o = self.options
        self.plan = _backlight.plan(
            self.device_index, self.dtype == torch.float16, self.batch, self.heads, self.heads_kv, self.seqlen_q,
            self.seqlen_kv, self.head_dim, self.head_dim_v, o.causal, o.top_left, o.window_left, o.window_right,
            self.scale, o.deterministic, self.total_q, self.total_kv, o.bshd,
        )
        self.workspace_bytes = self.plan.workspace_bytes
        _with_plans.add(self)

    @property
    def scale(self):
        scale = self.options.softmax_scale
        return self.head_dim**-0.5 if scale is None else float(scale)

    def backward(self, d_o, q, k, v, o, lse, cu_seqlens_q=None, cu_seqlens_kv=None, seqused_q=None, seqused_kv=None):
        """(dQ, dK, dV), enqueued on the current stream of the tensors' device."""
        if self.is_empty:
            return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        if self.plan is None:
            self.make_plan()
        if cu_seqlens_q is None:
            d_q, d_k, d_v = _empty_like(q), _empty_like(k), _empty_like(v)
        else:
            # Rows of no sequence are not written.
            d_q, d_k, d_v = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        workspace = None if _is_direct else self._workspace()
        stream = _raw_stream(self.device_index)
        if not self.plan.run(
            d_o, q, k, v, o, lse, d_q, d_k, d_v, workspace, stream, cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv
        ):
            # Where memory is short, PyTorch's own exception is raised here.
            workspace = self._workspace() if workspace is None else workspace
            d_o = d_o if _backlight.is_readable(d_o) else readable_copy(d_o)
            self.plan.run(
                d_o, q, k, v, o, lse, d_q, d_k, d_v, workspace, stream, cu_seqlens_q, cu_seqlens_kv, seqused_q,
                seqused_kv,
            )
        return d_q, d_k, d_v

    def _workspace(self):
        return _empty(self.workspace_bytes, dtype=torch.uint8, device=self.device)


def readable_copy(tensor):
    """A copy whose strides and address the kernels take; `contiguous` alone copies no misplaced tensor."""
    return tensor.clone(memory_format=torch.contiguous_format)


def readable(q, k, v):
    """The same tensors, or copies of those that neither our kernels nor PyTorch's would take."""
    try:
        if _backlight.are_readable(q, k, v):
            return q, k, v
    except RuntimeError:  # One has no memory of its own, though it has the shape of one that had.
        for name, x in (("q", q), ("k", k), ("v", v)):
            check_strided(name, x)
        raise
    return tuple(x if _backlight.is_readable(x) else readable_copy(x) for x in (q, k, v))


def check_dense(q, k, v, bshd, enable_gqa):
    check_tensors({"q": q, "k": k, "v": v}, 4)
    check_head_dims(q, k, v)
    head_axis, seqlen_axis = (2, 1) if bshd else (1, 2)
    for name, tensor in (("k", k), ("v", v)):
        if tensor.shape[0] != q.shape[0]:
            raise ArgumentError(f"batch of {name} is {tensor.shape[0]}: it must be that of q, {q.shape[0]}")
    check_heads(q.shape[head_axis], k.shape[head_axis], v.shape[head_axis], enable_gqa)
    if v.shape[seqlen_axis] != k.shape[seqlen_axis]:
        raise ArgumentError(f"seqlen of v is {v.shape[seqlen_axis]}: it must be that of k, {k.shape[seqlen_axis]}")


def dense_call(q, k, v, options, enable_gqa):
    """Checks a dense call."""
    check_dense(q, k, v, options.bshd, enable_gqa)
    head_axis, seqlen_axis = (2, 1) if options.bshd else (1, 2)
    call = Call()
    call.batch, call.heads, call.seqlen_q = q.shape[0], q.shape[head_axis], q.shape[seqlen_axis]
    call.heads_kv, call.seqlen_kv = k.shape[head_axis], k.shape[seqlen_axis]
    call.head_dim, call.head_dim_v = q.shape[3], v.shape[3]
    call.dtype, call.device, call.options = q.dtype, q.device, options
    call.device_index = q.device.index or 0
    call.total_q = call.total_kv = -1
    call.o_shape = torch.Size((*q.shape[:3], call.head_dim_v))
    call.lse_shape = torch.Size((call.batch, call.heads, call.seqlen_q))
    call.is_empty = 0 in (call.batch, call.seqlen_q, call.seqlen_kv)
    call.plan = None
    call.forward = _forward.dense_forward(call)
    return call


def check_packed(q, k, v, cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv, max_seqlens, enable_gqa):
    check_tensors({"q": q, "k": k, "v": v}, 3)
    check_head_dims(q, k, v)
    check_heads(q.shape[1], k.shape[1], v.shape[1], enable_gqa)
    if v.shape[0] != k.shape[0]:
        raise ArgumentError(f"v has {v.shape[0]} rows: it must have those of k, {k.shape[0]}")
    arrays = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_kv": cu_seqlens_kv}
    arrays |= {n: a for n, a in (("seqused_q", seqused_q), ("seqused_kv", seqused_kv)) if a is not None}
    for name, array in arrays.items():
        if not isinstance(array, torch.Tensor):
            raise ArgumentTypeError(f"{name} is a {type(array).__name__}: it must be a torch.Tensor")
        check_strided(name, array)
        if array.dtype != torch.int32:
            raise ArgumentTypeError(f"{name}.dtype is {array.dtype}: it must be torch.int32")
        if array.device != q.device:
            raise ArgumentError(f"{name}.device is {array.device}: it must be that of q, {q.device}")
        if array.dim() != 1 or not array.is_contiguous():
            raise ArgumentError(f"{name} has shape {tuple(array.shape)}: it must be contiguous, of one dimension")
        expected = cu_seqlens_q.shape[0] - (0 if name.startswith("cu") else 1)
        if array.shape[0] != expected:
            raise ArgumentError(f"{name} has {array.shape[0]} numbers: it must have {expected}, as of cu_seqlens_q")
    if cu_seqlens_q.shape[0] < 2:
        raise ArgumentError(f"cu_seqlens_q has {cu_seqlens_q.shape[0]} numbers: it must have one more than sequences")
    for name, length in zip(("max_seqlen_q", "max_seqlen_kv"), max_seqlens):
        check_max_seqlen(name, length, (int, torch.SymInt))


def packed_call(q, k, v, cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv, max_seqlens, options, enable_gqa):
    """Checks a call of packed sequences."""
    check_packed(q, k, v, cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv, max_seqlens, enable_gqa)
    packed_top_left(options, cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv)
    call = Call()
    call.total_q, call.heads, call.head_dim = q.shape
    call.total_kv, call.heads_kv = k.shape[:2]
    call.head_dim_v = v.shape[2]
    call.batch = cu_seqlens_q.shape[0] - 1
    call.seqlen_q, call.seqlen_kv = max_seqlens
    call.dtype, call.device, call.options = q.dtype, q.device, options
    call.device_index = q.device.index or 0
    call.o_shape = torch.Size((call.total_q, call.heads, call.head_dim_v))
    call.lse_shape = torch.Size((call.heads, call.total_q))
    call.is_empty = 0 in (call.total_q, call.total_kv, call.seqlen_q, call.seqlen_kv)
    call.plan = None
    call.forward = _forward.packed_forward(call)
    return call
