#include "session/session.hpp"

#include <utility>

#include "compiler/kernel_store.hpp"
#include "runtime_implementation.hpp"

namespace backlight::tool {

Session::Session(Runtime runtime)
    : runtime_(std::move(runtime)), device_(&runtime_.implementation().device()) {}

std::shared_ptr<const device::Kernel> Session::kernel(const std::string& source,
                                                      const std::string& entry,
                                                      const std::string& specialisation,
                                                      std::size_t dynamic_shared_bytes) {
    const compiler::KernelLookup compiled =
        runtime_.implementation().store().get({.source = source,
                                               .entry = entry,
                                               .specialisation = specialisation,
                                               .target = device_->properties().target});
    auto kernel = device_->load(compiled.kernel->cubin, entry.c_str(), dynamic_shared_bytes);
    kernel->prepare();
    return kernel;
}

}  // namespace backlight::tool
