#pragma once

#include <mutex>
#include <string>
#include <unordered_map>

#include "backlight/runtime.hpp"

namespace backlight::attention {

/// Warns, once, where problems that differ in nothing but shape are compiled for again and again,
/// because their configuration makes sequence lengths constants of the kernel.
class RepeatedCompiles {
  public:
    /// Compiles without a warning: a few lengths, as of training and evaluation, may be worth a
    /// kernel each.
    static constexpr int tolerated = 4;

    /// To be called with each plan that is made.
    void note(const BackwardPlan& plan);

  private:
    std::mutex mutex_;
    /// By what the problems have in common.
    std::unordered_map<std::string, int> compiles_;
};

}  // namespace backlight::attention
