#include "plan.hpp"

#include <fmt/format.h>
#include <nanobind/stl/vector.h>

#include <bit>
#include <chrono>
#include <optional>
#include <vector>

#include "backlight/error.hpp"
#include "exchange.hpp"
#include "python_tensor.hpp"

namespace backlight::python {

namespace nb = nanobind;

namespace {

std::optional<std::int64_t> bound(std::int64_t window) {
    return window < 0 ? std::nullopt : std::optional(window);
}

AttentionProblem problem_of(const PlanRequest& asked) {
    AttentionProblem problem{
        .batch = asked.batch,
        .heads = asked.heads,
        .heads_kv = asked.heads_kv,
        .seqlen_q = asked.seqlen_q,
        .seqlen_kv = asked.seqlen_kv,
        .head_dim = asked.head_dim,
        .head_dim_v = asked.head_dim_v,
        .causal = asked.causal,
        .mask_alignment = asked.top_left ? MaskAlignment::top_left : MaskAlignment::bottom_right,
        .window_left = bound(asked.window_left),
        .window_right = bound(asked.window_right),
        .dtype = asked.fp16 ? DataType::fp16 : DataType::bf16,
        .softmax_scale = static_cast<float>(asked.softmax_scale),
        .deterministic = asked.deterministic,
    };
    if (asked.total_q >= 0) {
        problem.packed = PackedSequences{.total_q = asked.total_q, .total_kv = asked.total_kv};
    }
    return problem;
}

/// The library is told of no strides over the last dimension.
void require_contiguous_last(const char* name, const PythonTensor& tensor, int dimensions) {
    if (tensor.dimensions != dimensions) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("{} has {} dimensions: it must have {}", name, tensor.dimensions,
                                dimensions));
    }
    const std::int64_t stride = tensor.strides[static_cast<std::size_t>(dimensions) - 1];
    if (stride != 1) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("{} has a stride of {} over its last dimension: it must be 1", name,
                                stride));
    }
}

/// The type of what is not read directly is unknown here.
void require_fp32(const char* name, const PythonTensor& tensor) {
    constexpr nb::dlpack::dtype fp32 = {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float),
                                        32, 1};
    if (tensor.kind.type.bits != 0 && !(tensor.kind.type == fp32)) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("{} is of DLPack's type {} of {} bits: it must be fp32", name,
                                tensor.kind.type.code, tensor.kind.type.bits));
    }
}

const std::int32_t* array(nb::handle tensor) {
    return tensor.is_none() ? nullptr : static_cast<const std::int32_t*>(address_of(tensor));
}

}  // namespace

Plan::Plan(const PlanRequest& request)
    : device_(&device_runtime(request.device)),
      device_index_(request.device),
      packed_(request.total_q >= 0),
      bshd_(request.bshd) {
    // Kernels are loaded at once where their context is current.
    const ContextScope scope(*device_);
    plan_ = device_->runtime().prepare(problem_of(request));
    workspace_bytes_ = plan_->workspace_bytes();
}

std::string Plan::describe() const {
    return to_string(plan_->problem()) + "; " + to_string(plan_->config());
}

TensorView Plan::view(const char* name, nb::handle tensor) const {
    const PythonTensor read = read_tensor(tensor);
    const auto& strides = read.strides;
    require_contiguous_last(name, read, packed_ ? 3 : 4);
    if (packed_) {
        return {read.data, 0, strides[1], strides[0]};
    }
    return bshd_ ? TensorView{read.data, strides[0], strides[2], strides[1]}
                 : TensorView{read.data, strides[0], strides[1], strides[2]};
}

BackwardTensors Plan::tensors(nb::handle d_o, nb::handle q, nb::handle k, nb::handle v,
                              nb::handle o, nb::handle lse, nb::handle d_q, nb::handle d_k,
                              nb::handle d_v, nb::handle cu_seqlens_q, nb::handle cu_seqlens_kv,
                              nb::handle seqused_q, nb::handle seqused_kv) const {
    const PythonTensor rows = read_tensor(lse);
    require_fp32("lse", rows);
    if (plan_->problem().seqlen_q > 1) {  // One row may have any stride.
        require_contiguous_last("lse", rows, packed_ ? 2 : 3);
    }
    return {.q = view("q", q),
            .k = view("k", k),
            .v = view("v", v),
            .o = view("o", o),
            .d_o = view("d_o", d_o),
            .lse = {.data = static_cast<const float*>(rows.data),
                    .stride_batch = packed_ ? 0 : rows.strides[0],
                    .stride_head = packed_ ? rows.strides[0] : rows.strides[1]},
            .d_q = view("d_q", d_q),
            .d_k = view("d_k", d_k),
            .d_v = view("d_v", d_v),
            .cu_seqlens_q = array(cu_seqlens_q),
            .cu_seqlens_kv = array(cu_seqlens_kv),
            .seqused_q = array(seqused_q),
            .seqused_kv = array(seqused_kv)};
}

bool Plan::run(nb::handle d_o, nb::handle q, nb::handle k, nb::handle v, nb::handle o,
               nb::handle lse, nb::handle d_q, nb::handle d_k, nb::handle d_v, nb::handle workspace,
               std::uintptr_t stream, nb::handle cu_seqlens_q, nb::handle cu_seqlens_kv,
               nb::handle seqused_q, nb::handle seqused_kv) const {
    if (!is_readable(read_tensor(d_o))) {
        return false;
    }
    const BackwardTensors all = tensors(d_o, q, k, v, o, lse, d_q, d_k, d_v, cu_seqlens_q,
                                        cu_seqlens_kv, seqused_q, seqused_kv);
    const bool takes_its_own = workspace_bytes_ != 0 && workspace.is_none();
    PythonMemory scratch;
    if (workspace_bytes_ != 0 && !takes_its_own) {
        scratch = read_memory(workspace);
    }
    const nb::gil_scoped_release released;
    std::optional<ExchangeMemory> own;
    if (takes_its_own) {
        own.emplace(workspace_bytes_, device_->dlpack_type(), device_index_);
        scratch = {own->data(), workspace_bytes_};
        if (scratch.data == nullptr) {
            return false;
        }
    }
    const ContextScope scope(*device_);
    plan_->run(all, scratch.data, scratch.bytes, std::bit_cast<Stream>(stream));
    return true;
}

double Plan::time(const nb::sequence& arguments, int count) const {
    const auto given = nb::cast<std::vector<nb::object>>(arguments);
    if (given.size() != 11 || count < 1) {
        throw nb::value_error("time takes the first eleven arguments of run and a count");
    }
    const nb::object none = nb::none();
    const BackwardTensors all = tensors(given[0], given[1], given[2], given[3], given[4], given[5],
                                        given[6], given[7], given[8], none, none, none, none);
    const PythonMemory scratch = workspace_bytes_ == 0 ? PythonMemory{} : read_memory(given[9]);
    const auto stream = std::bit_cast<Stream>(nb::cast<std::uintptr_t>(given[10]));
    const nb::gil_scoped_release released;
    const ContextScope scope(*device_);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) {
        plan_->run(all, scratch.data, scratch.bytes, stream);
    }
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - begin;
    return taken.count() / count;
}

}  // namespace backlight::python
