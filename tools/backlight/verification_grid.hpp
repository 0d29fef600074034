#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "problem_check.hpp"
#include "verification/pairwise.hpp"

namespace backlight::tool {

enum class GridSize {
    /// For the emulated device: a problem takes less than a second there.
    small,
    /// For a GPU: more values of every axis, lengths beyond 4096.
    large,
};

const char* to_string(GridSize size) noexcept;
/// The size of that name; throws `invalid_argument` with the names there are.
GridSize grid_size_by_name(std::string_view name);

/// Everything that a problem may be, as axes with a few values each, and problems in which each two
/// values of different axes occur together.
class VerificationGrid {
  public:
    /// Whether a kernel takes a problem like that. Also asked of problems of which only some values
    /// are chosen yet; the others are then the plainest.
    using Taken = std::function<bool(const AttentionProblem&)>;

    enum Axis {
        dtype,
        mask,
        seqlen_q,
        seqlen_kv,
        batch,
        heads,
        head_dims,
        layout,
        softmax_scale,
        gradients,
        deterministic,
        inputs,
        packing,
        axis_count,
    };

    /// Only problems of these head dimensions (of queries) and types, where any are given. Throws
    /// `invalid_argument` where that leaves none.
    explicit VerificationGrid(GridSize size, const std::vector<std::int64_t>& only_head_dims = {},
                              const std::vector<DataType>& only_dtypes = {});

    /// Problems with every pair of values that a problem which is taken can have; always the same.
    /// None where none is taken.
    std::vector<CheckedProblem> problems(const Taken& taken = {}) const;

    /// How many values each axis has, and which of them exclude each other: a packed QKV tensor and
    /// unequal lengths or head dimensions; inputs that a softmax scale or window makes impossible;
    /// more work than the size allows.
    verification::GridModel model(const Taken& taken = {}) const;
    /// The problem of a row; the plainest value (the first) for what is unset, and equal lengths
    /// where one is.
    CheckedProblem problem(std::span<const int> row) const;

  private:
    struct Mask {
        bool causal = false;
        MaskAlignment alignment = MaskAlignment::bottom_right;
        std::optional<std::int64_t> window_left = std::nullopt;
        std::optional<std::int64_t> window_right = std::nullopt;
    };
    struct Heads {
        std::int64_t queries, keys;
    };
    struct HeadDims {
        std::int64_t queries, values;
    };

    bool possible(std::span<const int> row, const Taken& taken) const;
    /// A lower bound where lengths are unset.
    double work(std::span<const int> row) const;

    void set_axes(GridSize size);

    std::vector<DataType> dtypes_;
    std::vector<Mask> masks_;
    std::vector<std::int64_t> lengths_;
    std::vector<std::int64_t> batches_;
    std::vector<Heads> heads_;
    std::vector<HeadDims> head_dims_;
    double most_work_ = 0;
    /// Up to which the host's fp64 is the reference.
    double most_host_work_ = 0;
};

}  // namespace backlight::tool
