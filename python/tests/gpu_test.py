"""On a GPU with PyTorch: numerics by FlashAttention's rule, and everything that PyTorch does with a function.

    python -m unittest discover -s python/tests -p gpu_test.py -v
"""

import gc
import itertools
import resource
import threading
import unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("there is no PyTorch") from None
from torch.utils.checkpoint import checkpoint

import backlight
import support

if not support.HAS_GPU:
    raise unittest.SkipTest("there is no GPU of compute capability 9.0 or newer")

functional = torch.nn.functional


def tensors(*shapes, dtype=torch.bfloat16, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)
    return [torch.randn(s, generator=generator, device="cuda", dtype=dtype).requires_grad_() for s in shapes]


def qkv(batch=2, heads=4, heads_kv=4, seqlen_q=256, seqlen_kv=256, head_dim=64, head_dim_v=None, **more):
    return tensors(
        (batch, heads, seqlen_q, head_dim), (batch, heads_kv, seqlen_kv, head_dim),
        (batch, heads_kv, seqlen_kv, head_dim_v or head_dim), **more,
    )  # fmt: skip


def gradients(function, inputs, d_o):
    """O and the gradients, with nothing of the graph kept alive: a capture may meet no graph of another stream."""
    out = function(*inputs)
    return (out.detach(), *torch.autograd.grad(out, inputs, d_o))


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


class FlashAttentionsRule(unittest.TestCase):
    """The error beside fp32 is at most twice that of PyTorch's plain computation in the same type, and rounding."""

    LENGTHS = ((64, 64), (128, 217), (257, 257), (512, 256), (1000, 1000), (2048, 2048))
    HEADS = {"mha": (4, 4), "gqa": (6, 2), "mqa": (4, 1)}

    def check(self, inputs, function, allowed, layout="bhsd", scale=None):
        def plain(*x):
            x = x if layout == "bhsd" else [y.transpose(1, 2) for y in x]
            out = support.reference(*x, allowed, scale)[0]
            return out if layout == "bhsd" else out.transpose(1, 2)

        with torch.no_grad():
            shape = function(*inputs).shape
        d_o = torch.randn(shape, device="cuda").to(inputs[0].dtype)
        ours = gradients(function, inputs, d_o)
        same_type = gradients(plain, inputs, d_o)
        upcast = [x.detach().float().requires_grad_() for x in inputs]
        exact = gradients(plain, upcast, d_o.float())
        for name, one, other, value in zip(("o", "d_q", "d_k", "d_v"), ours, same_type, exact):
            rounding = torch.finfo(one.dtype).eps * value.abs().max()
            error, allowance = (one - value).abs().max(), 2 * (other - value).abs().max() + rounding
            self.assertTrue(bool(error <= allowance), f"{name}: {float(error)} above {float(allowance)}")

    def over_lengths(self, head_dim, heads, dtype, causal, **options):
        for seqlen_q, seqlen_kv in self.LENGTHS:
            alignments = ("top_left", "bottom_right") if causal and seqlen_q != seqlen_kv else ("top_left",)
            for alignment in alignments:
                with self.subTest(lengths=(seqlen_q, seqlen_kv), alignment=alignment):
                    allowed = (
                        support.mask(seqlen_q, seqlen_kv, True, top_left=alignment == "top_left", device="cuda")
                        if causal
                        else None
                    )
                    self.check(
                        qkv(2, *heads, seqlen_q, seqlen_kv, head_dim, dtype=dtype),
                        lambda q, k, v: backlight.attention(
                            q, k, v, causal=causal, enable_gqa=True, mask_alignment=alignment, **options
                        ),
                        allowed,
                    )

    def test_head_dims_of_their_own_for_values(self):
        for head_dim, head_dim_v in ((192, 128), (64, 128), (128, 64)):
            for causal in (False, True):
                with self.subTest(head_dims=(head_dim, head_dim_v), causal=causal):
                    self.check(
                        qkv(head_dim=head_dim, head_dim_v=head_dim_v),
                        lambda q, k, v: backlight.attention(q, k, v, causal=causal),
                        support.mask(256, 256, True, device="cuda") if causal else None,
                    )

    def test_windows(self):
        for window, causal, lengths, alignment in itertools.product(
            ((32, 0), (100, 20), (None, 64), (16, None)), (False, True), ((256, 256), (300, 200), (200, 300)),
            ("top_left", "bottom_right"),
        ):  # fmt: skip
            with self.subTest(window=window, causal=causal, lengths=lengths, alignment=alignment):
                bounds = tuple(-1 if x is None else x for x in window)
                self.check(
                    qkv(seqlen_q=lengths[0], seqlen_kv=lengths[1]),
                    lambda q, k, v: backlight.attention(
                        q, k, v, causal=causal, window=window, mask_alignment=alignment
                    ),
                    support.mask(*lengths, causal, bounds, alignment == "top_left", device="cuda"),
                )

    def test_scale_and_layout(self):
        inputs = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in qkv()]
        self.check(
            inputs, lambda q, k, v: backlight.attention(q, k, v, layout="bshd", softmax_scale=0.3), None, "bshd", 0.3
        )

    def test_cudnns_forward(self):
        for causal in (False, True):
            for layout in ("bhsd", "bshd"):
                inputs = qkv(head_dim=128)
                if layout == "bshd":
                    inputs = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in inputs]
                self.check(
                    inputs,
                    lambda q, k, v: backlight.attention(q, k, v, causal=causal, layout=layout, forward="cudnn"),
                    support.mask(256, 256, True, device="cuda") if causal else None, layout,
                )  # fmt: skip


