// The primitives on a GPU.
#include "conformance_cases.hpp"
#include "session/gpu.hpp"

namespace backlight::conformance {

Runtime& conformance_runtime() {
    // One for all cases: its context stays current in the thread that runs them.
    static tool::Gpu gpu;
    gpu.make_current();
    return gpu.runtime();
}

}  // namespace backlight::conformance
