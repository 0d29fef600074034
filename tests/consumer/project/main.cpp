// What a user of the installed library writes first.

#include <backlight/error.hpp>
#include <backlight/runtime.hpp>
#include <cstdio>
#include <iostream>

namespace {

bool refuses_unknown_kernel() {
    try {
        backlight::kernel_preset("v0");
        return false;
    } catch (const backlight::Error& error) {
        return error.code() == backlight::ErrorCode::unknown_kernel;
    }
}

/// With a GPU a plan is made; without one the library says what is missing.
bool makes_plan_or_says_why_not() {
    try {
        backlight::Runtime runtime({.disable_disk_cache = true});
        const auto plan = runtime.backward(
            {.batch = 1, .heads = 2, .seqlen_q = 256, .seqlen_kv = 256, .head_dim = 64});
        std::cout << "workspace on " << runtime.device_name() << ": " << plan->workspace_bytes()
                  << " bytes\n";
        return plan->workspace_bytes() > 0;
    } catch (const backlight::Error& error) {
        std::cout << "no plan: " << to_string(error.code()) << ": " << error.what() << '\n';
        switch (error.code()) {
            case backlight::ErrorCode::driver_not_found:
            case backlight::ErrorCode::device_not_found:
            case backlight::ErrorCode::unsupported_device:
            case backlight::ErrorCode::nvrtc_not_found:
                return true;
            default:
                return false;
        }
    }
}

}  // namespace

int main() {
    const backlight::TileConfig& config = backlight::kernel_preset("v3");
    if (config.block_q != 32 || config.block_kv != 64 || config.stages != 2) {
        std::cerr << "v3 is " << to_string(config) << '\n';
        return 1;
    }
    if (!refuses_unknown_kernel()) {
        std::cerr << "an unknown kernel name is not refused\n";
        return 1;
    }
    return makes_plan_or_says_why_not() ? 0 : 1;
}
