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

/// Calls visit(row of the strided tensor, row of the contiguous one), both in elements, for every
/// (batch, head, row).
template <typename Visit>
void for_each_row(const attention::Extents& extents, const std::array<std::int64_t, 3>& strides,
                  const Visit& visit) {
    std::int64_t contiguous = 0;
    for (std::int64_t batch = 0; batch < extents.batch; ++batch) {
        for (std::int64_t head = 0; head < extents.heads; ++head) {
            for (std::int64_t row = 0; row < extents.seqlen;
                 ++row, contiguous += extents.head_dim) {
                visit(batch * strides[0] + head * strides[1] + row * strides[2], contiguous);
            }
        }
    }
}

}  // namespace

ProblemData::ProblemData(SupportKernels& kernels, const AttentionProblem& problem, Layout layout,
                         const std::optional<verification::Packing>& packing)
    : kernels_(kernels), problem_(problem), layout_(layout) {
    constexpr std::array names = {"q", "k", "v", "o", "d_o", "d_q", "d_k", "d_v"};
    if (problem.packed) {
        set_packing(packing ? *packing : verification::even_packing(problem));
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
        } else {
            add_storage(names[i], place.extents.elements(), output);
            place.strides = layout == Layout::bhsd
                                ? bhsd_strides(place.extents.heads, place.extents.seqlen, head_dim)
                                : bshd_strides(place.extents.heads, place.extents.seqlen, head_dim);
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

std::array<std::int64_t, 2> ProblemData::lse_view_strides() const noexcept {
    const bool padded = layout_ == Layout::padded;
    const std::int64_t rows = attention::query_extents(problem_).seqlen;
    const std::int64_t head = rows + (padded ? lse_head_gap : 0);
    return {problem_.heads * head + (padded ? lse_batch_gap : 0), head};
}

void ProblemData::spread_lse() {
    if (layout_ != Layout::padded) {
        return;
    }
    const std::vector<float> lse = download_lse();
    std::vector<std::uint32_t> spread(padded_lse_.bytes() / sizeof(float), ~std::uint32_t{0});
    const attention::Extents queries = attention::query_extents(problem_);
    for_each_row({queries.batch, queries.heads, 1, queries.seqlen},
                 {lse_view_strides()[0], lse_view_strides()[1], 0},
                 [&](std::int64_t strided, std::int64_t contiguous) {
                     for (std::int64_t row = 0; row < queries.seqlen; ++row) {
                         spread[count(strided + row)] =
                             std::bit_cast<std::uint32_t>(lse[count(contiguous + row)]);
                     }
                 });
    padded_lse_.upload(std::as_bytes(std::span(spread)));
}

std::vector<std::byte> ProblemData::content_and_gaps(std::size_t storage,
                                                     std::vector<bool>& is_gap) const {
    const GuardedBuffer& buffer = storages_[storage].buffer;
    std::vector<std::byte> bytes(buffer.bytes());
    buffer.download(bytes);
    is_gap.assign(bytes.size(), true);
    for (std::size_t operand = 0; operand < places_.size(); ++operand) {
        const Place& place = places_[operand];
        if (place.storage != storage) {
            continue;
        }
        const std::vector<bool> used = used_rows(operand);
        for_each_row(
            place.extents, place.strides, [&](std::int64_t strided, std::int64_t contiguous) {
                const std::int64_t row = contiguous / place.extents.head_dim % place.extents.seqlen;
                if (!used.empty() && !used[count(row)]) {
                    return;
                }
                const auto bytes_of = [&](std::int64_t elements) {
                    return elements * static_cast<std::int64_t>(place.element_bytes);
                };
                std::fill_n(is_gap.begin() + bytes_of(place.offset + strided),
                            bytes_of(place.extents.head_dim), false);
            });
    }
    return bytes;
}

bool ProblemData::gaps_intact(std::size_t storage) const {
    std::vector<bool> is_gap;
    const std::vector<std::byte> bytes = content_and_gaps(storage, is_gap);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (is_gap[i] && bytes[i] != std::byte{GuardedBuffer::poison_pattern}) {
            return false;
        }
    }
    return true;
}

void ProblemData::poison_gaps(std::size_t storage) {
    std::vector<bool> is_gap;
    std::vector<std::byte> bytes = content_and_gaps(storage, is_gap);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (is_gap[i]) {
            bytes[i] = std::byte{GuardedBuffer::poison_pattern};
        }
    }
    storages_[storage].buffer.upload(bytes);
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

void ProblemData::upload(Operand operand, std::span<const std::byte> bytes) {
    Storage& storage = storages_[place(operand).storage];
    const std::size_t expected = place(operand).bytes();
    if (bytes.size() != expected || storage.buffer.bytes() != expected) {
        throw Error(
            ErrorCode::invalid_argument,
            fmt::format("upload of {}: {} bytes given, the tensor has {} of the {} bytes of "
                        "its memory; all three must be equal",
                        storage.name, bytes.size(), expected, storage.buffer.bytes()));
    }
    storage.buffer.upload(bytes);
}

std::vector<std::byte> ProblemData::download(Operand operand) const {
    const Storage& storage = storages_[place(operand).storage];
    const std::size_t expected = place(operand).bytes();
    if (storage.buffer.bytes() != expected) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("download of {}: the tensor has {} of the {} bytes of its memory; "
                                "it must have all",
                                storage.name, expected, storage.buffer.bytes()));
    }
    std::vector<std::byte> bytes(expected);
    storage.buffer.download(bytes);
    return bytes;
}

