#include "emulation/kernel_object.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "backlight/error.hpp"
#include "device/device.hpp"
#include "emulation/machine_table.hpp"
#include "emulation/temporary_folder.hpp"

namespace backlight::emulation {

namespace {

/// A file name that this process has not used before and does not use again: the loader takes two
/// files of one name, or of one inode, for the same object. They stay until the process ends, for
/// an object may outlive its handle, and debuggers read them.
std::filesystem::path fresh_file() {
    static const TemporaryFolder folder;
    static std::atomic<unsigned> number = 0;
    return folder.path() / fmt::format("kernel-{}.so", number++);
}

}  // namespace

KernelObject::KernelObject(std::span<const std::byte> bytes, std::string entry)
    : entry_(std::move(entry)) {
    const std::filesystem::path path = fresh_file();
    {
        std::ofstream file(path, std::ios::binary);
        file.write(reinterpret_cast<const char*>(bytes.data()),
                   static_cast<std::streamsize>(bytes.size()));
        file.close();
        if (!file) {
            throw Error(ErrorCode::file_error,
                        fmt::format("{} could not be written, to load {}", path.string(), entry_));
        }
    }
    handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) {
        throw device::CubinRefused(
            ErrorCode::file_error,
            fmt::format("the kernel object of {} cannot be loaded: {}", entry_, ::dlerror()));
    }
    const auto symbol = [&](const char* name) {
        void* found = ::dlsym(handle_, name);
        if (found == nullptr) {
            ::dlclose(handle_);
            throw device::CubinRefused(
                ErrorCode::file_error,
                fmt::format("the kernel object of {} lacks {}", entry_, name));
        }
        return found;
    };
    // What was loaded must be what was given: the identity of the one lies in the bytes of the
    // other.
    const std::string_view identity = static_cast<const char*>(symbol("backlight_identity"));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (text.find(identity) == std::string_view::npos) {
        ::dlclose(handle_);
        throw Error(ErrorCode::file_error,
                    fmt::format("loading {} gave another kernel object", path.string()));
    }
    reinterpret_cast<void (*)(const Machine*)>(symbol("backlight_set_machine"))(&machine_table());
    arguments_bytes_ = static_cast<std::size_t>(
        reinterpret_cast<unsigned long long (*)()>(symbol("backlight_arguments_bytes"))());
    shared_memory_ = reinterpret_cast<std::byte* (*)()>(symbol("backlight_shared_memory"));
    run_thread_ = reinterpret_cast<void (*)(const void*)>(symbol("backlight_run_thread"));
}

KernelObject::~KernelObject() {
    ::dlclose(handle_);
}

}  // namespace backlight::emulation
