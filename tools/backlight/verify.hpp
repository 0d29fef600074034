#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backlight/problem.hpp"

namespace backlight::tool {

struct VerifyOptions {
    /// CUDA device ordinal.
    int device = 0;
    /// Presets by name; empty: all of them.
    std::vector<std::string> kernels;
    std::vector<std::int64_t> head_dims = {64, 128};
    std::vector<DataType> dtypes = {DataType::bf16, DataType::fp16};
    /// Runs of each problem; dK and dV must be the same bits each time.
    int repeats = 3;
    /// A few problems of each group only.
    bool quick = false;
    /// Where to write every figure; empty: nowhere.
    std::string json;
};

/// Checks kernels against the fp64 host reference on small problems and the fp32 GPU reference on
/// large ones, and prints a table. Returns 0, or 1 if a problem failed. Throws Error.
int verify(const VerifyOptions& options);

}  // namespace backlight::tool
