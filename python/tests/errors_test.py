"""What is refused, in what words, and what is left alone: needs PyTorch, no GPU."""

import subprocess
import sys
import unittest
from pathlib import Path

try:
    import numpy as np
    import torch
except ImportError:
    raise unittest.SkipTest("there is no PyTorch, or no NumPy") from None
from torch._subclasses.fake_tensor import FakeTensorMode

import backlight
from backlight import _forward, _operators, _options

if not torch.cuda.is_available() and not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    # It ends the process where a fake CUDA tensor that wants a gradient meets no driver.
    raise unittest.SkipTest(f"PyTorch {torch.__version__} cannot do without a driver")

OPTIONS = (False, True, -1, -1, None, False)


def cuda(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype, device="cuda")


class Refused(unittest.TestCase):
    """Tensors of a CUDA device that is not there: nothing gets as far as to miss it."""

    def setUp(self):
        mode = FakeTensorMode()
        mode.__enter__()
        self.addCleanup(mode.__exit__, None, None, None)

    def refused(self, kind, words, *arguments, function=backlight.attention, **options):
        with self.assertRaisesRegex(kind, words) as refusal:
            function(*arguments, **options)
        self.assertIsInstance(refusal.exception, backlight.Error)

    def test_tensors_by_name(self):
        q = cuda(1, 2, 64, 64)
        for kind, words, arguments in (
            (TypeError, "q is a list: it must be a torch.Tensor", ([1], q, q)),
            (ValueError, "k.device is cpu: it must be a CUDA device", (q, torch.empty(1, 2, 64, 64, dtype=q.dtype), q)),
            (ValueError, "v.device is cuda:1: it must be that of q, cuda:0",
             (q.to("cuda:0"), q.to("cuda:0"), q.to("cuda:1"))),
            (TypeError, r"q.dtype is torch.float32: it must be torch.bfloat16 or torch.float16", (q.float(), q, q)),
            (TypeError, r"v.dtype is torch.float16: it must be that of q, torch.bfloat16", (q, q, q.half())),
            (ValueError, "q has 3 dimensions: it must have 4", (q[0], q, q)),
            (TypeError, "q is a NoneType: it must be a torch.Tensor", (None, q, q)),
            (TypeError, "v is a NoneType: it must be a torch.Tensor", (q, q, None)),
            (ValueError, "batch of k is 2: it must be that of q, 1", (q, cuda(2, 2, 64, 64), q)),
            (ValueError, "seqlen of v is 32: it must be that of k, 64", (q, q, cuda(1, 2, 32, 64))),
            (ValueError, "enable_gqa is False: it must be True where q has 2 heads and k has 1",
             (q, cuda(1, 1, 64, 64), cuda(1, 1, 64, 64))),
            (ValueError, "heads of k is 3: it must divide that of q, 2", (q, cuda(1, 3, 64, 64), cuda(1, 3, 64, 64))),
            (ValueError, "head_dim of k is 32: it must be that of q, 64", (q, cuda(1, 2, 64, 32), q)),
        ):  # fmt: skip
            with self.subTest(words):
                self.refused(kind, words, *arguments)
        for head_dim in (12, 264):
            x = cuda(1, 2, 64, head_dim)
            self.refused(NotImplementedError, f"head_dim of q is {head_dim}: it must be a multiple of 8", x, x, x)

    def test_options_by_name(self):
        q = cuda(1, 2, 64, 64)
        for words, options in (
            ("layout is 'sbhd': it must be 'bhsd' or 'bshd'", {"layout": "sbhd"}),
            ("mask_alignment is 'left'", {"mask_alignment": "left"}),
            ("forward is 'math'", {"forward": "math"}),
            (r"window\[1\] is 1.5", {"window": (0, 1.5)}),
            (f"window.0. is {2**70}: it must be a whole number below 2", {"window": (2**70, 1)}),
            (f"softmax_scale is {10**400}: it must be", {"softmax_scale": 10**400}),
            ("layout is array", {"layout": np.array(["bhsd"] * 2)}),
            ("softmax_scale is inf", {"softmax_scale": float("inf")}),
        ):
            with self.subTest(words):
                self.refused(ValueError, words, q, q, q, **options)
        for words, options in (
            ("causal is 'false': it must be True or False", {"causal": "false"}),
            ("causal is array", {"causal": np.ones(2)}),
            ("deterministic is 'no'", {"deterministic": "no"}),
            ("deterministic is array", {"deterministic": np.ones(2)}),
            ("enable_gqa is \\[1\\]", {"enable_gqa": [1]}),
        ):
            with self.subTest(words):
                self.refused(TypeError, words, q, q, q, **options)
        with self.assertRaisesRegex(TypeError, "attn_mask"):
            backlight.attention(q, q, q, attn_mask=torch.empty(64, 64, requires_grad=True))

    def test_packed_sequences_by_name(self):
        q = cuda(128, 2, 64)
        starts = torch.zeros(3, dtype=torch.int32, device="cuda")
        for kind, words, arguments, options in (
            (TypeError, "cu_seqlens_q.dtype is torch.int64", (starts.long(), starts, 64, 64), {}),
            (ValueError, "cu_seqlens_kv has 2 numbers: it must have 3", (starts, starts[:2], 64, 64), {}),
            (ValueError, "max_seqlen_q is -1: it must be a whole number from 0 on", (starts, starts, -1, 64), {}),
            (ValueError, f"max_seqlen_q is {2**70}: it must be at most 1073741824", (starts, starts, 2**70, 64), {}),
            (ValueError, "max_seqlen_kv is True", (starts, starts, 64, True), {}),
            (TypeError, "cu_seqlens_kv is a NoneType: it must be a torch.Tensor", (starts, None, 64, 64), {}),
            (ValueError, "seqused_kv has 3 numbers: it must have 2", (starts, starts, 64, 64), {"seqused_kv": starts}),
            (NotImplementedError, "seqused_q is given", (starts, starts, 64, 64),
             {"seqused_q": starts[1:], "causal": True}),
            (NotImplementedError, "mask_alignment is 'top_left'", (starts, starts.clone(), 64, 64),
             {"mask_alignment": "top_left", "causal": True}),
        ):  # fmt: skip
            with self.subTest(words):
                self.refused(kind, words, q, q, q, *arguments, function=backlight.attention_varlen, **options)

    def test_operators_called_directly_check_their_options(self):
        for words, options in (
            ("forward is 'bogus'", (*OPTIONS, False, "bogus")),
            ("softmax_scale is nan", (*OPTIONS[:4], float("nan"), False, False, "auto")),
            ("window_left is -7", (False, True, -7, -1, None, False, False, "auto")),
        ):
            with self.assertRaisesRegex(ValueError, words):
                _operators._checked(options)

    def test_numbers_of_numpy_are_taken(self):
        self.assertEqual(_options.window_of((np.int64(3), 1)), (3, 1))
        self.assertIs(type(_options.window_of((np.int64(3), 1))[0]), int)
        _options.check_scale(np.float32(0.1))
        self.assertIs(_options.flag("causal", np.bool_(True)), True)

    def test_shapes_and_strides_without_a_device(self):
        q, k = cuda(2, 64, 4, 64).transpose(1, 2), cuda(2, 2, 48, 64)
        q.requires_grad_()
        out = backlight.attention(q, k, k, enable_gqa=True)
        self.assertEqual((out.shape, out.stride(), out.dtype), (q.shape, q.stride(), q.dtype))
        lse = torch.empty(2, 4, 64, device="cuda")
        gradients = torch.ops.backlight.attention_backward(out, q, k, k, out, lse, *OPTIONS, False)
        self.assertEqual([x.stride() for x in gradients], [x.stride() for x in (q, k, k)])
        starts = torch.zeros(3, dtype=torch.int32, device="cuda")
        packed = cuda(128, 4, 96)
        out = backlight.attention_varlen(packed, packed, packed, starts, starts, 64, 64)
        self.assertEqual(out.shape, packed.shape)


