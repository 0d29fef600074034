#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backlight/problem.hpp"
#include "backlight/tile_config.hpp"
#include "device/device.hpp"

namespace backlight::tuning {

/// A kind of card: figures of one are worth nothing on another.
struct Card {
    std::string name;
    int multiprocessors = 0;
    std::string target;

    bool operator==(const Card&) const = default;
};

Card card_of(const device::DeviceProperties& properties);

/// Problems that share their records. Lengths, and batch · heads, are rounded up to a power of two,
/// lengths to 64 at least, and so are the bounds of a window; the rest counts as it is. The softmax
/// scale does not matter.
struct Bucket {
    DataType dtype = DataType::bf16;
    std::int64_t head_dim = 0;
    bool causal = false;
    std::int64_t seqlen_q = 0;
    std::int64_t seqlen_kv = 0;
    std::int64_t batch_heads = 0;
    std::int64_t head_dim_v = 0;
    /// Of queries, that share one of keys and values.
    std::int64_t heads_per_kv_head = 1;
    /// Bottom-right where it does not matter.
    MaskAlignment mask_alignment = MaskAlignment::bottom_right;
    std::optional<std::int64_t> window_left = std::nullopt;
    std::optional<std::int64_t> window_right = std::nullopt;
    GradientType gradient_type = GradientType::input;
    bool accumulate_gradients = false;
    bool deterministic = false;

    /// In the order of their fields.
    auto operator<=>(const Bucket&) const = default;
};

Bucket bucket_of(const AttentionProblem& problem);

/// How far the records of one bucket are from the problems of another: twice the doublings between
/// their lengths, those between batch · heads, and one for another type. Nothing where they have no
/// bearing on each other: lengths more than three doublings apart, or another field than these.
std::optional<int> distance(const Bucket& left, const Bucket& right);

/// "bf16 head_dim=128 causal seqlen_q=4096 …": for people and logs.
std::string to_string(const Bucket& bucket);

/// One configuration timed on one kind of card.
struct Record {
    Card card;
    /// As it was timed; its bucket is what it is found by.
    AttentionProblem problem;
    TileConfig config;
    /// Of the main kernel's cache key. Where a kernel's own is another, the record is stale: its
    /// figures are those of another kernel, its configuration is as legal as before.
    std::string kernel_digest;
    /// Its gradients were compared with the reference, and it was timed in full: it may win.
    bool checked = false;
    std::vector<double> samples_milliseconds;
    /// Median of the baseline, interleaved with the samples; 0 where there is none. Figures of
    /// different runs are compared by their ratios to it.
    double baseline_milliseconds = 0;
    /// UTC, ISO 8601.
    std::string date;
    /// The families of kernels that took part in the search, whatever came of them, in the order of
    /// their numbers. Empty in what was recorded when there was only mma.
    std::vector<KernelFamily> families = {};

    bool operator==(const Record&) const = default;
};

/// Two records that take the same place: of the same card, bucket and configuration; where lengths
/// are constants of the kernel, of the same lengths too.
bool same_place(const Record& left, const Record& right);

/// The record serves the problem: for kernels with constant lengths, the lengths are the problem's.
bool serves_lengths(const Record& record, const AttentionProblem& problem);

/// The record's search had that family to compare with; a record's own always had.
bool covers(const Record& record, KernelFamily family);

/// The time, as records hold it.
std::string now_utc();

}  // namespace backlight::tuning
