#include "problem_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "backlight/error.hpp"
#include "gradient_values.hpp"

namespace backlight::tool {

namespace {

/// Gaps of the padded layout, in elements: strides stay multiples of 16 bytes, as TMA demands.
constexpr std::int64_t row_gap = 8;
constexpr std::int64_t head_gap = 40;
constexpr std::int64_t batch_gap = 72;
/// Of LSE, whose strides have no rule.
constexpr std::int64_t lse_head_gap = 3;
constexpr std::int64_t lse_batch_gap = 6;

std::size_t count(std::int64_t elements) {
    return static_cast<std::size_t>(elements);
}

}  // namespace

ProblemData::ProblemData(SupportKernels& kernels, const AttentionProblem& problem, Layout layout,
                         const verification::Packing& packing)
    : kernels_(kernels), problem_(problem), layout_(layout) {
    constexpr std::array names = {"q", "k", "v", "o", "d_o", "d_q", "d_k", "d_v"};
    if (problem.packed) {
        set_packing(packing.is_empty() ? verification::even_packing(problem) : packing);
    }
    if (layout == Layout::packed_qkv &&
        attention::query_extents(problem).seqlen != attention::key_extents(problem).seqlen) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("there are {} rows of queries and {} of keys: a packed QKV tensor "
                                "needs as many of both",
                                attention::query_extents(problem).seqlen,
                                attention::key_extents(problem).seqlen));
    }
    if (layout == Layout::packed_qkv && problem.head_dim != problem.effective_head_dim_v()) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("head_dim is {} and head_dim_v is {}: a packed QKV tensor needs "
                                "them equal",
                                problem.head_dim, problem.effective_head_dim_v()));
    }
    const attention::Extents queries = attention::query_extents(problem);
    const attention::Extents keys = attention::key_extents(problem);
    const attention::Extents values = attention::value_extents(problem);
    const attention::Extents outputs = attention::output_extents(problem);
    const std::array<attention::Extents, names.size()> extents = {queries, keys,    values, outputs,
                                                                  outputs, queries, keys,   values};
    // dQ, dK and dV follow dO among the operands, as Q, K and V come before O.
    constexpr std::size_t first_output = 5;
    std::int64_t packed_offset = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
        const bool output = i >= first_output;
        const std::size_t part = output ? i - first_output : i;  // of a packed tensor, if below 3
        Place& place = places_[i];
        place.extents = extents[i];
        place.element_bytes = element_bytes(output);
        const std::int64_t head_dim = place.extents.head_dim;
        if (layout == Layout::packed_qkv && part < 3) {
            const std::int64_t row = (queries.heads + 2 * keys.heads) * head_dim;
            if (part == 0) {
                add_storage(output ? "d_qkv" : "qkv", queries.batch * queries.seqlen * row, output);
                packed_offset = 0;
            }
            place.offset = packed_offset;
            packed_offset += place.extents.heads * head_dim;
            place.strides = {place.extents.seqlen * row, head_dim, row};
        } else if (layout == Layout::padded) {
            add_padded(names[i], place, output);
        } else if (layout == Layout::broadcast && !output) {
            add_broadcast(names[i], static_cast<Operand>(i), place);
        } else {
            add_storage(names[i], place.extents.elements(), output);
            place.strides = layout == Layout::bshd || layout == Layout::packed_qkv
                                ? bshd_strides(place.extents.heads, place.extents.seqlen, head_dim)
                                : bhsd_strides(place.extents.heads, place.extents.seqlen, head_dim);
        }
        place.storage = storages_.size() - 1;
    }
    lse_ = GuardedBuffer(kernels_.session(), count(queries.rows()) * sizeof(float));
    if (layout == Layout::padded) {
        padded_lse_ = GuardedBuffer(kernels_.session(),
                                    count(queries.batch * lse_view_strides()[0]) * sizeof(float));
    }
    poison();
}

