#define DOCTEST_CONFIG_IMPLEMENT
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

/// The value that CMake's SKIP_RETURN_CODE names.
constexpr int exit_skipped = 77;

/// Why no test can run here, or null. Asks the driver by itself: that the library finds a device
/// is for the tests to tell, not for the decision to run them.
const char* reason_to_skip() {
    const char* driver = std::getenv("BACKLIGHT_DRIVER_PATH");
    void* library = dlopen(driver != nullptr ? driver : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        return "there is no CUDA driver";
    }
    const auto init = reinterpret_cast<int (*)(unsigned int)>(dlsym(library, "cuInit"));
    const auto get_count = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
    if (init == nullptr || get_count == nullptr) {
        return "the CUDA driver library lacks cuInit or cuDeviceGetCount";
    }
    int count = 0;
    if (init(0) != 0 || get_count(&count) != 0 || count == 0) {
        return "the CUDA driver finds no GPU";
    }
    return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
    doctest::Context context(argc, argv);
    // Listing the tests, which the build does to register them, needs no GPU.
    const bool listing = [&] {
        for (int i = 1; i < argc; ++i) {
            const std::string_view argument = argv[i];
            if (argument.starts_with("--list") || argument.starts_with("-l")) {
                return true;
            }
        }
        return false;
    }();
    if (!listing) {
        if (const char* reason = reason_to_skip(); reason != nullptr) {
            std::printf("skipped: %s\n", reason);
            return exit_skipped;
        }
    }
    return context.run();
}
