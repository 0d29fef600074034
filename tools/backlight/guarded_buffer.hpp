#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "session/device_buffer.hpp"
#include "session/session.hpp"

namespace backlight::tool {

/// Device memory between two canaries: 4096 bytes before its first byte and after its last, of a
/// pattern that is a NaN in bf16, fp16 and fp32, so that who reads there does not go unnoticed. The
/// memory itself holds another NaN at first, as after `poison`.
class GuardedBuffer {
  public:
    GuardedBuffer() = default;
    GuardedBuffer(const Session& session, std::size_t bytes);

    void* data() const noexcept { return buffer_.as<std::byte>() + guard_bytes; }
    std::size_t bytes() const noexcept { return bytes_; }
    /// Waits until the bytes are in device memory, whatever the stream.
    void upload(std::span<const std::byte> host, std::size_t offset = 0);
    /// Everything enqueued on the session's stream is waited for first.
    void download(std::span<std::byte> host, std::size_t offset = 0) const;
    /// Sets every byte to 0xff, a NaN in bf16, fp16 and fp32, in the session's stream.
    void poison() const;
    /// Both canaries are as they were made. Waits as `download` does.
    bool intact() const;

    /// Of every byte of poisoned memory.
    static constexpr std::uint8_t poison_pattern = 0xff;

  private:
    static constexpr std::size_t guard_bytes = 4096;

    const Session* session_ = nullptr;
    DeviceBuffer buffer_;
    std::size_t bytes_ = 0;
};

}  // namespace backlight::tool