class Windows(unittest.TestCase):
    def test_bounds_beyond_32_bits_are_as_good_as_none(self):
        self.assertEqual(_forward._windows(-1, -1), {})
        windows = _forward._windows(2**32, 2**63 - 1)
        self.assertEqual(set(windows.values()), {2**31 - 1})
        self.assertEqual(_forward._windows(3, -1), {"window_size_left": 3, "window_size_right": -1})


@unittest.skipIf(torch.cuda.is_available(), "there is a GPU")
class WithoutGpu(unittest.TestCase):
    def test_tools_that_need_one_say_so_in_one_line(self):
        root = Path(__file__).parents[2]
        peers = f"import sys; sys.path.insert(0, {str(root / 'tools/peers')!r}); import measurement; "
        for command in (
            ["-m", "backlight.host_time"],
            ["-c", peers + "measurement.Run(None, (), {})"],
            [root / "docs/examples/train_char_gpt.py", "--small", "--steps", "1"],
        ):
            with self.subTest(command):
                told = subprocess.run([sys.executable, "-W", "ignore", *command], capture_output=True, text=True)
                self.assertEqual(told.returncode, 1, told.stderr)
                self.assertIn("finds no CUDA device", told.stderr)
                self.assertNotIn("Traceback", told.stderr)

    def test_calls_of_sdpa_with_fake_tensors_are_routed(self):
        with FakeTensorMode(), backlight.patch_sdpa() as routing:
            q = cuda(1, 2, 64, 64).requires_grad_()
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
        self.assertEqual(routing.routed, 1)


