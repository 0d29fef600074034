#include "guarded_buffer.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace backlight::tool {

namespace {

/// A quiet NaN of bf16 and fp16 and, twice, of fp32; not the one of `poison`.
constexpr std::uint16_t guard_pattern = 0x7fe5;

}  // namespace

GuardedBuffer::GuardedBuffer(const Session& session, std::size_t bytes)
    : session_(&session), buffer_(session, bytes + 2 * guard_bytes), bytes_(bytes) {
    poison();
    session.synchronise();
    const std::vector<std::uint16_t> guard(guard_bytes / sizeof(guard_pattern), guard_pattern);
    buffer_.upload(guard, 0);
    buffer_.upload(guard, guard_bytes + bytes);
}

void GuardedBuffer::upload(std::span<const std::byte> host, std::size_t offset) {
    // Work on a non-blocking stream neither waits for the copy nor is waited for by it.
    session_->synchronise();
    buffer_.upload(host, guard_bytes + offset);
}

void GuardedBuffer::download(std::span<std::byte> host, std::size_t offset) const {
    session_->synchronise();
    buffer_.download(host, guard_bytes + offset);
}

void GuardedBuffer::poison() const {
    session_->device().fill(data(), poison_pattern, bytes_, session_->stream());
}

bool GuardedBuffer::intact() const {
    session_->synchronise();
    std::array<std::uint16_t, 2 * guard_bytes / sizeof(guard_pattern)> guards{};
    const std::span<std::byte> both = std::as_writable_bytes(std::span(guards));
    buffer_.download(both.first(guard_bytes), 0);
    buffer_.download(both.last(guard_bytes), guard_bytes + bytes_);
    return std::ranges::all_of(guards, [](std::uint16_t word) { return word == guard_pattern; });
}

}  // namespace backlight::tool
