#include "python_tensor.hpp"

#include <algorithm>
#include <cstddef>

#include "exchange.hpp"

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

bool read_directly(nb::handle tensor, PythonTensor& read) noexcept {
    const ExchangeApi* const api = exchange_api_of(tensor);
    if (api == nullptr) {
        return false;
    }
    nb::dlpack::dltensor told;
    if (api->tensor_from_object(tensor.ptr(), &told) != 0) {
        PyErr_Clear();
        return false;
    }
    if (told.ndim < 0 || told.ndim > static_cast<std::int32_t>(read.strides.size())) {
        return false;
    }
    read.data = static_cast<std::byte*>(told.data) + told.byte_offset;
    read.dimensions = told.ndim;
    read.kind.dimensions = told.ndim;
    read.kind.type = told.dtype;
    read.kind.device_type = told.device.device_type;
    read.kind.device = told.device.device_id;
    std::copy_n(told.strides, told.ndim, read.strides.begin());
    std::copy_n(told.shape, told.ndim, read.kind.shape.begin());
    return true;
}

void* address_of(nb::handle tensor) {
    if (PythonTensor read; read_directly(tensor, read)) {
        return read.data;
    }
    const nb::object address = call_method(tensor, names().data_ptr);
    void* const value = PyLong_AsVoidPtr(address.ptr());
    if (value == nullptr && PyErr_Occurred() != nullptr) {
        throw nb::python_error();
    }
    return value;
}

PythonTensor read_tensor(nb::handle tensor) {
    PythonTensor read;
    if (read_directly(tensor, read)) {
        return read;
    }
    read.data = address_of(tensor);
    const nb::object strides = call_method(tensor, names().stride);
    if (!PyTuple_Check(strides.ptr())) {
        throw nb::type_error("a tensor's stride() is no tuple");
    }
    const Py_ssize_t dimensions = PyTuple_Size(strides.ptr());
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

PythonMemory read_memory(nb::handle tensor) {
    PythonTensor read;
    if (!read_directly(tensor, read)) {
        return {address_of(tensor), nb::cast<std::size_t>(nb::getattr(tensor, "nbytes"))};
    }
    std::size_t elements = 1;
    for (std::size_t i = 0; i < static_cast<std::size_t>(read.dimensions); ++i) {
        if (read.kind.shape[i] == 0) {
            return {read.data, 0};
        }
        // What lies between the rows is counted: it is the tensor's, or another's of its memory.
        elements += static_cast<std::size_t>((read.kind.shape[i] - 1) * read.strides[i]);
    }
    return {read.data, elements * read.kind.type.bits / 8};
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
