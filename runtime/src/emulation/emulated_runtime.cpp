#include "emulation/emulated_runtime.hpp"

#include <memory>
#include <utility>

#include "emulation/emulated_device.hpp"
#include "emulation/host_compiler.hpp"
#include "runtime_implementation.hpp"

namespace backlight::emulation {

Runtime make_emulated_runtime(const EmulationOptions& emulation, const RuntimeOptions& options,
                              std::vector<SourceEdit> edits) {
    RuntimeOptions resolved = with_environment(options);
    compiler::KernelStoreOptions store = store_options(resolved);
    store.backend = std::make_shared<HostCompiler>(std::move(edits), emulation.debug_kernels);
    return Runtime(std::make_shared<Runtime::Implementation>(
        std::make_shared<EmulatedDevice>(emulation), std::move(store),
        std::move(resolved.tuning_database)));
}

}  // namespace backlight::emulation
