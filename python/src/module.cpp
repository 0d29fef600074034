#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <optional>
#include <string>

#include "backlight/error.hpp"
#include "dlpack_view.hpp"
#include "exchange.hpp"
#include "plan.hpp"
#include "python_tensor.hpp"
#include "recent_calls.hpp"
#include "runtimes.hpp"
#include "version.hpp"

namespace nb = nanobind;

namespace backlight::python {

namespace {

/// The library's errors, as backlight.errors has a class for their code.
void raise(const std::exception_ptr& failure, void* /*unused*/) {
    try {
        std::rethrow_exception(failure);
    } catch (const Error& error) {
        try {
            const nb::object made = nb::module_::import_("backlight.errors")
                                        .attr("of_code")(to_string(error.code()), error.what());
            PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
        } catch (nb::python_error& other) {
            other.restore();
        }
    }
}

nb::object make_plan(const PlanRequest& request) {
    std::optional<Plan> plan;
    {
        const nb::gil_scoped_release released;
        plan.emplace(request);
    }
    return nb::cast(std::move(*plan));
}

}  // namespace

// NOLINTNEXTLINE: the macro's own code
NB_MODULE(_backlight, module) {
    nb::register_exception_translator(raise);

    module.doc() = "The library as the package's own modules call it: see _backlight.pyi.";
    module.attr("version") = std::string(version());
    module.attr("git_revision") = std::string(git_revision());

    nb::class_<Plan>(module, "Plan")
        .def_prop_ro("workspace_bytes", &Plan::workspace_bytes)
        .def_prop_ro("description", &Plan::describe)
        .def("run", &Plan::run, nb::arg("d_o"), nb::arg("q"), nb::arg("k"), nb::arg("v"),
             nb::arg("o"), nb::arg("lse"), nb::arg("d_q"), nb::arg("d_k"), nb::arg("d_v"),
             nb::arg("workspace").none(), nb::arg("stream"), nb::arg("cu_seqlens_q").none(),
             nb::arg("cu_seqlens_kv").none(), nb::arg("seqused_q").none(),
             nb::arg("seqused_kv").none())
        .def("time", &Plan::time, nb::arg("arguments"), nb::arg("count"));

    nb::class_<DlpackView>(module, "DlpackView")
        .def(nb::init<DlpackView::Array>(), nb::arg("array"))
        .def("data_ptr", &DlpackView::data_ptr)
        .def("stride", &DlpackView::stride)
        .def_prop_ro("shape", &DlpackView::shape)
        .def_prop_ro("nbytes", &DlpackView::nbytes)
        .def_prop_ro("dtype", &DlpackView::dtype)
        .def_prop_ro("device_type", &DlpackView::device_type)
        .def_prop_ro("device_id", &DlpackView::device_id);

    module.def(
        "plan",
        [](int device, bool fp16, std::int64_t batch, std::int64_t heads, std::int64_t heads_kv,
           std::int64_t seqlen_q, std::int64_t seqlen_kv, std::int64_t head_dim,
           std::int64_t head_dim_v, bool causal, bool top_left, std::int64_t window_left,
           std::int64_t window_right, double softmax_scale, bool deterministic,
           std::int64_t total_q, std::int64_t total_kv, bool bshd) {
            return make_plan({device, fp16, batch, heads, heads_kv, seqlen_q, seqlen_kv, head_dim,
                              head_dim_v, causal, top_left, window_left, window_right,
                              softmax_scale, deterministic, total_q, total_kv, bshd});
        },
        nb::arg("device"), nb::arg("fp16"), nb::arg("batch"), nb::arg("heads"), nb::arg("heads_kv"),
        nb::arg("seqlen_q"), nb::arg("seqlen_kv"), nb::arg("head_dim"), nb::arg("head_dim_v"),
        nb::arg("causal"), nb::arg("top_left"), nb::arg("window_left"), nb::arg("window_right"),
        nb::arg("softmax_scale"), nb::arg("deterministic"), nb::arg("total_q"), nb::arg("total_kv"),
        nb::arg("bshd"));
    module.def(
        "is_readable", [](nb::handle tensor) { return is_readable(read_tensor(tensor)); },
        nb::arg("tensor").none());
    module.def(
        "are_readable",
        [](nb::handle q, nb::handle k, nb::handle v) {
            return is_readable(read_tensor(q)) && is_readable(read_tensor(k)) &&
                   is_readable(read_tensor(v));
        },
        nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none());
    module.def("use_exchange_api", &use_exchange_api, nb::arg("type"));
    // None is no tensor, as anything else that is none: the checks in Python name it.
    module.def("find_call", &find_call, nb::arg("q").none(), nb::arg("k").none(),
               nb::arg("v").none(), nb::arg("options").none());
    module.def("find_backward", &find_backward, nb::arg("d_o").none(), nb::arg("q").none(),
               nb::arg("k").none(), nb::arg("v").none(), nb::arg("o").none(), nb::arg("lse").none(),
               nb::arg("options").none());
    module.def("keep_call", &keep_call, nb::arg("q").none(), nb::arg("k").none(),
               nb::arg("v").none(), nb::arg("options"), nb::arg("call").none(), nb::arg("o_shape"),
               nb::arg("lse_shape"));
    module.def("forget_calls", &forget_calls);
    module.def("new_device_array", &new_device_array, nb::arg("device"), nb::arg("dtype"),
               nb::arg("shape"));
    module.def("synchronise", &synchronise, nb::arg("device"), nb::arg("stream"));
    module.def("use_nvrtc", &use_nvrtc, nb::arg("path"));
    module.attr("has_emulated_device") = has_emulated_device();
    module.def("emulate_device", &emulate_device, nb::arg("target"));
}

}  // namespace backlight::python
