#include "verification_grid.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "backlight/error.hpp"

namespace backlight::tool {

namespace {

using verification::InputKind;
using verification::unset;

constexpr std::array sizes = {GridSize::small, GridSize::large};
constexpr std::array layouts = {Layout::bhsd, Layout::bshd, Layout::packed_qkv, Layout::padded,
                                Layout::broadcast};
constexpr std::array<std::optional<float>, 4> scales = {std::nullopt, 0.03F, -0.1F, 0.0F};
struct GradientKind {
    GradientType type;
    bool accumulated;
};
constexpr std::array all_gradients = {GradientKind{GradientType::input, false},
                                      GradientKind{GradientType::fp32, false},
                                      GradientKind{GradientType::fp32, true}};
constexpr std::array<std::optional<verification::PackingKind>, 4> packings = {
    std::nullopt, verification::PackingKind::full, verification::PackingKind::mixed,
    verification::PackingKind::padded};
constexpr auto top_left = MaskAlignment::top_left;

/// Inputs of a certain logit, which no softmax scale of 0 gives.
bool needs_logits(InputKind kind) {
    return kind == InputKind::large_logits || kind == InputKind::low_lse ||
           kind == InputKind::high_lse || kind == InputKind::dominant_key;
}

/// Makes sequences of the problem's batch, and a few more, which kinds of packing tell apart.
void pack(CheckedProblem& checked, verification::PackingKind kind) {
    constexpr std::int64_t more_sequences = 4;
    checked.problem.batch += more_sequences;
    checked.packing = verification::make_packing(checked.problem, kind);
    checked.problem = verification::packed_problem(
        checked.problem, checked.packing, kind == verification::PackingKind::padded ? 3 : 0);
}

template <typename Values>
int size_of(const Values& values) {
    return static_cast<int>(values.size());
}

}  // namespace

const char* to_string(GridSize size) noexcept {
    return size == GridSize::small ? "small" : "large";
}

GridSize grid_size_by_name(std::string_view name) {
    for (const GridSize size : sizes) {
        if (name == to_string(size)) {
            return size;
        }
    }
    throw Error(ErrorCode::invalid_argument,
                fmt::format("grid-size is '{}': it must be small or large", name));
}

VerificationGrid::VerificationGrid(GridSize size, const std::vector<std::int64_t>& only_head_dims,
                                   const std::vector<DataType>& only_dtypes)
    : dtypes_(only_dtypes.empty() ? std::vector{DataType::bf16, DataType::fp16} : only_dtypes) {
    set_axes(size);
    if (!only_head_dims.empty()) {
        std::erase_if(head_dims_, [&](const HeadDims& dims) {
            return std::ranges::count(only_head_dims, dims.queries) == 0;
        });
    }
    if (head_dims_.empty()) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("head-dim is {}: the {} grid has none of these",
                                fmt::join(only_head_dims, ", "), to_string(size)));
    }
}

void VerificationGrid::set_axes(GridSize size) {
    // The first value of each axis is the one that most kernels take.
    masks_ = {
        {},
        {.causal = true},
        {.causal = true, .alignment = top_left},
        {.window_left = 16, .window_right = 0},
        {.alignment = top_left, .window_left = 40, .window_right = 24},
        {.window_right = 17},
        {.alignment = top_left, .window_left = 33},
        {.window_left = 0, .window_right = 0},
        {.window_left = 100'000, .window_right = 100'000},
    };
    if (size == GridSize::small) {
        lengths_ = {128, 1, 17, 64, 65, 129, 200};
        batches_ = {1, 2};
        heads_ = {{1, 1}, {3, 3}, {4, 2}, {4, 1}, {8, 1}};
        head_dims_ = {{64, 64}, {128, 128}, {8, 8}, {72, 72}, {40, 96}, {192, 128}, {256, 256}};
        most_work_ = 200.0 * 200 * 1 * (256 + 256);
        most_host_work_ = most_work_;
        return;
    }
    masks_.push_back({.window_left = 1024, .window_right = 0});
    masks_.push_back({.alignment = top_left, .window_left = 0, .window_right = 0});
    masks_.push_back({.causal = true, .window_left = 300});
    lengths_ = {1024, 1, 15, 17, 63, 64, 65, 127, 128, 129, 200, 333, 512, 777, 2048, 4096, 4223};
    batches_ = {1, 3};
    heads_ = {{2, 2}, {6, 3}, {8, 2}, {8, 1}, {16, 2}};
    head_dims_ = {{64, 64},   {128, 128}, {8, 8},    {40, 40},  {72, 72},   {96, 96},
                  {104, 104}, {128, 64},  {64, 128}, {128, 96}, {192, 128}, {256, 256}};
    most_work_ = 8.0 * 4223 * 4223 * (256 + 256);
    most_host_work_ = 0x1p26;
}

