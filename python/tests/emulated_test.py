"""The whole way from attention() to the kernels, on the emulated device: needs PyTorch, no GPU."""

import unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("there is no PyTorch") from None
from torch.utils.checkpoint import checkpoint

import backlight
import support
from backlight import _attention, _call


def tensors(*shapes, dtype=torch.bfloat16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


def qkv(batch=1, heads=2, heads_kv=2, seqlen_q=64, seqlen_kv=64, head_dim=64, head_dim_v=64, **more):
    return tensors(
        (batch, heads, seqlen_q, head_dim), (batch, heads_kv, seqlen_kv, head_dim),
        (batch, heads_kv, seqlen_kv, head_dim_v), **more,
    )  # fmt: skip


@support.needs_emulation
class Emulated(unittest.TestCase):
    def setUp(self):
        device = support.emulated_device()
        device.__enter__()
        self.addCleanup(device.__exit__, None, None, None)

    def compare(self, inputs, function, allowed=None, scale=None, layout="bhsd"):
        """`function`'s output and gradients with the reference's in fp64."""
        out = function(*inputs)
        d_o = torch.randn(out.shape, generator=torch.Generator().manual_seed(5)).to(out.dtype)
        gradients = torch.autograd.grad(out, inputs, d_o)
        exact = [x.detach().double().requires_grad_() for x in inputs]
        turned = exact if layout == "bhsd" else [x.transpose(1, 2) for x in exact]
        expected, _ = support.reference(*turned, allowed, scale)
        expected = expected if layout == "bhsd" else expected.transpose(1, 2)
        self.assertLess(support.relative_error(out, expected), 1e-2)
        for gradient, one, x in zip(gradients, torch.autograd.grad(expected, exact, d_o.double()), inputs):
            self.assertEqual(gradient.shape, x.shape)
            self.assertLess(support.relative_error(gradient, one), 1e-2)
        return gradients

    def test_gradients_are_those_of_a_reference(self):
        self.compare(qkv(), lambda q, k, v: backlight.attention(q, k, v))

    def test_layouts_and_groups_of_heads(self):
        inputs = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in qkv(heads=4)]
        self.compare(
            inputs, lambda q, k, v: backlight.attention(q, k, v, enable_gqa=True, layout="bshd"), layout="bshd"
        )

    def test_slices_of_one_packed_tensor(self):
        (qkv_packed,) = tensors((1, 64, 3, 2, 64))
        q, k, v = (x.transpose(1, 2) for x in qkv_packed.unbind(2))
        out = backlight.attention(q, k, v)
        (gradient,) = torch.autograd.grad(out.sum(), qkv_packed)
        own = [x.detach().contiguous().requires_grad_() for x in (q, k, v)]
        for one, other in zip(gradient.unbind(2), torch.autograd.grad(backlight.attention(*own).sum(), own)):
            self.assertTrue(torch.equal(one.transpose(1, 2), other))

    def test_masks_over_unequal_lengths_in_both_alignments(self):
        for seqlen_q, seqlen_kv in ((88, 40), (40, 64)):
            for causal, window in ((True, None), (False, (8, 4)), (True, (8, None)), (False, (8, None)), (False, (None, 4))):
                for alignment in ("top_left", "bottom_right"):
                    with self.subTest(q=seqlen_q, kv=seqlen_kv, causal=causal, window=window, alignment=alignment):
                        bounds = (-1, -1) if window is None else tuple(-1 if x is None else x for x in window)
                        allowed = support.mask(seqlen_q, seqlen_kv, causal, bounds, alignment == "top_left")
                        self.compare(
                            qkv(seqlen_q=seqlen_q, seqlen_kv=seqlen_kv),
                            lambda q, k, v: backlight.attention(
                                q, k, v, causal=causal, window=window, mask_alignment=alignment
                            ),
                            allowed,
                        )

    def test_head_dimensions_of_their_own_for_values(self):
        self.compare(qkv(head_dim_v=32), lambda q, k, v: backlight.attention(q, k, v, softmax_scale=0.2), scale=0.2)

    def test_awkward_upstream_gradients_and_inputs_are_copied(self):
        q, k, v = qkv()
        out = backlight.attention(q, k, v)
        expanded = torch.autograd.grad(out.sum(), (q, k, v))  # Strides of 0.
        out = backlight.attention(q, k, v)
        for one, other in zip(expanded, torch.autograd.grad(out, (q, k, v), torch.ones_like(out))):
            self.assertTrue(torch.equal(one, other))
        turned = [x.detach().mT.contiguous().mT.requires_grad_() for x in (q, k, v)]
        self.assertNotEqual(turned[0].stride(-1), 1)
        for one, other in zip(torch.autograd.grad(backlight.attention(*turned).sum(), turned), expanded):
            self.assertTrue(torch.equal(one, other))

    def test_empty_sequences_have_no_gradients(self):
        q, k, v = qkv(seqlen_kv=0)
        out = backlight.attention(q, k, v)
        self.assertEqual(int(torch.count_nonzero(out)), 0)
        self.assertEqual([x.shape for x in torch.autograd.grad(out.sum(), (q, k, v))], [q.shape, k.shape, v.shape])

    def test_without_a_gradient_nothing_is_planned(self):
        q, k, v = (x.detach() for x in qkv(seqlen_q=48, seqlen_kv=48))
        _attention._dense_calls.clear()
        with unittest.mock.patch.object(_attention._call.Call, "make_plan", side_effect=AssertionError):
            self.assertFalse(backlight.attention(q, k, v).requires_grad)

    @unittest.skipUnless(_call._is_direct, "this PyTorch has no exchange API")
    def test_a_call_is_found_again_by_its_kind_alone(self):
        q, k, v = (x.detach() for x in qkv(seqlen_q=24, seqlen_kv=24))
        find = _call._backlight.find_call
        given = (True, None, None, False, False, "bhsd", "top_left", "auto")
        _call._backlight.forget_calls()
        self.assertIsNone(find(q, k, v, given))
        backlight.attention(q, k, v, causal=True)
        found = find(q, k, v, given)
        self.assertIsInstance(found, _call.Call)
        self.assertIs(find(q.clone(), k.clone(), v.clone(), given), found)
        self.assertIs(find(torch.nn.Parameter(q), k, v, given), found)
        for other in (
            (q[:, :, :16], k, v, given), (q.half(), k.half(), v.half(), given), (q, k, v, (False, *given[1:])),
            (q, k, v, (True, [1, 2], *given[2:])), (q.mT.contiguous().mT, k, v, given), (1, k, v, given),
        ):  # fmt: skip
            self.assertIsNone(find(*other))
        window = [8, 0]
        backlight.attention(q, k, v, window=window)
        self.assertIsNone(find(q, k, v, (False, window, *given[2:])))  # It may be changed by the caller.
        for length in range(32, 52):
            x = q.new_zeros(1, 2, length, 64)
            backlight.attention(x, x, x, causal=True)
        self.assertIsNone(find(q, k, v, given))  # Others were later.

    def test_packed_sequences(self):
        starts = torch.tensor([0, 40, 40, 72], dtype=torch.int32)
        q, k, v = tensors((80, 2, 64), (80, 2, 64), (80, 2, 64))
        out = backlight.attention_varlen(q, k, v, starts, starts, 40, 40, causal=True)
        d_o = torch.randn(out.shape).to(out.dtype)
        gradients = torch.autograd.grad(out, (q, k, v), d_o)
        for a, b in ((0, 40), (40, 72)):
            own = [x.detach()[None, a:b].transpose(1, 2).double().requires_grad_() for x in (q, k, v)]
            expected, _ = support.reference(*own, support.mask(b - a, b - a, True))
            each = torch.autograd.grad(expected, own, d_o[None, a:b].transpose(1, 2).double())
            for gradient, one in zip(gradients, each):
                self.assertLess(support.relative_error(gradient[None, a:b].transpose(1, 2), one), 1e-2)
        for gradient in gradients:
            self.assertEqual(int(torch.count_nonzero(gradient[72:])), 0)

    def test_packed_calls_like_one_before_are_checked_for_what_a_key_may_hide(self):
        starts = torch.tensor([0, 16, 32], dtype=torch.int32)
        used, spread = torch.tensor([2, 16], dtype=torch.int32), torch.tensor([2, 0, 16, 0], dtype=torch.int32)[::2]
        x = tensors((32, 2, 64))[0].detach()

        def call(q=x, most=16, **more):
            return backlight.attention_varlen(q, x, x, starts, starts, most, 16, **more)

        call(seqused_q=used)
        for words, more in (
            ("seqused_q has shape .2,.: it must be contiguous", {"seqused_q": spread}),
            (r"max_seqlen_q is 16.0", {"most": 16.0}),
            (r"max_seqlen_q is \[16\]", {"most": [16]}),
            (r"enable_gqa is \[1\]", {"enable_gqa": [1]}),
            (r"q.layout is torch.sparse_coo", {"q": x.to_sparse()}),
        ):
            with self.subTest(words), self.assertRaisesRegex(backlight.Error, words):
                call(**more)
        options = (False, False, -1, -1, None, False)
        operator = torch.ops.backlight.attention_varlen_forward
        operator(x, x, x, starts, starts, used, None, 16, 16, *options)
        with self.assertRaisesRegex(ValueError, "seqused_q has shape"):
            operator(x, x, x, starts, starts, spread, None, 16, 16, *options)

    def test_what_is_no_plain_tensor_is_refused_by_name(self):
        q = qkv()[0].detach()
        backlight.attention(q, q, q)
        nested = torch.nested.nested_tensor([q[0], q[0]])
        for words, arguments in (
            ("q is a NoneType: it must be a torch.Tensor", (None, q, q)),
            ("v is a NoneType: it must be a torch.Tensor", (q, q, None)),
            ("q.layout is torch.sparse_coo: it must be torch.strided", (q.to_sparse(), q, q)),
            ("k is a nested tensor: it must be a plain one", (q, nested, q)),
        ):
            with self.subTest(words), self.assertRaisesRegex(TypeError, words) as refusal:
                backlight.attention(*arguments)
            self.assertIsInstance(refusal.exception, backlight.Error)

    @unittest.skipUnless(_call._is_direct, "this PyTorch has no exchange API")
    def test_row_sums_of_another_type_are_refused_natively(self):
        plan = support._PLAN(
            0, False, 1, 2, 2, 64, 64, 64, 64, False, False, -1, -1, 0.125, False, -1, -1, False
        )  # fmt: skip
        x, lse = torch.zeros(1, 2, 64, 64, dtype=torch.bfloat16), torch.zeros(1, 2, 64, dtype=torch.int32)
        with self.assertRaisesRegex(ValueError, "lse is of DLPack's type 0 of 32 bits: it must be fp32"):
            plan.run(x, x, x, x, x, lse, x, x, x, None, 0, None, None, None, None)

    def test_windows_of_any_size_are_taken(self):
        for bound in (2**32, 2**63 - 1):
            self.compare(qkv(), lambda q, k, v: backlight.attention(q, k, v, window=(bound, bound)))

    def test_operators_pass_pytorchs_own_checks(self):
        options = (True, True, -1, -1, None, False)
        dense = torch.ops.backlight.attention_forward.default
        torch.library.opcheck(dense, (*qkv(), *options, False, "auto"))
        bshd = [x.detach().transpose(1, 2).requires_grad_() for x in qkv(head_dim_v=32)]
        torch.library.opcheck(dense, (*bshd, *options, True, "auto"))
        starts = torch.tensor([0, 24, 64], dtype=torch.int32)
        packed = tensors((64, 2, 64), (64, 2, 64), (64, 2, 64))
        torch.library.opcheck(
            torch.ops.backlight.attention_varlen_forward.default,
            (*packed, starts, starts, None, None, 40, 40, True, False, -1, -1, None, False),
        )
        with torch.no_grad():
            q, k, v = qkv()
            o, lse = dense(q, k, v, *options, False, "auto")
            torch.library.opcheck(
                torch.ops.backlight.attention_backward.default,
                (o, q.detach(), k.detach(), v.detach(), o, lse, *options, False),
            )

    def test_compiled_gradients_are_the_eager_ones(self):
        q, k, v = qkv()

        def loss(q, k, v):
            return (backlight.attention(q * 2, k, v, causal=True).float() ** 2).sum()

        eager = torch.autograd.grad(loss(q, k, v), (q, k, v))
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        for one, other in zip(torch.autograd.grad(compiled(q, k, v), (q, k, v)), eager):
            self.assertLess(support.relative_error(one, other), 2e-3)

    def test_checkpointing_computes_the_same(self):
        q, k, v = qkv()
        eager = torch.autograd.grad(backlight.attention(q, k, v).sum(), (q, k, v))
        for reentrant in (False, True):
            out = checkpoint(backlight.attention, q, k, v, use_reentrant=reentrant)
            for x in (q, k, v):
                x.grad = None
            out.sum().backward()
            for x, other in zip((q, k, v), eager):
                self.assertLess(support.relative_error(x.grad, other), 2e-3)

    def test_a_second_derivative_is_refused(self):
        q, k, v = qkv()
        (d_q,) = torch.autograd.grad(backlight.attention(q, k, v).sum(), q, create_graph=True)
        with self.assertRaisesRegex(NotImplementedError, "second derivative"):
            d_q.sum().backward()
        with self.assertRaises(backlight.UnsupportedError):
            torch.autograd.grad(backlight.attention(q, k, v).sum(), q, create_graph=True)[0].sum().backward()

    def test_lse_of_the_operator_has_no_gradient(self):
        o, lse = torch.ops.backlight.attention_forward(*qkv(), True, True, -1, -1, None, False, False, "auto")
        self.assertTrue(o.requires_grad)
        self.assertFalse(lse.requires_grad)

    def test_calls_of_sdpa_are_routed(self):
        q, k, v = qkv()
        functional = torch.nn.functional
        with backlight.patch_sdpa() as routing:
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
        self.assertEqual(routing.routed, 1)
        self.assertEqual(dict(routing.reasons), {"dropout_p is 0.1, not 0": 1})
        self.assertTrue(torch.equal(out, backlight.attention(q, k, v, causal=True)))

        def compiled(q, k, v):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

        with backlight.patch_sdpa():
            again = torch.compile(compiled, fullgraph=True, backend="aot_eager")(q, k, v)
        self.assertTrue(torch.equal(out, again))


if __name__ == "__main__":
    unittest.main()
