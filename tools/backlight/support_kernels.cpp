#include "support_kernels.hpp"

#include "runtime_implementation.hpp"

namespace backlight::tool {

SupportKernels::SupportKernels(Session& session)
    : measurement::SupportKernels(session.runtime().implementation().store(), session.device(),
                                  session.stream()),
      session_(session) {}

}  // namespace backlight::tool
