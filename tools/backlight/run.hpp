#pragma once

#include <optional>
#include <string>

#include "arguments.hpp"
#include "problem_data.hpp"
#include "problem_features.hpp"
#include "session/device_choice.hpp"

namespace backlight::tool {

struct RunOptions {
    DeviceChoice device;
    /// safetensors files.
    std::string in;
    std::string out;
    /// As parse_kernel takes it.
    std::string kernel = default_kernel;
    bool causal = false;
    /// Of mask, gradients and determinism; heads_kv and head_dim_v are the file's.
    ProblemFeatures features;
    std::optional<float> softmax_scale;
    /// Order of the dimensions in the files: bhsd or bshd.
    Layout layout = Layout::bhsd;
};

/// Reads q, k, v, do and, if there, o and lse (both or neither), runs the backward and writes dq,
/// dk and dv in the same layout and the same type, or F32 where that is the gradients' type. k and
/// v may have fewer heads than q, v and do another head_dim. lse is F32 (batch, heads, seqlen_q),
/// natural logarithm. Returns 0; throws Error, which names the tensor, its value and the rule.
int run_file(const RunOptions& options);

}  // namespace backlight::tool
