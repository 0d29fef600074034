#include "python_tensor.hpp"

namespace backlight::python {

namespace nb = nanobind;

namespace {

/// Interned once: a name that is made for each call costs as much as the call.
struct Names {
    PyObject* data_ptr = PyUnicode_InternFromString("data_ptr");
    PyObject* stride = PyUnicode_InternFromString("stride");
};

const Names& names() {
    // Never freed: the interpreter may be gone by then.
    static const auto* const interned = new Names;
    return *interned;
}

nb::object call_method(nb::handle object, PyObject* name) {
    PyObject* arguments[] = {object.ptr()};
    PyObject* result = PyObject_VectorcallMethod(name, arguments, 1, nullptr);
    if (result == nullptr) {
        throw nb::python_error();
    }
    return nb::steal(result);
}

}  // namespace

void* address_of(nb::handle tensor) {
    const nb::object address = call_method(tensor, names().data_ptr);
    void* const value = PyLong_AsVoidPtr(address.ptr());
    if (value == nullptr && PyErr_Occurred() != nullptr) {
        throw nb::python_error();
    }
    return value;
}

PythonTensor read_tensor(nb::handle tensor) {
    PythonTensor read{.data = address_of(tensor)};
    const nb::object strides = call_method(tensor, names().stride);
    const Py_ssize_t dimensions = PyTuple_Size(strides.ptr());
    if (dimensions < 0) {
        throw nb::python_error();
    }
    if (dimensions > static_cast<Py_ssize_t>(read.strides.size())) {
        throw nb::value_error("a tensor has more than four dimensions");
    }
    read.dimensions = static_cast<int>(dimensions);
    for (int i = 0; i < read.dimensions; ++i) {
        const long long stride = PyLong_AsLongLong(PyTuple_GetItem(strides.ptr(), i));
        if (stride == -1 && PyErr_Occurred() != nullptr) {
            throw nb::python_error();
        }
        read.strides[static_cast<std::size_t>(i)] = stride;
    }
    return read;
}

bool is_readable(const PythonTensor& tensor) noexcept {
    if (tensor.dimensions == 0 || reinterpret_cast<std::uintptr_t>(tensor.data) % 16 != 0) {
        return false;
    }
    const auto last = static_cast<std::size_t>(tensor.dimensions) - 1;
    for (std::size_t i = 0; i < last; ++i) {
        if (tensor.strides[i] < 0 || tensor.strides[i] % 8 != 0) {
            return false;
        }
    }
    return tensor.strides[last] == 1;
}

}  // namespace backlight::python
