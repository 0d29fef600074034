#include "attention/kernel_loader.hpp"

#include "backlight/error.hpp"
#include "logging.hpp"

namespace backlight::attention {

KernelLoader::Loaded KernelLoader::load(const KernelPlan& plan) {
    Loaded loaded;
    loaded.compiled = store_.get(plan.request);
    try {
        loaded.kernel = load_compiled(plan, loaded.compiled.kernel);
    } catch (const Error& error) {
        if (!loaded.compiled.kernel->from_disk) {
            throw;
        }
        logger().warn("{} from the cache is not used and compiled anew: {}", plan.request.entry,
                      error.what());
        loaded.compiled = store_.recompile(plan.request);
        loaded.kernel = load_compiled(plan, loaded.compiled.kernel);
    }
    loaded.kernel->prepare();
    return loaded;
}

std::shared_ptr<const device::Kernel> KernelLoader::load_compiled(
    const KernelPlan& plan, const std::shared_ptr<const compiler::CompiledKernel>& compiled) {
    const std::lock_guard lock(mutex_);
    Entry& entry = loaded_[{compiled.get(), plan.shape.dynamic_shared_bytes}];
    auto kernel = entry.kernel.lock();
    if (kernel == nullptr) {
        kernel = device_->load(compiled->cubin, plan.request.entry.c_str(),
                               plan.shape.dynamic_shared_bytes);
        entry = {compiled, kernel};
    }
    return kernel;
}

}  // namespace backlight::attention
