"""The package without PyTorch and without a GPU."""

import ctypes
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import backlight
from emulation import emulate
from backlight import __main__ as command_module
from backlight import _arrays, _backlight, _nvrtc, errors

PLAN = (0, False, 1, 1, 1, 64, 64, 64, 64, False, False, -1, -1, 0.125, False, -1, -1, False)


class Package(unittest.TestCase):
    def test_it_has_a_version_and_names(self):
        self.assertRegex(backlight.__version__, r"^\d+\.\d+")
        for name in ("attention", "attention_varlen", "patch_sdpa", "backward"):
            self.assertIn(name, dir(backlight))
        with self.assertRaisesRegex(AttributeError, "no attribute 'nonsense'"):
            backlight.nonsense

    def test_importing_it_imports_no_framework(self):
        code = "import sys, backlight; backlight.backward; print('torch' in sys.modules)"
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(told.stdout.strip(), "False")

    def test_the_command_that_is_not_there_is_told(self):
        told = subprocess.run([sys.executable, "-m", "backlight", "--help"], capture_output=True, text=True)
        if told.returncode:
            self.assertIn("without the command", told.stderr)
        else:
            self.assertIn("verify", told.stdout)

    def test_the_command_of_a_build_folder_is_found(self):
        with tempfile.TemporaryDirectory() as root:
            package, command = Path(root, "python/package/backlight"), Path(root, "bin/backlight")
            for folder in (package, command.parent):
                folder.mkdir(parents=True)
            command.touch()
            with (
                mock.patch.object(command_module, "__file__", str(package / "__main__.py")),
                mock.patch.object(os, "execve") as execve,
            ):
                command_module.main()
            self.assertTrue(command.samefile(execve.call_args.args[0]))

    def test_errors_are_of_pythons_kinds(self):
        for code, kind in (
            ("invalid_argument", ValueError), ("unsupported", NotImplementedError), ("driver_not_found", RuntimeError),
        ):  # fmt: skip
            error = errors.of_code(code, "text")
            self.assertIsInstance(error, kind)
            self.assertIsInstance(error, backlight.Error)
            self.assertEqual((error.code, str(error)), (code, "text"))

    def test_the_newest_nvrtc_of_the_wheels_is_found(self):
        with tempfile.TemporaryDirectory() as root:
            self.assertIsNone(_nvrtc.find_nvrtc([root]))
            for name in ("cuda_nvrtc/lib/libnvrtc.so.12", "cuda_nvrtc/lib/libnvrtc-builtins.so.12.8"):
                path = Path(root, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            self.assertEqual(_nvrtc.find_nvrtc([root]), str(Path(root, "cuda_nvrtc/lib/libnvrtc.so.12")))
            newer = Path(root, "cu13/lib/libnvrtc.so.13")
            newer.parent.mkdir(parents=True)
            newer.touch()
            self.assertEqual(_nvrtc.find_nvrtc([root]), str(newer))

    def test_a_machine_without_a_driver_is_told(self):
        code = (
            "from backlight import _backlight, DeviceError\n"
            "try:\n"
            f"    _backlight.plan(*{PLAN})\n"
            "except DeviceError as error:\n"
            "    print(error.code, error)\n"
        )
        told = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={**__import__("os").environ, "BACKLIGHT_DRIVER_PATH": "/nowhere/libcuda.so.1"},
        )  # fmt: skip
        self.assertIn("driver_not_found", told.stdout)
        self.assertIn("/nowhere/libcuda.so.1", told.stdout)

    def test_what_is_no_array_is_refused_by_name(self):
        with self.assertRaisesRegex(TypeError, "q is a int: it must be an array that has __dlpack__"):
            backlight.backward(1, 2, 3, 4, 5, 6)
        with self.assertRaisesRegex(ValueError, "layout is 'dbhs'"):
            backlight.backward(1, 2, 3, 4, 5, 6, layout="dbhs")
        with self.assertRaisesRegex(ValueError, r"window is 3: it must be None or two numbers"):
            backlight.backward(1, 2, 3, 4, 5, 6, window=3)
        with self.assertRaisesRegex(ValueError, r"window\[0\] is -2"):
            backlight.backward(1, 2, 3, 4, 5, 6, window=(-2, 0))
        with self.assertRaisesRegex(ValueError, "softmax_scale is nan"):
            backlight.backward(1, 2, 3, 4, 5, 6, softmax_scale=float("nan"))
        with self.assertRaisesRegex(ValueError, "together"):
            backlight.backward(1, 2, 3, 4, 5, 6, cu_seqlens_q=1)


def address(array):
    return _backlight.DlpackView(array.__dlpack__()).data_ptr()


def filled(shape, bits, ctype=ctypes.c_uint16, dtype="bf16"):
    """An array of the emulated device, of one value."""
    array = _backlight.new_device_array(0, dtype, shape)
    count = 1
    for extent in shape:
        count *= extent
    (ctype * count).from_address(address(array))[:] = [bits] * count
    return array


def content(array, count):
    return set((ctypes.c_uint16 * count).from_address(address(array)))