void ProblemData::add_padded(const char* name, Place& place, bool output) {
    const std::int64_t row = place.extents.head_dim + row_gap;
    const std::int64_t head = place.extents.seqlen * row + head_gap;
    const std::int64_t batch = place.extents.heads * head + batch_gap;
    add_storage(name, place.extents.batch * batch, output);
    place.strides = {batch, head, row};
}

void ProblemData::add_broadcast(const char* name, Operand operand, Place& place) {
    const bool one_row = operand == Operand::d_o;
    const bool one_head = one_row || operand == Operand::k || operand == Operand::v;
    const std::int64_t heads = one_head ? 1 : place.extents.heads;
    const std::int64_t rows = one_row ? 1 : place.extents.seqlen;
    const std::int64_t columns = place.extents.head_dim;
    add_storage(name, heads * rows * columns, false);
    place.strides = {0, one_head ? 0 : rows * columns, one_row ? 0 : columns};
}

std::array<std::int64_t, 2> ProblemData::lse_view_strides() const noexcept {
    const bool padded = layout_ == Layout::padded;
    const std::int64_t rows = attention::query_extents(problem_).seqlen;
    const std::int64_t head = rows + (padded ? lse_head_gap : 0);
    const std::int64_t batch = problem_.heads * head + (padded ? lse_batch_gap : 0);
    return {layout_ == Layout::broadcast ? 0 : batch, head};
}

std::size_t ProblemData::element_bytes(bool output) const noexcept {
    return output ? gradient_element_bytes(problem_) : sizeof(std::uint16_t);
}

void ProblemData::add_storage(std::string name, std::int64_t elements, bool output) {
    storages_.push_back(
        {.name = std::move(name),
         .buffer = GuardedBuffer(kernels_.session(), count(elements) * element_bytes(output)),
         .output = output});
}

void ProblemData::randomise(std::uint64_t seed, float scale) {
    const std::size_t o_storage = place(Operand::o).storage;
    for (std::size_t i = 0; i < storages_.size(); ++i) {
        if (!storages_[i].output && i != o_storage) {
            kernels_.fill_normal(storages_[i].buffer.data(),
                                 storages_[i].buffer.bytes() / element_bytes(false), problem_.dtype,
                                 seed * storages_.size() + i, scale);
            if (layout_ == Layout::padded) {
                poison_gaps(i);
            }
        }
    }
    poison_unused_rows();
    compute_forward();
}

void ProblemData::set_inputs(const verification::InputTensors& inputs) {
    scatter(Operand::q, inputs.q);
    scatter(Operand::k, inputs.k);
    scatter(Operand::v, inputs.v);
    scatter(Operand::d_o, inputs.d_o);
    poison_unused_rows();
}

verification::InputTensors ProblemData::inputs() const {
    return {.q = gather(Operand::q),
            .k = gather(Operand::k),
            .v = gather(Operand::v),
            .d_o = gather(Operand::d_o)};
}

void ProblemData::set_forward(std::span<const std::uint16_t> o, std::span<const float> lse) {
    scatter(Operand::o, o);
    upload_lse(lse);
    poison_unused_rows();
}

void ProblemData::set_packing(const verification::Packing& packing) {
    packing_ = packing;
    const std::array<const std::vector<std::int32_t>*, 4> arrays = {
        &packing_.cu_seqlens_q, &packing_.cu_seqlens_kv, &packing_.seqused_q, &packing_.seqused_kv};
    for (std::size_t i = 0; i < arrays.size(); ++i) {
        const std::span<const std::byte> bytes = std::as_bytes(std::span(*arrays[i]));
        if (sequence_arrays_[i].bytes() != bytes.size()) {
            kernels_.session().synchronise();
            sequence_arrays_[i] = GuardedBuffer(kernels_.session(), bytes.size());
        }
        if (!bytes.empty()) {
            sequence_arrays_[i].upload(bytes);
        }
    }
}

