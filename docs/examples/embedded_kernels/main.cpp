// Makes a plan out of the kernels in this program alone. Where one were missing, the plan would be
// refused: nothing is compiled, nothing is read from or written to a disk.

#include <backlight/error.hpp>
#include <backlight/runtime.hpp>
#include <iostream>

#include "backlight_kernels.hpp"

int main() {
    const backlight::AttentionProblem problem{.batch = 2,
                                              .heads = 8,
                                              .seqlen_q = 2048,
                                              .seqlen_kv = 2048,
                                              .head_dim = 64,
                                              .causal = true};
    try {
        backlight::Runtime runtime({.disable_disk_cache = true,
                                    .cache_layers = {{.pack = backlight_kernels()}},
                                    .compile_policy = backlight::CompilePolicy::forbid});
        // What is chosen for the card: what was prebuilt where problems.json names no
        // configuration.
        const auto plan = runtime.backward(problem);
        for (const backlight::KernelResources& kernel : plan->resources()) {
            std::cout << kernel.kernel << " for " << kernel.target << ": "
                      << (kernel.cached ? "embedded" : "compiled") << '\n';
        }
        std::cout << "workspace: " << plan->workspace_bytes() << " bytes on "
                  << runtime.device_name() << '\n';
        return 0;
    } catch (const backlight::Error& error) {
        std::cerr << to_string(error.code()) << ": " << error.what() << '\n';
        return 1;
    }
}
