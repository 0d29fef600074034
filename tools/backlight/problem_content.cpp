// What the tensors of a problem hold: to and from the host, in whatever layout, and the gaps
// between.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "backlight/error.hpp"
#include "problem_data.hpp"

namespace backlight::tool {

namespace {

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

void ProblemData::scatter(Operand operand, std::span<const std::uint16_t> words) {
    const Place& where = place(operand);
    GuardedBuffer& buffer = storages_[where.storage].buffer;
    if (words.size_bytes() != where.bytes()) {
        throw Error(
            ErrorCode::invalid_argument,
            fmt::format("{} has {} elements: batch · heads · seqlen · head_dim is {}",
                        storages_[where.storage].name, words.size_bytes() / where.element_bytes,
                        where.extents.elements()));
    }
    if (layout_ == Layout::bhsd) {
        buffer.upload(std::as_bytes(words));
        return;
    }
    // Other slices of the same storage, and gaps, keep their content.
    std::vector<std::uint16_t> all(buffer.bytes() / sizeof(std::uint16_t));
    if (layout_ != Layout::bshd) {
        buffer.download(std::as_writable_bytes(std::span(all)));
    }
    const std::int64_t element = where.words();
    for_each_row(where.extents, where.strides, [&](std::int64_t strided, std::int64_t contiguous) {
        std::copy_n(words.begin() + contiguous * element, where.extents.head_dim * element,
                    all.begin() + (where.offset + strided) * element);
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
    const std::int64_t element = where.words();
    std::vector<std::uint16_t> words(where.bytes() / sizeof(std::uint16_t));
    for_each_row(where.extents, where.strides, [&](std::int64_t strided, std::int64_t contiguous) {
        std::copy_n(all.begin() + (where.offset + strided) * element,
                    where.extents.head_dim * element, words.begin() + contiguous * element);
    });
    return words;
}

void ProblemData::set_gradients(const std::array<std::vector<float>, 3>& values) {
    constexpr std::array operands = {Operand::d_q, Operand::d_k, Operand::d_v};
    for (std::size_t i = 0; i < operands.size(); ++i) {
        std::vector<std::uint16_t> words(values[i].size() * 2);
        std::memcpy(words.data(), values[i].data(), values[i].size() * sizeof(float));
        scatter(operands[i], words);
        if (problem_.packed) {
            poison_gaps(place(operands[i]).storage);
        }
    }
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

}  // namespace backlight::tool