double VerificationGrid::work(std::span<const int> row) const {
    const auto length = [&](Axis axis) {
        return static_cast<double>(row[axis] == unset
                                       ? std::ranges::min(lengths_)
                                       : lengths_[static_cast<std::size_t>(row[axis])]);
    };
    const AttentionProblem plain = problem(row).problem;
    return static_cast<double>(plain.batch * plain.heads) * length(seqlen_q) * length(seqlen_kv) *
           static_cast<double>(plain.head_dim + plain.effective_head_dim_v());
}

CheckedProblem VerificationGrid::problem(std::span<const int> row) const {
    const auto at = [&](Axis axis, const auto& values) {
        return values[static_cast<std::size_t>(std::max(row[axis], 0))];
    };
    const auto length = [&](Axis axis, Axis other) {
        return at(row[axis] == unset ? other : axis, lengths_);
    };
    const Mask chosen_mask = at(mask, masks_);
    const Heads chosen_heads = at(heads, heads_);
    const HeadDims dims = at(head_dims, head_dims_);
    const auto chosen_gradients = at(gradients, all_gradients);
    CheckedProblem checked{.problem = {.batch = at(batch, batches_),
                                       .heads = chosen_heads.queries,
                                       .seqlen_q = length(seqlen_q, seqlen_kv),
                                       .seqlen_kv = length(seqlen_kv, seqlen_q),
                                       .head_dim = dims.queries,
                                       .causal = chosen_mask.causal,
                                       .mask_alignment = chosen_mask.alignment,
                                       .window_left = chosen_mask.window_left,
                                       .window_right = chosen_mask.window_right,
                                       .dtype = at(dtype, dtypes_),
                                       .gradient_type = chosen_gradients.type,
                                       .accumulate_gradients = chosen_gradients.accumulated,
                                       .softmax_scale = at(softmax_scale, scales),
                                       .deterministic = row[deterministic] == 1},
                           .inputs = at(inputs, verification::input_kinds),
                           .layout = at(layout, layouts)};
    if (chosen_heads.keys != chosen_heads.queries) {
        checked.problem.heads_kv = chosen_heads.keys;
    }
    if (dims.values != dims.queries) {
        checked.problem.head_dim_v = dims.values;
    }
    if (const auto kind = at(packing, packings)) {
        pack(checked, *kind);
    }
    return checked;
}

bool VerificationGrid::possible(std::span<const int> row, const Taken& taken) const {
    const CheckedProblem checked = problem(row);
    const AttentionProblem& plain = checked.problem;
    if (checked.layout == Layout::packed_qkv &&
        (plain.seqlen_q != plain.seqlen_kv || plain.head_dim_v ||
         (plain.packed && plain.packed->total_q != plain.packed->total_kv))) {
        return false;
    }
    if (needs_logits(checked.inputs) && plain.softmax_scale == 0.0F) {
        return false;
    }
    if (checked.inputs == InputKind::dominant_key && plain.window_left) {
        return false;
    }
    // Logits come of the rows that queries and keys of a head have together.
    if (checked.layout == Layout::broadcast && needs_logits(checked.inputs)) {
        return false;
    }
    return work(row) <= most_work_ && (!taken || taken(plain));
}

verification::GridModel VerificationGrid::model(const Taken& taken) const {
    verification::GridModel model;
    model.sizes.resize(axis_count);
    model.sizes[dtype] = size_of(dtypes_);
    model.sizes[mask] = size_of(masks_);
    model.sizes[seqlen_q] = model.sizes[seqlen_kv] = size_of(lengths_);
    model.sizes[batch] = size_of(batches_);
    model.sizes[heads] = size_of(heads_);
    model.sizes[head_dims] = size_of(head_dims_);
    model.sizes[layout] = size_of(layouts);
    model.sizes[softmax_scale] = size_of(scales);
    model.sizes[gradients] = size_of(all_gradients);
    model.sizes[deterministic] = 2;
    model.sizes[inputs] = size_of(verification::input_kinds);
    model.sizes[packing] = size_of(packings);
    model.possible = [this, taken](std::span<const int> row) { return possible(row, taken); };
    return model;
}

std::vector<CheckedProblem> VerificationGrid::problems(const Taken& taken) const {
    std::vector<CheckedProblem> all;
    for (const verification::GridRow& row : verification::pairwise_rows(model(taken))) {
        CheckedProblem checked = problem(row);
        checked.seed = all.size() + 1;
        checked.reference =
            work(row) <= most_host_work_ ? Reference::host_fp64 : Reference::device_fp32;
        // Equal bits of every run are what deterministic problems are about.
        checked.repeats = checked.problem.deterministic ? 3 : 2;
        all.push_back(checked);
    }
    return all;
}

}  // namespace backlight::tool
