"""`backward` for arrays of any framework that speaks DLPack: JAX, CuPy, PyTorch and others."""

import contextlib
import sys

from . import _backlight, _nvrtc, _options  # noqa: F401  (_nvrtc tells the library where NVRTC is)
from .errors import ArgumentError, ArgumentTypeError, Error

_CUDA = 2
_DEVICE_TYPES = {_CUDA}
_OPTIONAL = ("seqused_q", "seqused_kv")


def _torch_tensor(x):
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(x, torch.Tensor) else None


def _cupy_array(x):
    cupy = sys.modules.get("cupy")
    return cupy if cupy is not None and isinstance(x, cupy.ndarray) else None


def _current_stream(x, device):
    """The stream on which the array's framework works now; where it has none to tell, the default stream."""
    if torch := _torch_tensor(x):
        return torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else 0
    if cupy := _cupy_array(x):
        with cupy.cuda.Device(device):
            return cupy.cuda.get_current_stream().ptr
    return 0


@contextlib.contextmanager
def _naming(name, x):
    """What an array's own DLPack methods raise names no argument."""
    try:
        yield
    except (Error, MemoryError):
        raise
    except Exception as error:
        kind = type(x).__name__
        raise ArgumentError(f"{name} is a {kind}: it must be one that DLPack can pass on: {error}") from error


def _device(name, x):
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise ArgumentTypeError(f"{name} is a {type(x).__name__}: it must be an array that has __dlpack__")
    with _naming(name, x):
        kind, index = map(int, x.__dlpack_device__())
    if kind not in _DEVICE_TYPES:
        raise ArgumentError(f"{name} is on a device of DLPack's type {kind}: it must be on a CUDA device, type 2")
    return kind, index


def _view(name, x, kind, stream):
    with _naming(name, x):
        if _torch_tensor(x):
            x = x.detach()  # PyTorch exports nothing that requires a gradient.
        # DLPack calls the default stream 1.
        capsule = x.__dlpack__(stream=stream or 1) if kind == _CUDA else x.__dlpack__()
        return _backlight.DlpackView(capsule)


def _views(arrays, stream):
    """Of arrays by name, all on one device: their views, the device, and the stream in force."""
    (first_name, first), *_ = arrays.items()
    kind, device = _device(first_name, first)
    if stream is None:
        stream = _current_stream(first, device)
    views = {}
    for name, x in arrays.items():
        if x is None and name in _OPTIONAL:
            continue
        if _device(name, x) != (kind, device):
            raise ArgumentError(f"{name} is on device {_device(name, x)[1]}: it must be on that of {first_name}, {device}")
        views[name] = _view(name, x, kind, stream)
    return views, device, stream


def _require_shape(name, view, shape, dtype):
    if view.shape != shape or view.dtype != dtype:
        raise ArgumentError(f"{name} is {view.dtype} {view.shape}: it must be {dtype} {shape}")


@contextlib.contextmanager
def _allocating_for(like, device, stream):
    """What q's framework allocates here is used on that stream, and given to nobody else before it is done there."""
    if (torch := _torch_tensor(like)) and like.is_cuda:
        if stream == torch.cuda.current_stream(device).cuda_stream:
            yield
            return
        other = torch.cuda.ExternalStream(stream, device) if stream else torch.cuda.default_stream(device)
        with torch.cuda.stream(other):
            yield
    elif cupy := _cupy_array(like):
        with cupy.cuda.Device(device), cupy.cuda.ExternalStream(stream, device):
            yield
    else:
        yield


def _new(like, view, device):
    """A new array of the same shape and framework to write to, and what is to become of it later."""
    if torch := _torch_tensor(like):
        made = torch.empty_like(like, memory_format=torch.contiguous_format, requires_grad=False)
        return made, lambda: made
    if cupy := _cupy_array(like):
        made = cupy.empty(like.shape, like.dtype)
        return made, lambda: made
    made = _backlight.new_device_array(device, view.dtype, view.shape)
    return made, lambda: _as_framework_of(like, made)


