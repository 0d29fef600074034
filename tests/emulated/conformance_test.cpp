// The primitives on the emulated device.
#include "conformance_cases.hpp"
#include "emulated_test_support.hpp"

namespace backlight::conformance {

Runtime& conformance_runtime() {
    return test::emulated_runtime();
}

}  // namespace backlight::conformance
