#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "session/session.hpp"

namespace backlight::tool {

/// Device memory. Freed in the destructor; the session must outlive it.
class DeviceBuffer {
  public:
    DeviceBuffer() = default;
    DeviceBuffer(const Session& session, std::size_t bytes);
    ~DeviceBuffer();
    DeviceBuffer(DeviceBuffer&& other) noexcept;
    DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

    void* data() const noexcept { return data_; }
    template <typename T>
    T* as() const noexcept {
        return static_cast<T*>(data_);
    }
    std::size_t bytes() const noexcept { return bytes_; }

    /// Synchronous copies of whole spans, from the buffer's byte `offset` on.
    void upload(std::span<const std::byte> host, std::size_t offset = 0);
    void download(std::span<std::byte> host, std::size_t offset = 0) const;
    template <typename T>
    void upload(const std::vector<T>& host, std::size_t offset = 0) {
        upload(std::as_bytes(std::span(host)), offset);
    }
    template <typename T>
    std::vector<T> download_all() const {
        std::vector<T> host(bytes_ / sizeof(T));
        download(std::as_writable_bytes(std::span(host)));
        return host;
    }
    /// Sets every byte, in the stream: 0xff makes NaN of bf16, fp16 and fp32 alike.
    void fill(std::uint8_t byte, Stream stream) const;

  private:
    device::Device* device_ = nullptr;
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace backlight::tool
