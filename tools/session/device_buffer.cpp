#include "session/device_buffer.hpp"

#include <utility>

namespace backlight::tool {

DeviceBuffer::DeviceBuffer(const Session& session, std::size_t bytes)
    : device_(&session.device()), data_(device_->allocate(bytes)), bytes_(bytes) {}

DeviceBuffer::~DeviceBuffer() {
    if (device_ != nullptr) {
        device_->release(data_);
    }
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : device_(other.device_), data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

void DeviceBuffer::upload(std::span<const std::byte> host, std::size_t offset) {
    device_->copy_to_device(as<std::byte>() + offset, host);
}

void DeviceBuffer::download(std::span<std::byte> host, std::size_t offset) const {
    device_->copy_to_host(host, as<std::byte>() + offset);
}

void DeviceBuffer::fill(std::uint8_t byte, Stream stream) const {
    device_->fill(data_, byte, bytes_, stream);
}

}  // namespace backlight::tool
