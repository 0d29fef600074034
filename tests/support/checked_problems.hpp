// What the tests on a GPU and those on the emulated device have in common.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backlight/tile_config.hpp"
#include "problem_check.hpp"
#include "session/device_buffer.hpp"
#include "tuning/search_space.hpp"

namespace backlight::test {

/// A problem of N(0, 1) inputs with equal lengths.
inline tool::CheckedProblem square_problem(std::int64_t batch, std::int64_t heads,
                                           std::int64_t seqlen, std::int64_t head_dim, bool causal,
                                           DataType dtype = DataType::bf16) {
    tool::CheckedProblem problem;
    problem.problem.batch = batch;
    problem.problem.heads = heads;
    problem.problem.seqlen_q = seqlen;
    problem.problem.seqlen_kv = seqlen;
    problem.problem.head_dim = head_dim;
    problem.problem.causal = causal;
    problem.problem.dtype = dtype;
    return problem;
}

/// Fails the test with every failure of the report.
inline void require_passed(const tool::ProblemReport& report) {
    CHECK_MESSAGE(report.tensors.size() == 3, "three gradients are reported");
    for (const std::string& failure : report.failures) {
        FAIL_CHECK(report.kernel << " " << tool::to_string(report.problem) << ": " << failure);
    }
}

/// The presets that the device has instructions for and whose tiles divide the problem; never none.
inline std::vector<KernelPreset> presets_for(tool::SupportKernels& kernels,
                                             const AttentionProblem& problem) {
    const device::Target& target = kernels.session().device().properties().target;
    std::vector<KernelPreset> presets;
    for (const KernelPreset& preset : kernel_presets()) {
        if (tuning::is_legal(preset.config, problem, target)) {
            presets.push_back(preset);
        }
    }
    REQUIRE_MESSAGE(!presets.empty(), "no preset takes " << to_string(problem));
    return presets;
}

/// Every preset with lengths as arguments and as constants: right, and the same bits of dK and dV.
inline void require_length_modes_alike(tool::SupportKernels& kernels, tool::ProblemCheck& check) {
    for (const KernelPreset& preset : presets_for(kernels, check.data().problem())) {
        TileConfig config = preset.config;
        config.sequence_lengths = SequenceLengths::run_time;
        require_passed(check.check(std::string(preset.name), config));
        const auto run_time = check.data().gradients();
        config.sequence_lengths = SequenceLengths::compile_time;
        require_passed(check.check(std::string(preset.name) + " compile_time", config));
        const auto compile_time = check.data().gradients();
        CHECK(run_time.d_k == compile_time.d_k);
        CHECK(run_time.d_v == compile_time.d_v);
    }
}

/// Every preset with and without programmatic dependent launch: the same.
inline void require_launches_alike(tool::SupportKernels& kernels, tool::ProblemCheck& check) {
    for (const KernelPreset& preset : presets_for(kernels, check.data().problem())) {
        TileConfig config = preset.config;
        config.programmatic_dependent_launch = false;
        require_passed(check.check(std::string(preset.name), config));
        const auto one_after_another = check.data().gradients();
        config.programmatic_dependent_launch = true;
        require_passed(check.check(std::string(preset.name) + " dependent", config));
        const auto overlapping = check.data().gradients();
        CHECK(one_after_another.d_k == overlapping.d_k);
        CHECK(one_after_another.d_v == overlapping.d_v);
    }
}

/// Counts the words in which two buffers differ on the device, the last one among them.
inline void require_differences_counted(tool::SupportKernels& kernels) {
    constexpr std::size_t words = 1000;
    const std::size_t bytes = words * sizeof(std::uint32_t);
    std::vector<std::uint32_t> values(words, 7);
    tool::DeviceBuffer left(kernels.session(), bytes);
    tool::DeviceBuffer right(kernels.session(), bytes);
    tool::DeviceBuffer count(kernels.session(), sizeof(std::uint32_t));
    left.upload(values);
    count.upload(std::vector<std::uint32_t>{0});
    const auto counted = [&] {
        right.upload(values);
        kernels.count_differences(left.data(), right.data(), bytes, count.as<std::uint32_t>());
        kernels.session().synchronise();
        return count.download_all<std::uint32_t>().front();
    };
    CHECK(counted() == 0);
    values.front() ^= 1U;
    values[words / 2] ^= 0x80000000U;
    values.back() ^= 0x00010000U;
    CHECK(counted() == 3);
    // Added to what was there.
    CHECK(counted() == 6);
}

struct Geometry {
    int block_q, block_kv, warps, stages;
};

/// Row groups of one to sixteen, tiles wider than tall and the reverse, deep pipelines, and a width
/// (96) that no 128-byte panel divides. All divide a sequence of 384.
inline constexpr std::array geometries = {
    Geometry{16, 32, 2, 1},  Geometry{16, 64, 4, 2},  Geometry{32, 32, 2, 3},
    Geometry{32, 32, 4, 4},  Geometry{32, 64, 4, 2},  Geometry{64, 32, 4, 1},
    Geometry{64, 64, 4, 2},  Geometry{64, 64, 8, 3},  Geometry{64, 128, 8, 1},
    Geometry{128, 64, 8, 1}, Geometry{96, 96, 6, 1},  Geometry{128, 128, 8, 1},
    Geometry{32, 128, 8, 1}, Geometry{128, 32, 8, 2},
};

inline TileConfig tile_config(const Geometry& geometry) {
    TileConfig config;
    config.block_q = geometry.block_q;
    config.block_kv = geometry.block_kv;
    config.warps = geometry.warps;
    config.stages = geometry.stages;
    return config;
}

}  // namespace backlight::test