def _add_grid():
    for head_dim, (name, heads), dtype, causal in itertools.product(
        (64, 96, 128, 192), FlashAttentionsRule.HEADS.items(), (torch.bfloat16, torch.float16), (False, True)
    ):

        def test(self, head_dim=head_dim, heads=heads, dtype=dtype, causal=causal):
            self.over_lengths(head_dim, heads, dtype, causal)

        kind = "causal" if causal else "full"
        setattr(FlashAttentionsRule, f"test_{str(dtype)[6:]}_{head_dim}_{name}_{kind}", test)


_add_grid()


class WithPyTorch(unittest.TestCase):
    def close(self, ones, others, limit=1e-2):
        for one, other in zip(ones, others, strict=True):
            self.assertLess(support.relative_error(one, other), limit)

    def test_operators_pass_pytorchs_own_checks(self):
        options = (True, True, -1, -1, None, False)
        dense = torch.ops.backlight.attention_forward.default
        torch.library.opcheck(dense, (*qkv(seqlen_q=64, seqlen_kv=64), *options, False, "auto"))
        bshd = [x.detach().transpose(1, 2).requires_grad_() for x in qkv(head_dim=96)]
        torch.library.opcheck(dense, (*bshd, *options, True, "flash"))
        torch.library.opcheck(dense, (*qkv(head_dim=192, head_dim_v=128), *options, False, "auto"))
        starts = torch.tensor([0, 100, 256], dtype=torch.int32, device="cuda")
        packed = tensors((256, 4, 64), (256, 2, 64), (256, 2, 64))
        torch.library.opcheck(
            torch.ops.backlight.attention_varlen_forward.default,
            (*packed, starts, starts, None, None, 160, 160, True, False, -1, -1, None, False),
        )

    def test_compiled(self):
        q, k, v = qkv()

        def loss(q, k, v):
            return (backlight.attention(q * 2, k, v, causal=True).float() ** 2).sum()

        eager = torch.autograd.grad(loss(q, k, v), (q, k, v))
        for mode in ("default", "reduce-overhead"):
            with self.subTest(mode):
                compiled = torch.compile(loss, fullgraph=True, mode=mode)
                for _ in range(4):
                    torch.compiler.cudagraph_mark_step_begin()
                    got = [x.clone() for x in torch.autograd.grad(compiled(q, k, v), (q, k, v))]
                self.close(got, eager)

    def test_captured_into_a_graph(self):
        q, k, v = qkv()
        d_o = torch.randn_like(q)
        expected = gradients(lambda *x: backlight.attention(*x, causal=True), (q, k, v), d_o)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            gradients(lambda *x: backlight.attention(*x, causal=True), (q, k, v), d_o)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = gradients(lambda *x: backlight.attention(*x, causal=True), (q, k, v), d_o)
        for _ in range(3):
            graph.replay()
        self.close(captured, expected)
        with torch.no_grad():
            q.mul_(0.5)
        graph.replay()
        self.close(captured, gradients(lambda *x: backlight.attention(*x, causal=True), (q, k, v), d_o))

    def test_checkpointed(self):
        q, k, v = qkv()
        expected = torch.autograd.grad(backlight.attention(q, k, v).sum(), (q, k, v))
        for reentrant in (False, True):
            for x in (q, k, v):
                x.grad = None
            checkpoint(backlight.attention, q, k, v, use_reentrant=reentrant).sum().backward()
            self.close([x.grad for x in (q, k, v)], expected)

    def test_sdpa_is_routed(self):
        inputs = qkv(seqlen_kv=300)
        d_o = torch.randn_like(inputs[0])
        for causal in (False, True):

            def sdpa(q, k, v):
                return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

            expected = gradients(sdpa, inputs, d_o)
            with backlight.patch_sdpa() as routing:
                self.close(gradients(sdpa, inputs, d_o), expected)
                self.assertEqual((routing.routed, len(routing.reasons)), (1, 0))
                self.close(gradients(torch.compile(sdpa, fullgraph=True), inputs, d_o), expected)

    def test_a_layer_of_pytorchs_own_is_routed(self):
        layer = torch.nn.TransformerEncoderLayer(256, 4, 512, 0.0, batch_first=True, device="cuda", dtype=torch.bfloat16)
        x = torch.randn(2, 128, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        expected = torch.autograd.grad(layer(x).sum(), x)
        with backlight.patch_sdpa() as routing:
            got = torch.autograd.grad(layer(x).sum(), x)
        self.assertEqual(routing.routed, 1, routing.reasons)
        self.close(got, expected, 2e-2)

    def test_autocast(self):
        q, k, v = qkv(dtype=torch.float32)
        with torch.autocast("cuda", torch.bfloat16):
            out = backlight.attention(q, k.bfloat16(), v)
        self.assertEqual(out.dtype, torch.bfloat16)
        out.sum().backward()
        self.assertEqual(q.grad.dtype, torch.float32)

        @torch.compile(fullgraph=True)
        def compiled(q, k, v):
            with torch.autocast("cuda", torch.bfloat16):
                return backlight.attention(q, k.bfloat16(), v)

        self.close([compiled(q, k, v)], [out])

    def test_packed_sequences_are_those_of_each(self):
        lengths = (100, 1, 300, 57)
        starts = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device="cuda")
        rows = int(starts[-1])
        for causal, heads_kv in ((False, 4), (True, 2)):
            q, k, v = tensors((rows, 4, 64), (rows, heads_kv, 64), (rows, heads_kv, 64))
            d_o = torch.randn_like(q)
            packed = gradients(
                lambda *x: backlight.attention_varlen(
                    *x, starts, starts, max(lengths), max(lengths), causal=causal, enable_gqa=True
                ),
                (q, k, v), d_o,
            )  # fmt: skip
            for a, b in itertools.pairwise(starts.tolist()):
                own = [x.detach()[None, a:b].requires_grad_() for x in (q, k, v)]
                each = gradients(
                    lambda *x: backlight.attention(*x, causal=causal, enable_gqa=True, layout="bshd"), own, d_o[None, a:b]
                )
                self.close([x[None, a:b] for x in packed], each)

    def test_seqused(self):
        starts = torch.tensor([0, 128, 256], dtype=torch.int32, device="cuda")
        used = torch.tensor([100, 128], dtype=torch.int32, device="cuda")
        q, k, v = tensors((256, 4, 64), (256, 4, 64), (256, 4, 64))
        d_o = torch.randn_like(q)
        got = gradients(
            lambda *x: backlight.attention_varlen(*x, starts, starts, 128, 128, seqused_kv=used), (q, k, v), d_o
        )
        own = [q.detach()[None, :128].requires_grad_(), *(x.detach()[None, :100].requires_grad_() for x in (k, v))]
        out, d_q, d_k, d_v = gradients(lambda *x: backlight.attention(*x, layout="bshd"), own, d_o[None, :128])
        self.close((got[0][None, :128], got[1][None, :128], got[2][None, :100], got[3][None, :100]), (out, d_q, d_k, d_v))
        self.assertEqual(int(torch.count_nonzero(got[2][100:128])), 0)

    def test_deterministic_bits(self):
        inputs = qkv(seqlen_q=1024, seqlen_kv=1024)
        d_o = torch.randn_like(inputs[0])
        runs = [gradients(lambda *x: backlight.attention(*x, deterministic=True), inputs, d_o) for _ in range(3)]
        for other in runs[1:]:
            self.assertTrue(all(torch.equal(x, y) for x, y in zip(runs[0], other)))

    def test_upstream_gradients_of_any_strides(self):
        q, k, v = qkv()
        out = backlight.attention(q, k, v)
        expanded = torch.autograd.grad(out.sum(), (q, k, v), retain_graph=True)
        self.close(expanded, torch.autograd.grad(out, (q, k, v), torch.ones_like(out), retain_graph=True), 1e-3)
        d_o = torch.randn_like(out)
        turned = torch.autograd.grad(out, (q, k, v), d_o.mT.contiguous().mT, retain_graph=True)
        self.close(turned, torch.autograd.grad(out, (q, k, v), d_o), 1e-3)

    def test_streams_and_threads(self):
        inputs = qkv(seqlen_q=1024, seqlen_kv=1024)
        d_o = torch.randn_like(inputs[0])
        expected = gradients(backlight.attention, inputs, d_o)
        torch.cuda.synchronize()
        failures = []

        def work():
            try:
                stream = torch.cuda.Stream()
                with torch.cuda.stream(stream):
                    for _ in range(20):
                        got = gradients(backlight.attention, inputs, d_o)
                stream.synchronize()
                self.close(got, expected)
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    @unittest.skipIf(torch.cuda.device_count() < 2, "there is one GPU")
    def test_another_gpu_than_the_current_one(self):
        inputs = [x.detach().to("cuda:1").requires_grad_() for x in qkv()]
        d_o = torch.randn_like(inputs[0])
        got = gradients(backlight.attention, inputs, d_o)
        own = [x.detach().to("cuda:0").requires_grad_() for x in inputs]
        self.close([x.to("cuda:0") for x in got], gradients(backlight.attention, own, d_o.to("cuda:0")))
        self.assertEqual(torch.cuda.current_device(), 0)

    def test_a_thousand_training_steps_lose_no_memory(self):
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.into, self.out = torch.nn.Linear(256, 768), torch.nn.Linear(256, 256)

            def forward(self, x):
                q, k, v = self.into(x).unflatten(-1, (3, 4, 64)).unbind(-3)
                return self.out(backlight.attention(q, k, v, causal=True, layout="bshd").flatten(-2))

        model = Model().to("cuda", torch.bfloat16)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
        x = torch.randn(2, 256, 256, device="cuda", dtype=torch.bfloat16)

        def steps(count):
            for _ in range(count):
                optimizer.zero_grad(set_to_none=True)
                model(x).float().square().mean().backward()
                optimizer.step()
            torch.cuda.synchronize()
            gc.collect()
            free, _ = torch.cuda.mem_get_info()
            return torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), free, resident_bytes()

        allocated, reserved, free, resident = steps(100)
        allocated_after, reserved_after, free_after, resident_after = steps(1000)
        self.assertEqual((allocated_after, reserved_after), (allocated, reserved))
        # What other programs take of the device meanwhile is let pass; 4 KiB a step is not.
        self.assertGreater(free_after, free - (4 << 20), f"{free - free_after} bytes of the device less")
        # 2 KiB a step: the heap may grow by some, and one call's objects take more.
        self.assertLess(resident_after, resident + (2 << 20), f"{resident_after - resident} bytes more")


