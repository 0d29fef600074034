// What the tests of the command `run` share: files of a problem's tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "problem_data.hpp"
#include "verification/safetensors.hpp"

namespace backlight::test {

inline verification::SafeTensor file_tensor(const tool::ProblemData& data,
                                            tool::ProblemData::Operand operand) {
    const AttentionProblem& problem = data.problem();
    const std::int64_t seqlen = problem.seqlen_q;
    verification::SafeTensor made;
    made.dtype = problem.dtype == DataType::bf16 ? "BF16" : "F16";
    made.shape = data.layout() == tool::Layout::bhsd
                     ? std::vector{problem.batch, problem.heads, seqlen, problem.head_dim}
                     : std::vector{problem.batch, seqlen, problem.heads, problem.head_dim};
    made.data = data.download(operand);
    return made;
}

/// q, k, v and do of a square problem with equal heads.
inline verification::SafetensorsFile input_file(const tool::ProblemData& data) {
    using Operand = tool::ProblemData::Operand;
    verification::SafetensorsFile file;
    file.tensors["q"] = file_tensor(data, Operand::q);
    file.tensors["k"] = file_tensor(data, Operand::k);
    file.tensors["v"] = file_tensor(data, Operand::v);
    file.tensors["do"] = file_tensor(data, Operand::d_o);
    return file;
}

/// Adds o and lse.
inline void add_forward(verification::SafetensorsFile& file, const tool::ProblemData& data) {
    const AttentionProblem& problem = data.problem();
    const std::vector<float> lse = data.download_lse();
    file.tensors["o"] = file_tensor(data, tool::ProblemData::Operand::o);
    verification::SafeTensor& statistics = file.tensors["lse"];
    statistics.dtype = "F32";
    statistics.shape = {problem.batch, problem.heads, problem.seqlen_q};
    const auto bytes = std::as_bytes(std::span(lse));
    statistics.data.assign(bytes.begin(), bytes.end());
}

}  // namespace backlight::test
