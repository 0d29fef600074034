#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "problem_check.hpp"
#include "problem_features.hpp"

namespace backlight::tool {

/// Problems of one kind: a line of the table for each kernel.
struct ProblemGroup {
    std::string name;
    std::vector<CheckedProblem> problems;
};

/// What a kernel is specialised for, along which every group is made, and how much is asked of it.
struct ProblemAxes {
    std::int64_t head_dim = 64;
    bool causal = false;
    DataType dtype = DataType::bf16;
    int repeats = 1;
    /// A few problems of each group only.
    bool quick = false;
    /// For a device that takes seconds where a GPU takes microseconds: problems of few tiles, all
    /// of them compared with the host's fp64.
    bool emulated = false;
    /// Of every problem. To each of heads_kv there are as many heads as the problem has otherwise,
    /// 2 at least. Layouts and inputs that exclude a feature are left out.
    ProblemFeatures features = {};
};

/// The problems that `verify` checks kernels on. Throws `invalid_argument` where `heads_kv` is out
/// of range.
std::vector<ProblemGroup> problem_groups(const ProblemAxes& axes);

}  // namespace backlight::tool
