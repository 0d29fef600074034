#pragma once

#include "measurement/support_kernels.hpp"
#include "session/session.hpp"

namespace backlight::tool {

/// The kernels around a measurement, on a session's device and stream.
class SupportKernels : public measurement::SupportKernels {
  public:
    explicit SupportKernels(Session& session);

    Session& session() noexcept { return session_; }

  private:
    Session& session_;
};

}  // namespace backlight::tool