def _as_framework_of(like, made):
    if type(like).__module__.split(".")[0] in ("jax", "jaxlib"):
        return sys.modules["jax"].dlpack.from_dlpack(made)
    if hasattr(like, "__array_namespace__"):
        return like.__array_namespace__().from_dlpack(made)
    return made


def _workspace(like, size, device):
    if torch := _torch_tensor(like):
        return torch.empty(size, dtype=torch.uint8, device=like.device)
    if cupy := _cupy_array(like):
        return cupy.empty(size, cupy.uint8)
    return _backlight.new_device_array(device, "uint8", (size,))


def backward(
    q, k, v, o, lse, d_o, *, causal=False, window=None, softmax_scale=None, deterministic=False, layout="bhsd",
    mask_alignment=None, cu_seqlens_q=None, cu_seqlens_kv=None, max_seqlen_q=None, max_seqlen_kv=None,
    seqused_q=None, seqused_kv=None, out=None, stream=None,
):  # fmt: skip
    """(dQ, dK, dV) of attention, given its output `o`, the natural-log row sums `lse` (fp32, (batch, heads,
    seqlen_q)) and the upstream gradient `d_o`.

    The arrays may be of any framework with DLPack, on one CUDA device. Shapes and options are those of
    `backlight.attention` (heads of k and v may be fewer); with cu_seqlens those of `backlight.attention_varlen`,
    lse (heads, total_q). mask_alignment: as there, "top_left" of dense and "bottom_right" of packed arrays.

    out: (dQ, dK, dV) to write to. Where it is not given, the gradients are new arrays of q's framework: of PyTorch
    and CuPy from their own allocators; of others (JAX) from memory of ours, and the work is waited for, since such a
    framework cannot be told what stream the arrays depend on.
    stream: a CUDA stream as a number; that on which PyTorch or CuPy works now, else the default stream.
    """
    packed = cu_seqlens_q is not None or cu_seqlens_kv is not None
    arrays = {"q": q, "k": k, "v": v, "o": o, "lse": lse, "d_o": d_o}
    arrays |= {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_kv": cu_seqlens_kv} if packed else {}
    arrays |= {"seqused_q": seqused_q, "seqused_kv": seqused_kv}
    if out is not None:
        try:
            out = tuple(out)
        except TypeError:
            raise ArgumentTypeError(f"out is a {type(out).__name__}: it must be three arrays") from None
        if len(out) != 3:
            raise ArgumentError(f"out has {len(out)} arrays: it must have 3, for dQ, dK and dV")
        arrays |= dict(zip(("out[0]", "out[1]", "out[2]"), out))
    if packed and (cu_seqlens_q is None or cu_seqlens_kv is None):
        raise ArgumentError("cu_seqlens_q and cu_seqlens_kv must be given together")
    bshd = _options.choice("layout", layout, _options.LAYOUTS) == "bshd"
    alignment = mask_alignment
    if alignment is None:
        alignment = "bottom_right" if packed else "top_left"
    _options.choice("mask_alignment", alignment, _options.ALIGNMENTS)
    left, right = _options.window_of(window)
    _options.check_scale(softmax_scale)
    causal, deterministic = _options.flag("causal", causal), _options.flag("deterministic", deterministic)
    views, device, stream = _views(arrays, stream)
    sizes = _packed_sizes(views, max_seqlen_q, max_seqlen_kv) if packed else _dense_sizes(views, bshd)
    batch, heads, heads_kv, seqlen_q, seqlen_kv, total_q, total_kv = sizes
    dtype, head_dim, head_dim_v = views["q"].dtype, views["q"].shape[-1], views["v"].shape[-1]
    if dtype not in ("bf16", "fp16"):
        raise ArgumentTypeError(f"q is of {dtype}: it must be bf16 or fp16")
    _options.check_head_dim("q", head_dim)
    _options.check_head_dim("v", head_dim_v)
    _require_shape("k", views["k"], (*views["k"].shape[:-1], head_dim), dtype)
    _require_shape("v", views["v"], (*views["k"].shape[:-1], head_dim_v), dtype)
    for name in ("o", "d_o"):
        _require_shape(name, views[name], (*views["q"].shape[:-1], head_dim_v), dtype)
    _require_shape("lse", views["lse"], (heads, total_q) if packed else (batch, heads, seqlen_q), "fp32")
    for name in ("q", "k", "v", "o", "d_o"):
        if not _backlight.is_readable(views[name]):
            raise ArgumentError(
                f"{name} has strides {views[name].stride()}: the last must be 1 and the others multiples of 8 and not "
                "negative, and its address a multiple of 16 bytes; make it contiguous"
            )
    scale = head_dim**-0.5 if softmax_scale is None else float(softmax_scale)
    plan = _backlight.plan(
        device, dtype == "fp16", batch, heads, heads_kv, seqlen_q, seqlen_kv, head_dim, head_dim_v, causal,
        alignment == "top_left", left, right, scale, deterministic, total_q, total_kv, bshd,
    )  # fmt: skip
    kind = _device("q", q)[0]
    with _allocating_for(q, device, stream):
        workspace = _workspace(q, plan.workspace_bytes, device)
        workspace_view = _view("the workspace", workspace, kind, stream)
        if out is None:
            made = [_new(x, views[name], device) for name, x in (("q", q), ("k", k), ("v", v))]
            gradients = [_view(f"out[{i}]", x, kind, stream) for i, (x, _) in enumerate(made)]
    if out is not None:
        gradients = [views[f"out[{i}]"] for i in range(3)]
        for i, name in enumerate("qkv"):
            _require_shape(f"out[{i}]", gradients[i], views[name].shape, dtype)
    plan.run(
        views["d_o"], views["q"], views["k"], views["v"], views["o"], views["lse"], *gradients, workspace_view, stream,
        *(views.get(name) for name in ("cu_seqlens_q", "cu_seqlens_kv", "seqused_q", "seqused_kv")),
    )  # fmt: skip
    if not _torch_tensor(q) and not _cupy_array(q):
        _backlight.synchronise(device, stream)
    return out if out is not None else tuple(finish() for _, finish in made)


def _dense_sizes(views, bshd):
    for name in "qkv":
        if len(views[name].shape) != 4:
            raise ArgumentError(f"{name} has {len(views[name].shape)} dimensions: it must have 4")
    batch, a, b, _ = views["q"].shape
    of_k = views["k"].shape
    heads, seqlen_q = (b, a) if bshd else (a, b)
    heads_kv, seqlen_kv = (of_k[2], of_k[1]) if bshd else of_k[1:3]
    if of_k[0] != batch:
        raise ArgumentError(f"batch of k is {of_k[0]}: it must be that of q, {batch}")
    return batch, heads, heads_kv, seqlen_q, seqlen_kv, -1, -1


def _packed_sizes(views, max_seqlen_q, max_seqlen_kv):
    for name in "qkv":
        if len(views[name].shape) != 3:
            raise ArgumentError(f"{name} has {len(views[name].shape)} dimensions: it must have 3")
    for name, length in (("max_seqlen_q", max_seqlen_q), ("max_seqlen_kv", max_seqlen_kv)):
        _options.check_max_seqlen(name, length)
    starts = views["cu_seqlens_q"].shape
    if len(starts) != 1 or starts[0] < 2:
        raise ArgumentError(f"cu_seqlens_q has shape {starts}: it must have one more number than sequences")
    for name, size in (("cu_seqlens_q", starts[0]), ("cu_seqlens_kv", starts[0]), ("seqused_q", starts[0] - 1),
                       ("seqused_kv", starts[0] - 1)):  # fmt: skip
        if name in views:
            _require_shape(name, views[name], (size,), "int32")
    total_q, heads, _ = views["q"].shape
    total_kv, heads_kv, _ = views["k"].shape
    return starts[0] - 1, heads, heads_kv, max_seqlen_q, max_seqlen_kv, total_q, total_kv
