#include "emulation/emulated_device.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "backlight/error.hpp"
#include "emulation/host_compiler.hpp"
#include "emulation/tensor_copy.hpp"
#include "logging.hpp"

namespace backlight::emulation {

namespace {

/// As the strictest argument asks: tensor maps within argument structures.
constexpr std::align_val_t arguments_alignment{128};

class EmulatedKernel final : public device::Kernel {
  public:
    EmulatedKernel(std::shared_ptr<LaunchQueue> queue, std::shared_ptr<const KernelObject> object,
                   std::size_t dynamic_shared_bytes)
        : queue_(std::move(queue)),
          object_(std::move(object)),
          dynamic_shared_bytes_(dynamic_shared_bytes) {}

    void launch(const device::LaunchShape& shape, const void* arguments,
                Stream stream) const override {
        constexpr std::uint32_t most_threads = 1024;
        if (shape.blocks == 0 || shape.threads == 0 || shape.threads > most_threads ||
            shape.dynamic_shared_bytes > dynamic_shared_bytes_) {
            throw Error(
                ErrorCode::invalid_argument,
                fmt::format("launch of {}: {} blocks of {} threads with {} bytes of shared "
                            "memory: there must be a block, 1 to {} threads, and at most "
                            "the {} bytes it was loaded for",
                            object_->entry(), shape.blocks, shape.threads,
                            shape.dynamic_shared_bytes, most_threads, dynamic_shared_bytes_));
        }
        const std::size_t bytes = object_->arguments_bytes();
        std::shared_ptr<std::byte> copy(
            static_cast<std::byte*>(::operator new(bytes, arguments_alignment)),
            [](std::byte* memory) { ::operator delete(memory, arguments_alignment); });
        std::memcpy(copy.get(), arguments, bytes);
        queue_->add({.kernel = object_, .shape = shape, .arguments = std::move(copy)}, stream);
    }

  private:
    std::shared_ptr<LaunchQueue> queue_;
    std::shared_ptr<const KernelObject> object_;
    std::size_t dynamic_shared_bytes_;
};

}  // namespace

EmulatedDevice::EmulatedDevice(const EmulationOptions& options)
    : queue_(std::make_shared<LaunchQueue>(options)) {
    properties_.name = fmt::format("emulated {}", options.target);
    properties_.target = HostCompiler::emulated(device::target_by_name(options.target));
    properties_.multiprocessors = static_cast<int>(std::thread::hardware_concurrency());
    properties_.memory_bytes = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
                               static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::shared_ptr<const device::Kernel> EmulatedDevice::load(std::span<const std::byte> object,
                                                           const char* entry,
                                                           std::size_t dynamic_shared_bytes) {
    if (dynamic_shared_bytes > properties_.target.shared_bytes_per_block) {
        throw Error(ErrorCode::shared_memory_exceeded,
                    fmt::format("{} asks for {} bytes of shared memory: a block of {} has {}",
                                entry, dynamic_shared_bytes, properties_.target.name,
                                properties_.target.shared_bytes_per_block));
    }
    return std::make_shared<EmulatedKernel>(
        queue_, std::make_shared<const KernelObject>(object, entry), dynamic_shared_bytes);
}

void EmulatedDevice::encode(const tensor_map::Request& request, kernel::TensorMap& map) const {
    emulation::encode(content_of(request), map);
}

void* EmulatedDevice::allocate(std::size_t bytes) {
    try {
        return queue_->memory().allocate(bytes);
    } catch (const std::bad_alloc&) {
        throw Error(
            ErrorCode::driver_failed,
            fmt::format("the host has no {} bytes of memory for the emulated device", bytes));
    }
}

void EmulatedDevice::release(void* memory) noexcept {
    // Freeing waits for the kernels that may use the memory, as on a GPU.
    try {
        queue_->synchronise_all();
    } catch (const std::exception& error) {
        logger().error("found while memory was released: {}", error.what());
        queue_->keep_failure(std::current_exception());
    }
    queue_->memory().release(memory);
}

void EmulatedDevice::copy_to_device(void* destination, std::span<const std::byte> source) {
    queue_->synchronise_all();
    std::memcpy(destination, source.data(), source.size());
}

void EmulatedDevice::copy_to_host(std::span<std::byte> destination, const void* source) {
    queue_->synchronise_all();
    std::memcpy(destination.data(), source, destination.size());
}

void EmulatedDevice::fill(void* destination, std::uint8_t byte, std::size_t bytes, Stream stream) {
    queue_->synchronise(stream);
    std::memset(destination, byte, bytes);
}

void EmulatedDevice::fill_rows(void* destination, std::size_t pitch, std::uint8_t byte,
                               std::size_t row_bytes, std::size_t rows, Stream stream) {
    queue_->synchronise(stream);
    for (std::size_t row = 0; row < rows; ++row) {
        std::memset(static_cast<std::byte*>(destination) + row * pitch, byte, row_bytes);
    }
}

void EmulatedDevice::synchronise(Stream stream) {
    queue_->synchronise(stream);
}

double EmulatedDevice::time(Stream stream, const std::function<void()>& enqueue) {
    queue_->synchronise(stream);
    const auto start = std::chrono::steady_clock::now();
    enqueue();
    queue_->synchronise(stream);
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - start;
    return taken.count();
}

std::vector<BankConflictCount> EmulatedDevice::bank_conflicts() const {
    return queue_->bank_conflicts().counts();
}

}  // namespace backlight::emulation