void ProblemData::upload_lse(std::span<const float> lse) {
    if (lse.size_bytes() != lse_.bytes()) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("lse has {} values: batch · heads · seqlen_q is {}", lse.size(),
                                lse_.bytes() / sizeof(float)));
    }
    lse_.upload(std::as_bytes(lse));
    spread_lse();
}

std::vector<float> ProblemData::download_lse() const {
    std::vector<float> lse(lse_.bytes() / sizeof(float));
    lse_.download(std::as_writable_bytes(std::span(lse)));
    return lse;
}

void ProblemData::scatter(Operand operand, std::span<const std::uint16_t> bits) {
    const Place& where = place(operand);
    GuardedBuffer& buffer = storages_[where.storage].buffer;
    if (bits.size_bytes() != where.bytes()) {
        throw Error(
            ErrorCode::invalid_argument,
            fmt::format("{} has {} elements: batch · heads · seqlen · head_dim is {}",
                        storages_[where.storage].name, bits.size(), where.extents.elements()));
    }
    if (layout_ == Layout::bhsd) {
        buffer.upload(std::as_bytes(bits));
        return;
    }
    // Other slices of the same storage, and gaps, keep their content.
    std::vector<std::uint16_t> all(buffer.bytes() / sizeof(std::uint16_t));
    if (layout_ != Layout::bshd) {
        buffer.download(std::as_writable_bytes(std::span(all)));
    }
    for_each_row(where.extents, where.strides, [&](std::int64_t strided, std::int64_t contiguous) {
        std::copy_n(bits.begin() + contiguous, where.extents.head_dim,
                    all.begin() + where.offset + strided);
    });
    buffer.upload(std::as_bytes(std::span(all)));
}

std::vector<std::uint16_t> ProblemData::gather(Operand operand) const {
    const Place& where = place(operand);
    const GuardedBuffer& buffer = storages_[where.storage].buffer;
    std::vector<std::uint16_t> all(buffer.bytes() / sizeof(std::uint16_t));
    buffer.download(std::as_writable_bytes(std::span(all)));
    if (layout_ == Layout::bhsd) {
        return all;
    }
    const auto words = static_cast<std::int64_t>(where.element_bytes / sizeof(std::uint16_t));
    std::vector<std::uint16_t> bits(where.bytes() / sizeof(std::uint16_t));
    for_each_row(where.extents, where.strides, [&](std::int64_t strided, std::int64_t contiguous) {
        std::copy_n(all.begin() + (where.offset + strided) * words, where.extents.head_dim * words,
                    bits.begin() + contiguous * words);
    });
    return bits;
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

std::optional<std::string> ProblemData::damaged_canary() const {
    for (std::size_t i = 0; i < storages_.size(); ++i) {
        if (!storages_[i].buffer.intact() || (has_gaps() && !gaps_intact(i))) {
            return storages_[i].name;
        }
    }
    if (!lse_.intact() || (layout_ == Layout::padded && !padded_lse_.intact())) {
        return "lse";
    }
    for (const GuardedBuffer& array : sequence_arrays_) {
        if (array.bytes() > 0 && !array.intact()) {
            return "the arrays of sequences";
        }
    }
    if (workspace_.bytes() > 0 && !workspace_.intact()) {
        return "workspace";
    }
    return std::nullopt;
}

Gradients<std::uint16_t> ProblemData::gradients() const {
    return {.d_q = gather_used(Operand::d_q),
            .d_k = gather_used(Operand::d_k),
            .d_v = gather_used(Operand::d_v)};
}

std::vector<std::uint16_t> ProblemData::gather_used(Operand operand) const {
    std::vector<std::uint16_t> bits = gather(operand);
    const std::vector<bool> used = used_rows(static_cast<std::size_t>(operand));
    if (used.empty()) {
        return bits;
    }
    const auto row_words = count(place(operand).extents.head_dim) * place(operand).element_bytes /
                           sizeof(std::uint16_t);
    for (std::size_t row = 0; row < bits.size() / row_words; ++row) {
        if (!used[row % used.size()]) {
            std::fill_n(bits.begin() + static_cast<std::ptrdiff_t>(row * row_words), row_words,
                        std::uint16_t{0});
        }
    }
    return bits;
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