class Arrays(unittest.TestCase):
    """backlight.backward over DLPack."""

    def setUp(self):
        self.inputs = qkv()
        o, lse = torch.ops.backlight.attention_forward(*self.inputs, True, True, -1, -1, None, False, False, "flash")
        self.d_o = torch.randn_like(o)
        self.expected = torch.autograd.grad(o, self.inputs, self.d_o)
        self.arrays = [x.detach() for x in (*self.inputs, o, lse, self.d_o)]

    def close(self, got):
        for one, other in zip(got, self.expected, strict=True):
            self.assertLess(support.relative_error(one, other), 1e-2)

    def test_pytorch(self):
        self.close(backlight.backward(*self.arrays, causal=True))
        out = [torch.full_like(x, float("nan")) for x in self.inputs]
        self.assertIs(backlight.backward(*self.arrays, causal=True, out=out)[0], out[0])
        self.close(out)
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        got = backlight.backward(*self.arrays, causal=True, stream=stream.cuda_stream)
        stream.synchronize()
        self.close(got)

    def test_a_framework_without_memory_to_write_to(self):
        class Foreign:
            def __init__(self, tensor):
                self.tensor = tensor

            def __dlpack__(self, *, stream=None):
                return self.tensor.__dlpack__(stream=stream)

            def __dlpack_device__(self):
                return self.tensor.__dlpack_device__()

        self.close(map(torch.from_dlpack, backlight.backward(*map(Foreign, self.arrays), causal=True)))

    def test_cupy(self):
        try:
            import cupy
        except ImportError:
            self.skipTest("there is no CuPy")
        half = [x.half() if x.dtype == torch.bfloat16 else x for x in self.arrays]
        got = backlight.backward(*(cupy.from_dlpack(x) for x in half), causal=True)
        self.assertIsInstance(got[0], cupy.ndarray)
        self.close(map(torch.from_dlpack, got))

    def test_jax(self):
        try:
            import jax
        except ImportError:
            self.skipTest("there is no JAX")
        if jax.default_backend() != "gpu":
            self.skipTest("there is no JAX for GPUs")
        got = backlight.backward(*(jax.dlpack.from_dlpack(x) for x in self.arrays), causal=True)
        self.assertIsInstance(got[0], jax.Array)
        self.close(map(torch.from_dlpack, got))


if __name__ == "__main__":
    unittest.main()