class LeftAlone(unittest.TestCase):
    def test_leaving_what_was_not_entered_is_refused(self):
        with self.assertRaisesRegex(backlight.Error, "without having been entered"):
            backlight.patch_sdpa().__exit__(None, None, None)

    def test_calls_on_the_cpu_go_to_pytorch(self):
        functional = torch.nn.functional
        before = functional.scaled_dot_product_attention
        q = torch.randn(1, 2, 8, 16, requires_grad=True)
        mask = torch.zeros(8, 8, requires_grad=True)
        expected = before(q, q, q, is_causal=True), before(q, q, q, attn_mask=mask)
        with self.assertLogs("backlight", "WARNING") as log, backlight.patch_sdpa(explain=True) as routing:
            self.assertIsNot(functional.scaled_dot_product_attention, before)
            with backlight.patch_sdpa() as inner:
                out = functional.scaled_dot_product_attention(q, q, q, is_causal=True)
            functional.scaled_dot_product_attention(q, q, q, is_causal=True)
            masked = functional.scaled_dot_product_attention(q, q, q, mask)
        self.assertIs(functional.scaled_dot_product_attention, before)
        self.assertTrue(torch.equal(out, expected[0]))
        self.assertTrue(torch.equal(masked, expected[1]))
        (reason, count), = routing.reasons.items()
        self.assertIn("query is on cpu", reason)
        self.assertEqual((count, routing.routed, sum(inner.reasons.values())), (3, 0, 1))
        self.assertEqual(len(log.output), 1)

    def test_reasons(self):
        from backlight._sdpa import why_not

        with FakeTensorMode():
            q = cuda(1, 2, 64, 64).requires_grad_()
            for words, arguments, options in (
                ("attn_mask is given", (q, q, q, q), {}),
                ("dropout_p is 0.5", (q, q, q), {"dropout_p": 0.5}),
                ("no gradient is wanted", (q.detach(),) * 3, {}),
                ("dtype is torch.float32", (q.float(),) * 3, {}),
                ("3 dimensions", (q[0],) * 3, {}),
                ("enable_gqa is False", (q, q[:, :1], q[:, :1]), {}),
                ("head_dim of q is 20", (cuda(1, 2, 64, 20).requires_grad_(),) * 3, {}),
            ):
                with self.subTest(words):
                    self.assertIn(words, why_not(*arguments, **options))

    def test_it_is_put_back_after_an_exception(self):
        before = torch.nn.functional.scaled_dot_product_attention
        with self.assertRaises(ZeroDivisionError), backlight.patch_sdpa():
            1 / 0
        self.assertIs(torch.nn.functional.scaled_dot_product_attention, before)


if __name__ == "__main__":
    unittest.main()