@unittest.skipUnless(_backlight.has_emulated_device, "this build has no emulated device")
class EmulatedArrays(unittest.TestCase):
    """Arrays of no framework in particular: of zeros and ones, so that the gradients are known."""

    ONE, ZERO, SHAPE = 0x3F80, 0, (1, 2, 64, 64)

    @classmethod
    def setUpClass(cls):
        emulate()

    def setUp(self):
        patch = mock.patch.object(_arrays, "_DEVICE_TYPES", {1})
        patch.start()
        self.addCleanup(patch.stop)

    def arguments(self):
        # With Q = 0 each of 64 keys has the weight 1/64.
        zeros, ones = filled(self.SHAPE, self.ZERO), filled(self.SHAPE, self.ONE)
        lse = filled((1, 2, 64), 4.1588830833596715, ctypes.c_float, "fp32")
        return zeros, zeros, ones, ones, lse, ones

    def test_gradients_are_new_arrays(self):
        d_q, d_k, d_v = backlight.backward(*self.arguments())
        count = 2 * 64 * 64
        self.assertEqual(content(d_v, count), {self.ONE})
        for zero in (d_q, d_k):
            self.assertLessEqual(content(zero, count), {0x0000, 0x8000})

    def test_gradients_go_where_the_caller_says(self):
        out = [filled(self.SHAPE, 0x7FC0) for _ in range(3)]
        self.assertIs(backlight.backward(*self.arguments(), out=out)[2], out[2])
        self.assertEqual(content(out[2], 2 * 64 * 64), {self.ONE})

    def test_shapes_and_types_are_checked_by_name(self):
        q, k, v, o, lse, d_o = self.arguments()
        other = filled((1, 2, 64, 72), self.ZERO)
        for changed, words in (
            ((q, other, v, o, lse, d_o), r"k is bf16 \(1, 2, 64, 72\)"),
            ((q, k, v, other, lse, d_o), r"o is bf16 \(1, 2, 64, 72\)"),
            ((q, k, v, o, q, d_o), r"lse is bf16"),
            ((lse, k, v, o, lse, d_o), r"q has 3 dimensions"),
        ):
            with self.assertRaisesRegex(ValueError, words):
                backlight.backward(*changed)
        with self.assertRaisesRegex(ValueError, "out has 2 arrays"):
            backlight.backward(q, k, v, o, lse, d_o, out=(q, k))
        with self.assertRaisesRegex(ValueError, "d_q.data|start"):  # It is an input.
            backlight.backward(q, k, v, o, lse, d_o, out=(q, filled(self.SHAPE, 0), filled(self.SHAPE, 0)))
        with self.assertRaisesRegex(NotImplementedError, "head_dim"):
            odd = filled((1, 2, 64, 12), self.ZERO)
            backlight.backward(odd, odd, odd, odd, lse, odd)

    def test_what_is_missing_or_odd_is_named(self):
        class Odd:
            def __dlpack__(self, **more):
                return 1

            def __dlpack_device__(self):
                return 1, 0

        class Nowhere(Odd):
            def __dlpack_device__(self):
                raise ValueError("on no device")

        given = self.arguments()
        for i, name in enumerate(("q", "k", "v", "o", "lse", "d_o")):
            with self.assertRaisesRegex(TypeError, f"^{name} is a NoneType: it must be an array"):
                backlight.backward(*given[:i], None, *given[i + 1 :])
        for odd, words in ((Odd(), "k is a Odd: it must be"), (Nowhere(), "k is a Nowhere: .* on no device")):
            with self.assertRaisesRegex(ValueError, words):
                backlight.backward(given[0], odd, *given[2:])
        with self.assertRaisesRegex(TypeError, r"out\[0\] is a NoneType"):
            backlight.backward(*given, out=(None, given[0], given[0]))
        with self.assertRaisesRegex(TypeError, "out is a int: it must be three arrays"):
            backlight.backward(*given, out=5)

    def test_sizes_of_native_arrays_are_checked(self):
        for shape in ([2**62], [2**33, 2**33], [0, 2**63]):
            with self.assertRaisesRegex(ValueError, "shape is .*: it must be of an array below 2"):
                _backlight.new_device_array(0, "fp32", shape)
        plan = _backlight.plan(*PLAN[:2], 1, 2, 2, *PLAN[5:])
        q, k, v, o, lse, d_o = map(_backlight.DlpackView, self.arguments())
        out = [_backlight.DlpackView(filled(self.SHAPE, 0)) for _ in range(3)]
        small = _backlight.DlpackView(_backlight.new_device_array(0, "uint8", [1]))
        self.assertGreater(plan.workspace_bytes, small.nbytes)
        with self.assertRaisesRegex(ValueError, "workspace"):
            plan.run(d_o, q, k, v, o, lse, *out, small, 0, None, None, None, None)

    def test_what_is_no_tensor_is_told(self):
        class Listed:
            def data_ptr(self):
                return 0

            def stride(self):
                return [1]

        with self.assertRaisesRegex(TypeError, "no tuple"):
            _backlight.is_readable(Listed())
        self.assertIsNone(_backlight.find_call(None, None, None, None))
        with self.assertRaises(AttributeError):
            _backlight.are_readable(None, None, None)

    def test_the_device_is_emulated_once(self):
        _backlight.plan(*PLAN)
        with self.assertRaisesRegex(ValueError, "device 0 is in use"):
            _backlight.emulate_device("sm_90a")


if __name__ == "__main__":
    unittest.main()