std::vector<bool> ProblemData::used_rows(std::size_t operand) const {
    if (!problem_.packed) {
        return {};
    }
    const auto which = static_cast<Operand>(operand);
    const bool keys = which == Operand::k || which == Operand::v || which == Operand::d_k ||
                      which == Operand::d_v;
    return verification::used_rows(problem_, packing_, !keys);
}

void ProblemData::poison_unused_rows() {
    if (!problem_.packed) {
        return;
    }
    for (std::size_t i = 0; i < storages_.size(); ++i) {
        if (!storages_[i].output) {
            poison_gaps(i);
        }
    }
    const std::vector<bool> used = used_rows(static_cast<std::size_t>(Operand::q));
    std::vector<float> lse = download_lse();
    for (std::size_t i = 0; i < lse.size(); ++i) {
        if (!used[i % used.size()]) {
            lse[i] = std::numeric_limits<float>::quiet_NaN();
        }
    }
    upload_lse(lse);
}

template <typename Run>
void ProblemData::for_each_sequence(const kernel::ReferenceArguments& arguments,
                                    const Run& run) const {
    if (!problem_.packed) {
        run(problem_, arguments);
        return;
    }
    for (const verification::PackedSequence& sequence : packing_.sequences()) {
        kernel::ReferenceArguments part = arguments;
        part.rows_q = static_cast<int>(problem_.packed->total_q);
        part.rows_kv = static_cast<int>(problem_.packed->total_kv);
        const std::int64_t head_dim_v = problem_.effective_head_dim_v();
        part.q += sequence.q_begin * problem_.head_dim;
        part.d_q += sequence.q_begin * problem_.head_dim;
        part.o += sequence.q_begin * head_dim_v;
        part.d_o += sequence.q_begin * head_dim_v;
        part.lse += sequence.q_begin;
        part.k += sequence.kv_begin * problem_.head_dim;
        part.d_k += sequence.kv_begin * problem_.head_dim;
        part.v += sequence.kv_begin * head_dim_v;
        part.d_v += sequence.kv_begin * head_dim_v;
        run(problem_.of_sequence(sequence.shape), part);
    }
}

DeviceBuffer ProblemData::float_buffer(Operand operand) const {
    // A device gives no memory of 0 bytes.
    const std::int64_t elements = std::max<std::int64_t>(place(operand).extents.elements(), 1);
    return {kernels_.session(), count(elements) * sizeof(float)};
}

DeviceBuffer ProblemData::widened(Operand operand) {
    DeviceBuffer floats = float_buffer(operand);
    kernels_.to_float(view(operand), floats.as<float>(), place(operand).extents, problem_.dtype);
    return floats;
}

void ProblemData::compute_forward() {
    const DeviceBuffer q = widened(Operand::q);
    const DeviceBuffer k = widened(Operand::k);
    const DeviceBuffer v = widened(Operand::v);
    const DeviceBuffer o = float_buffer(Operand::o);
    kernel::ReferenceArguments arguments{};
    arguments.q = q.as<float>();
    arguments.k = k.as<float>();
    arguments.v = v.as<float>();
    arguments.o = o.as<float>();
    arguments.lse = static_cast<float*>(lse_.data());
    for_each_sequence(
        arguments, [&](const AttentionProblem& problem, const kernel::ReferenceArguments& tensors) {
            kernels_.reference_forward(problem, tensors);
        });
    kernels_.from_float(o.as<float>(), view(Operand::o), place(Operand::o).extents, problem_.dtype);
    // The buffers are freed on return.
    kernels_.session().synchronise();
    poison_unused_rows();
    spread_lse();
}

TensorView ProblemData::view(Operand operand) const noexcept {
    const Place& where = place(operand);
    return {.data = static_cast<std::byte*>(storages_[where.storage].buffer.data()) +
                    count(where.offset) * where.element_bytes,
            .stride_batch = where.strides[0],
            .stride_head = where.strides[1],
            .stride_seqlen = where.strides[2]};
}

