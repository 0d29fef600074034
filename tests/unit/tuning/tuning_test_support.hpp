// Records and devices of the tests of the tuner.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "test_support.hpp"
#include "tuning/database.hpp"

namespace backlight::test {

inline std::string content_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline void write(const std::filesystem::path& path, const std::string& text) {
    std::ofstream(path) << text;
}

inline device::DeviceProperties properties(const std::string& name = "Test card",
                                           const std::string& target = "sm_90a") {
    return {.name = name, .target = device::target_by_name(target), .multiprocessors = 132};
}

inline AttentionProblem tuned_problem(std::int64_t seqlen = 4096, std::int64_t head_dim = 128,
                                      bool causal = true) {
    return {.batch = 8,
            .heads = 16,
            .seqlen_q = seqlen,
            .seqlen_kv = seqlen,
            .head_dim = head_dim,
            .causal = causal};
}

/// Samples without noise, beside a baseline of 1 ms, of a search of all families.
inline tuning::Record record(const TileConfig& config, double milliseconds,
                             const AttentionProblem& problem = tuned_problem()) {
    return {.card = tuning::card_of(properties()),
            .problem = problem,
            .config = config,
            .kernel_digest = "fresh",
            .checked = true,
            .samples_milliseconds = std::vector<double>(20, milliseconds),
            .baseline_milliseconds = 1,
            .date = "2026-01-01T00:00:00Z",
            .families = {kernel_families().begin(), kernel_families().end()}};
}

inline tuning::Database database_of(const std::vector<tuning::Record>& records) {
    tuning::Database database;
    for (const tuning::Record& one : records) {
        database.put(one);
    }
    return database;
}

}  // namespace backlight::test
