#include "runtimes.hpp"

#include <map>
#include <mutex>
#include <utility>

#include "backlight/error.hpp"
#include "device/cuda_device.hpp"
#include "runtime_implementation.hpp"
#ifdef BACKLIGHT_PYTHON_EMULATES
#include "emulation/emulated_runtime.hpp"
#endif

namespace backlight::python {

namespace {

class CudaRuntime final : public DeviceRuntime {
  public:
    explicit CudaRuntime(const RuntimeOptions& options)
        : runtime_(options),
          // A Runtime of the public constructor always sits on a CUDA device.
          device_(dynamic_cast<device::CudaDevice&>(runtime_.implementation().device())) {
        const device::DriverApi& driver = device_.driver();
        CUcontext context = nullptr;
        driver.check(driver.cuDevicePrimaryCtxRetain(&context, device_.handle()),
                     "retain the primary context");
        context_ = context;
    }

    Runtime& runtime() noexcept override { return runtime_; }
    device::Device& device() noexcept override { return device_; }
    void* context() const noexcept override { return context_; }
    int dlpack_type() const noexcept override { return 2; }

  private:
    Runtime runtime_;
    device::CudaDevice& device_;
    void* context_ = nullptr;
};

#ifdef BACKLIGHT_PYTHON_EMULATES
class EmulatedRuntime final : public DeviceRuntime {
  public:
    explicit EmulatedRuntime(const std::string& target)
        : runtime_(emulation::make_emulated_runtime({.target = target})) {}

    Runtime& runtime() noexcept override { return runtime_; }
    device::Device& device() noexcept override { return runtime_.implementation().device(); }
    void* context() const noexcept override { return nullptr; }
    int dlpack_type() const noexcept override { return 1; }

  private:
    Runtime runtime_;
};
#endif

struct Registry {
    std::mutex mutex;
    std::map<int, std::unique_ptr<DeviceRuntime>> by_ordinal;
    std::string nvrtc_path;
};

Registry& registry() {
    static auto* const only = new Registry;
    return *only;
}

}  // namespace

DeviceRuntime& device_runtime(int ordinal) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    if (const auto found = all.by_ordinal.find(ordinal); found != all.by_ordinal.end()) {
        return *found->second;
    }
    auto opened = std::make_unique<CudaRuntime>(
        RuntimeOptions{.device = ordinal, .nvrtc_path = all.nvrtc_path});
    return *all.by_ordinal.emplace(ordinal, std::move(opened)).first->second;
}

void use_nvrtc(const std::string& path) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    all.nvrtc_path = path;
}

bool has_emulated_device() noexcept {
#ifdef BACKLIGHT_PYTHON_EMULATES
    return true;
#else
    return false;
#endif
}

void emulate_device([[maybe_unused]] const std::string& target) {
#ifdef BACKLIGHT_PYTHON_EMULATES
    auto emulated = std::make_unique<EmulatedRuntime>(target);
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    if (!all.by_ordinal.emplace(0, std::move(emulated)).second) {
        throw Error(ErrorCode::invalid_argument,
                    "device 0 is in use: it can be emulated only before it is opened");
    }
#else
    throw Error(ErrorCode::unsupported, "this build of the package has no emulated device");
#endif
}

ContextScope::ContextScope(DeviceRuntime& of)
    : device_(of.device()), before_(device_.current_context()), changed_(before_ != of.context()) {
    if (changed_) {
        device_.use_context(of.context());
    }
}

ContextScope::~ContextScope() {
    if (!changed_) {
        return;
    }
    try {
        device_.use_context(before_);
    } catch (const Error&) {
        // Only a context that is gone is refused: there is none to go back to.
    }
}

}  // namespace backlight::python
