#pragma once

// The control side of the fake CUDA driver (fake_driver.cpp): what it records and how it is told to
// behave. Tests open the same library that the code under test opens, and find these functions in
// it by name; nothing links against it.

#include <cuda.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace backlight::fault {

/// What the fake's cuTensorMapEncodeTiled writes into a tensor map: its own parameters, so that a
/// test sees what was asked, also in the arguments of a launch.
struct EncodedMap {
    std::uint64_t address;
    std::uint64_t extents[4];
    std::uint64_t stride_bytes[3];
    std::uint32_t box[4];
    std::uint8_t element_strides[4];
    std::uint8_t rank;
    std::uint8_t data_type;
    std::uint8_t interleave;
    std::uint8_t swizzle;
    std::uint8_t l2_promotion;
    std::uint8_t out_of_bounds_fill;
    /// Set by every encode, so that a map that was never encoded is told from one that was.
    std::uint8_t encoded;
};
static_assert(sizeof(EncodedMap) <= sizeof(CUtensorMap));

inline constexpr std::size_t name_bytes = 64;

struct Launch {
    char kernel[name_bytes];
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    /// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION was given and set.
    bool programmatic_dependent_launch;
    CUstream stream;
    /// The kernel's argument structure, as it was at the time of the launch.
    unsigned char arguments[1280];

    template <typename Arguments>
    Arguments arguments_as() const {
        static_assert(sizeof(Arguments) <= sizeof(arguments));
        Arguments result{};
        std::memcpy(&result, arguments, sizeof(result));
        return result;
    }
};

struct AttributeSetting {
    char kernel[name_bytes];
    CUfunction_attribute attribute;
    int value;
    CUdevice device;
};

// Name, result and parameters of every control function.
#define BACKLIGHT_FAKE_DRIVER_CONTROLS(X)                                                      \
    /* Forgets all records and failures to come, and is one device of compute capability 9.0.  \
       Libraries that are loaded stay loaded. */                                               \
    X(fake_reset, void, ())                                                                    \
    X(fake_set_device_count, void, (int count))                                                \
    /* Of all devices, and of one. */                                                          \
    X(fake_set_compute_capability, void, (int major, int minor))                               \
    X(fake_set_compute_capability_of, void, (int device, int major, int minor))                \
    /* Whether the calling thread finds a current context. */                                  \
    X(fake_set_current_context, void, (bool present))                                          \
    /* Whether a stream that synchronises with the legacy stream is being captured. */         \
    X(fake_set_capturing, void, (bool on))                                                     \
    /* The next call of the exported symbol, or the one after `calls` more, fails. */          \
    X(fake_fail_next, void, (const char* symbol, CUresult result))                             \
    X(fake_fail_after, void, (const char* symbol, int calls, CUresult result))                 \
    /* Counts go on without recording; recording allocates memory. */                          \
    X(fake_set_recording, void, (bool on))                                                     \
    X(fake_launch_count, std::size_t, ())                                                      \
    X(fake_launch, void, (std::size_t index, backlight::fault::Launch * launch))               \
    X(fake_encode_count, std::size_t, ())                                                      \
    X(fake_encode, void, (std::size_t index, backlight::fault::EncodedMap * map))              \
    X(fake_attribute_count, std::size_t, ())                                                   \
    X(fake_attribute, void, (std::size_t index, backlight::fault::AttributeSetting * setting)) \
    X(fake_library_load_count, std::size_t, ())                                                \
    X(fake_loaded_library_count, std::size_t, ())

/// The fake driver as tests hold it.
class FakeDriver {
  public:
    explicit FakeDriver(const char* path) : path_(path) {
        void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) {
            throw std::runtime_error(dlerror());
        }
#define BACKLIGHT_LOAD(name, result, parameters)                          \
    name = reinterpret_cast<result(*) parameters>(dlsym(library, #name)); \
    if (name == nullptr) {                                                \
        throw std::runtime_error(path_ + " has no " #name);               \
    }
        BACKLIGHT_FAKE_DRIVER_CONTROLS(BACKLIGHT_LOAD)
#undef BACKLIGHT_LOAD
    }

    const std::string& path() const noexcept {
        return path_;
    }

    std::vector<Launch> launches() const {
        return all<Launch>(fake_launch_count(), fake_launch);
    }
    std::vector<EncodedMap> encodes() const {
        return all<EncodedMap>(fake_encode_count(), fake_encode);
    }
    std::vector<AttributeSetting> attributes() const {
        return all<AttributeSetting>(fake_attribute_count(), fake_attribute);
    }

#define BACKLIGHT_DECLARE(name, result, parameters) result(*name) parameters = nullptr;
    BACKLIGHT_FAKE_DRIVER_CONTROLS(BACKLIGHT_DECLARE)
#undef BACKLIGHT_DECLARE

  private:
    template <typename Record>
    static std::vector<Record> all(std::size_t count, void (*read)(std::size_t, Record*)) {
        std::vector<Record> records(count);
        for (std::size_t i = 0; i < count; ++i) {
            read(i, &records[i]);
        }
        return records;
    }

    std::string path_;
};

}  // namespace backlight::fault