BackwardTensors ProblemData::tensors() const noexcept {
    return {.q = view(Operand::q),
            .k = view(Operand::k),
            .v = view(Operand::v),
            .o = view(Operand::o),
            .d_o = view(Operand::d_o),
            .lse = {.data = static_cast<const float*>(
                        (layout_ == Layout::padded ? padded_lse_ : lse_).data()),
                    .stride_batch = lse_view_strides()[0],
                    .stride_head = lse_view_strides()[1]},
            .d_q = view(Operand::d_q),
            .d_k = view(Operand::d_k),
            .d_v = view(Operand::d_v),
            .cu_seqlens_q = sequence_array(0),
            .cu_seqlens_kv = sequence_array(1),
            .seqused_q = sequence_array(2),
            .seqused_kv = sequence_array(3)};
}

const std::int32_t* ProblemData::sequence_array(std::size_t index) const noexcept {
    const GuardedBuffer& buffer = sequence_arrays_[index];
    return buffer.bytes() == 0 ? nullptr : static_cast<const std::int32_t*>(buffer.data());
}

void* ProblemData::workspace(std::size_t bytes) {
    if (workspace_.bytes() != bytes) {
        // What still runs may use the old one.
        kernels_.session().synchronise();
        workspace_ = GuardedBuffer(kernels_.session(), bytes);
        workspace_.poison();
    }
    return workspace_.data();
}

void ProblemData::poison_outputs() {
    for (const Storage& storage : storages_) {
        if (storage.output) {
            storage.buffer.poison();
        }
    }
}

void ProblemData::poison() {
    poison_outputs();
    if (workspace_.bytes() > 0) {
        workspace_.poison();
    }
}

void ProblemData::run(const BackwardPlan& plan) {
    plan.run(tensors(), workspace(plan.workspace_bytes()), plan.workspace_bytes(),
             kernels_.session().stream());
}

Gradients<float> ProblemData::reference_gradients() {
    const DeviceBuffer q = widened(Operand::q);
    const DeviceBuffer k = widened(Operand::k);
    const DeviceBuffer v = widened(Operand::v);
    const DeviceBuffer o = widened(Operand::o);
    const DeviceBuffer d_o = widened(Operand::d_o);
    const DeviceBuffer d_q = float_buffer(Operand::d_q);
    const DeviceBuffer d_k = float_buffer(Operand::d_k);
    const DeviceBuffer d_v = float_buffer(Operand::d_v);
    kernel::ReferenceArguments arguments{};
    arguments.q = q.as<float>();
    arguments.k = k.as<float>();
    arguments.v = v.as<float>();
    arguments.o = o.as<float>();
    arguments.lse = static_cast<float*>(lse_.data());
    arguments.d_o = d_o.as<float>();
    arguments.d_q = d_q.as<float>();
    arguments.d_k = d_k.as<float>();
    arguments.d_v = d_v.as<float>();
    if (problem_.packed) {
        // What no sequence has, nobody writes.
        for (const DeviceBuffer* buffer : {&d_q, &d_k, &d_v}) {
            kernels_.session().device().fill(buffer->as<float>(), 0, buffer->bytes(),
                                             kernels_.session().stream());
        }
    }
    for_each_sequence(
        arguments, [&](const AttentionProblem& problem, const kernel::ReferenceArguments& tensors) {
            kernels_.reference_backward(problem, tensors);
        });
    kernels_.session().synchronise();
    const auto values = [&](const DeviceBuffer& buffer, Operand operand) {
        std::vector<float> all = buffer.download_all<float>();
        all.resize(count(place(operand).extents.elements()));
        return all;
    };
    return {.d_q = values(d_q, Operand::d_q),
            .d_k = values(d_k, Operand::d_k),
            .d_v = values(d_v, Operand::d_v)};
}

}  // namespace backlight::tool
