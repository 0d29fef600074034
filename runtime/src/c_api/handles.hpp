#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backlight/backlight.h"
#include "backlight/runtime.hpp"

struct backlight_runtime {
    backlight::Runtime runtime;
    /// In the order of `RuntimeCounters::hits_by_layer`; kept, as C callers hold pointers to them.
    std::vector<std::string> layer_names;
};

struct backlight_plan {
    std::shared_ptr<const backlight::BackwardPlan> plan;
};
