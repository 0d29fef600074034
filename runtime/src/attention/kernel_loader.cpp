#include "attention/kernel_loader.hpp"

#include <fmt/format.h>

#include "backlight/error.hpp"
#include "logging.hpp"

namespace backlight::attention {

std::vector<KernelLoader::Loaded> KernelLoader::load(std::span<const KernelPlan> plans) {
    if (device_->capture_active()) {
        require_loaded(plans);
    }
    std::vector<compiler::KernelRequest> requests;
    for (const KernelPlan& plan : plans) {
        requests.push_back(plan.request);
    }
    std::vector<compiler::KernelLookup> lookups = store_.get_all(requests);
    std::vector<Loaded> loaded;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        loaded.push_back(load(plans[i], std::move(lookups[i])));
    }
    return loaded;
}

void KernelLoader::require_loaded(std::span<const KernelPlan> plans) {
    for (const KernelPlan& plan : plans) {
        const auto compiled = store_.in_memory(plan.request);
        const std::lock_guard lock(mutex_);
        const auto found = loaded_.find({compiled.get(), plan.shape.dynamic_shared_bytes});
        if (found == loaded_.end() || found->second.kernel.expired()) {
            throw Error(
                ErrorCode::capture_active,
                fmt::format("{} would have to be {} while a stream is being captured: "
                            "prepare the problem before the capture begins",
                            plan.request.entry,
                            compiled == nullptr ? "compiled or read from the cache" : "loaded"));
        }
    }
}

KernelLoader::Loaded KernelLoader::load(const KernelPlan& plan, compiler::KernelLookup lookup) {
    while (true) {
        try {
            auto kernel = load_compiled(plan, lookup.kernel);
            kernel->prepare();
            return {std::move(kernel), std::move(lookup)};
        } catch (const device::CubinRefused& error) {
            if (!lookup.kernel->origin) {
                throw;
            }
            logger().warn("{} out of {} is not used: {}", plan.request.entry,
                          store_.layer_names()[lookup.kernel->origin->layer], error.what());
            lookup = store_.replace(plan.request, lookup.kernel);
        }
    }
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
