#include "recent_calls.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "python_tensor.hpp"

namespace backlight::python {

namespace nb = nanobind;

namespace {

struct RecentCall {
    TensorKind q, k, v;
    nb::tuple options;
    nb::object call;
    TensorKind o, lse;
};

/// More than the kinds that one model has; searching all of them costs less than a key in Python.
constexpr std::size_t most_calls = 16;

/// The latest first. Guarded by the interpreter's lock; never destroyed, since the interpreter may
/// be gone by then.
std::vector<RecentCall>& recent() {
    static auto* const calls = new std::vector<RecentCall>;
    return *calls;
}

/// The entry for these, brought to the front; null where there is none.
const RecentCall* find(const PythonTensor& q, const PythonTensor& k, const PythonTensor& v,
                       nb::handle options) {
    std::vector<RecentCall>& calls = recent();
    for (std::size_t i = 0; i < calls.size(); ++i) {
        const RecentCall& one = calls[i];
        if (!(one.q == q.kind && one.k == k.kind && one.v == v.kind)) {
            continue;
        }
        const nb::object held = one.options;
        const int equal = PyObject_RichCompareBool(held.ptr(), options.ptr(), Py_EQ);
        if (equal < 0) {
            // Options of a strange kind: the checks in Python tell of them.
            PyErr_Clear();
            return nullptr;
        }
        // A comparison may run code of Python's, which may keep or forget calls.
        if (equal == 1 && i < calls.size() && calls[i].options.is(held)) {
            const auto front = calls.begin();
            const auto found = front + static_cast<std::ptrdiff_t>(i);
            std::rotate(front, found, found + 1);
            return &calls.front();
        }
    }
    return nullptr;
}

TensorKind with_shape(TensorKind kind, const nb::tuple& shape) {
    kind.dimensions = static_cast<int>(nb::len(shape));
    kind.shape = {};
    for (std::size_t i = 0; i < nb::len(shape) && i < kind.shape.size(); ++i) {
        kind.shape[i] = nb::cast<std::int64_t>(shape[i]);
    }
    return kind;
}

bool read_inputs(nb::handle q, nb::handle k, nb::handle v, PythonTensor& read_q,
                 PythonTensor& read_k, PythonTensor& read_v) {
    return read_directly(q, read_q) && read_directly(k, read_k) && read_directly(v, read_v);
}

}  // namespace

nb::object find_call(nb::handle q, nb::handle k, nb::handle v, nb::handle options) {
    PythonTensor read_q, read_k, read_v;
    if (!read_inputs(q, k, v, read_q, read_k, read_v) || !is_readable(read_q) ||
        !is_readable(read_k) || !is_readable(read_v)) {
        return nb::none();
    }
    const RecentCall* const found = find(read_q, read_k, read_v, options);
    return found == nullptr ? nb::none() : found->call;
}

nb::object find_backward(nb::handle d_o, nb::handle q, nb::handle k, nb::handle v, nb::handle o,
                         nb::handle lse, nb::handle options) {
    PythonTensor read_q, read_k, read_v, read_d_o, read_o, read_lse;
    if (!read_inputs(q, k, v, read_q, read_k, read_v) ||
        !read_inputs(d_o, o, lse, read_d_o, read_o, read_lse) || !is_readable(read_q) ||
        !is_readable(read_k) || !is_readable(read_v)) {
        return nb::none();
    }
    const RecentCall* const found = find(read_q, read_k, read_v, options);
    const bool fits = found != nullptr && found->o == read_o.kind && found->o == read_d_o.kind &&
                      found->lse == read_lse.kind;
    return fits ? found->call : nb::none();
}

void keep_call(nb::handle q, nb::handle k, nb::handle v, nb::tuple options, nb::object call,
               const nb::tuple& o_shape, const nb::tuple& lse_shape) {
    PythonTensor read_q, read_k, read_v;
    if (!read_inputs(q, k, v, read_q, read_k, read_v) ||
        find(read_q, read_k, read_v, options) !=
            nullptr) {  // One with other strides is found anew.
        return;
    }
    if (PyObject_Hash(options.ptr()) == -1) {
        PyErr_Clear();
        return;  // A list among them might be changed by the time that it is compared.
    }
    TensorKind lse = with_shape(read_q.kind, lse_shape);
    lse.type = {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 32, 1};
    RecentCall kept{read_q.kind,
                    read_k.kind,
                    read_v.kind,
                    std::move(options),
                    std::move(call),
                    with_shape(read_q.kind, o_shape),
                    lse};
    std::vector<RecentCall>& calls = recent();
    std::optional<RecentCall> oldest;  // Freed when the table is whole again.
    if (calls.size() >= most_calls) {
        oldest = std::move(calls.back());
        calls.pop_back();
    }
    calls.insert(calls.begin(), std::move(kept));
}

void forget_calls() {
    const std::vector<RecentCall> freed_last = std::exchange(recent(), {});
}

}  // namespace backlight::python
