// What the tests of validation share: a good problem with its tensors, targets, and what is
// refused.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string_view>

#include "attention/validation.hpp"
#include "device/target.hpp"
#include "test_support.hpp"

namespace backlight::test::validation {

inline constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

inline const AttentionProblem good_problem{
    .batch = 2, .heads = 4, .seqlen_q = 256, .seqlen_kv = 256, .head_dim = 128, .causal = true};

inline const device::Target& hopper() {
    static const device::Target target = device::target_by_name("sm_90a");
    return target;
}

inline const device::Target& blackwell() {
    static const device::Target target = device::target_by_name("sm_120a");
    return target;
}

inline void refused(ErrorCode code, const AttentionProblem& problem,
                    std::initializer_list<std::string_view> fragments) {
    check_refused(code, fragments, [&] { attention::validate(problem); });
}

inline void refused(const TileConfig& config, const AttentionProblem& problem,
                    std::initializer_list<std::string_view> fragments) {
    check_refused(ErrorCode::invalid_argument, fragments,
                  [&] { attention::validate(config, problem, hopper()); });
}

inline void refused(const BackwardTensors& tensors, const AttentionProblem& problem,
                    std::initializer_list<std::string_view> fragments) {
    check_refused(ErrorCode::invalid_argument, fragments,
                  [&] { attention::validate(tensors, problem); });
}

inline BackwardTensors good_tensors(const AttentionProblem& problem = good_problem) {
    return tensors_at(problem, test::tensor_base);
}

}  // namespace backlight::test::validation
