#include "run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "attention/extents.hpp"
#include "backlight/error.hpp"
#include "verification/safetensors.hpp"

namespace backlight::tool {

namespace {

using verification::SafeTensor;
using verification::SafetensorsFile;
using Operand = ProblemData::Operand;

constexpr std::string_view bf16_name = "BF16";
constexpr std::string_view fp16_name = "F16";

/// Before the work, not after it: the output can be made, and is not the input.
void require_writable(const RunOptions& options) {
    std::error_code failure;
    if (std::filesystem::equivalent(options.in, options.out, failure)) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("out is '{}': it must be another file than in", options.out));
    }
    const std::filesystem::path folder = std::filesystem::absolute(options.out).parent_path();
    if (!std::filesystem::is_directory(folder, failure) || ::access(folder.c_str(), W_OK) != 0) {
        throw Error(ErrorCode::file_error,
                    fmt::format("out is '{}': {} must be a folder that can be written to",
                                options.out, folder.string()));
    }
}

[[noreturn]] void refuse(const std::string& file, const std::string& what) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", file, what));
}

const SafeTensor& required(const SafetensorsFile& file, const std::string& path,
                           const std::string& name) {
    const auto found = file.tensors.find(name);
    if (found == file.tensors.end()) {
        std::vector<std::string_view> names;
        for (const auto& [present, tensor] : file.tensors) {
            names.push_back(present);
        }
        refuse(path, fmt::format("there is no tensor \"{}\": q, k, v and do are needed, and with "
                                 "--accumulate dq, dk and dv; the file has [{}]",
                                 name, fmt::join(names, ", ")));
    }
    return found->second;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
    return fmt::format("({})", fmt::join(shape, ", "));
}

using attention::Extents;

/// In the problem's order, whatever the layout.
Extents extents(const SafeTensor& tensor, Layout layout, const std::string& path,
                const std::string& name) {
    const std::vector<std::int64_t>& shape = tensor.shape;
    if (shape.size() != 4) {
        refuse(path, fmt::format("{} has shape {}: it must have four dimensions, {}", name,
                                 shape_text(shape),
                                 layout == Layout::bhsd ? "(batch, heads, seqlen, head_dim)"
                                                        : "(batch, seqlen, heads, head_dim)"));
    }
    return layout == Layout::bhsd ? Extents{shape[0], shape[1], shape[2], shape[3]}
                                  : Extents{shape[0], shape[2], shape[1], shape[3]};
}

void require_shape(const SafeTensor& tensor, const std::string& name, Layout layout,
                   const Extents& expected, const std::string& like, const std::string& path) {
    const auto [batch, heads, seqlen, head_dim] = expected;
    const std::vector<std::int64_t> shape = layout == Layout::bhsd
                                                ? std::vector{batch, heads, seqlen, head_dim}
                                                : std::vector{batch, seqlen, heads, head_dim};
    if (tensor.shape != shape) {
        refuse(path, fmt::format("{} has shape {}: it must have {}, {}", name,
                                 shape_text(tensor.shape), shape_text(shape), like));
    }
}

void require_dtype(const SafeTensor& tensor, const std::string& name, std::string_view dtype,
                   const std::string& path) {
    if (tensor.dtype != dtype) {
        refuse(path, fmt::format("{} is {}: it must be {}{}", name, tensor.dtype, dtype,
                                 dtype == "F32" ? "" : ", like q"));
    }
}

DataType data_type(const SafeTensor& q, const std::string& path) {
    if (q.dtype == bf16_name) {
        return DataType::bf16;
    }
    if (q.dtype == fp16_name) {
        return DataType::fp16;
    }
    refuse(path, fmt::format("q is {}: it must be BF16 or F16", q.dtype));
}

/// The problem that the file's tensors state, checked against each other. What the library itself
/// refuses is left to it.
AttentionProblem problem_of(const SafetensorsFile& file, const RunOptions& options) {
    const std::string& path = options.in;
    const SafeTensor& q = required(file, path, "q");
    const SafeTensor& k = required(file, path, "k");
    const SafeTensor& v = required(file, path, "v");
    const SafeTensor& d_o = required(file, path, "do");
    const DataType dtype = data_type(q, path);
    for (const auto& [name, tensor] :
         {std::pair{"k", &k}, std::pair{"v", &v}, std::pair{"do", &d_o}}) {
        require_dtype(*tensor, name, q.dtype, path);
    }
    const Extents queries = extents(q, options.layout, path, "q");
    const Extents keys = extents(k, options.layout, path, "k");
    const Extents values = extents(v, options.layout, path, "v");
    if (keys.batch != queries.batch || keys.head_dim != queries.head_dim || keys.heads < 1 ||
        queries.heads % keys.heads != 0) {
        refuse(path,
               fmt::format("k has shape {} and q has {}: batch and head_dim must be equal, "
                           "and the heads of k divide those of q (layout {})",
                           shape_text(k.shape), shape_text(q.shape), to_string(options.layout)));
    }
    AttentionProblem problem =
        options.features.applied_to({.batch = queries.batch,
                                     .heads = queries.heads,
                                     .seqlen_q = queries.seqlen,
                                     .seqlen_kv = keys.seqlen,
                                     .head_dim = queries.head_dim,
                                     .causal = options.causal,
                                     .dtype = dtype,
                                     .softmax_scale = options.softmax_scale});
    if (keys.heads != queries.heads) {
        problem.heads_kv = keys.heads;
    }
    if (values.head_dim != queries.head_dim) {
        problem.head_dim_v = values.head_dim;
    }
    require_shape(v, "v", options.layout, attention::value_extents(problem),
                  "that of k but for head_dim", path);
    require_shape(d_o, "do", options.layout, attention::output_extents(problem),
                  "that of q with the head_dim of v", path);
    return problem;
}

/// O and LSE from the file, or computed where the file has neither.
void provide_forward(const SafetensorsFile& file, const RunOptions& options, ProblemData& data) {
    const bool has_o = file.tensors.contains("o");
    const bool has_lse = file.tensors.contains("lse");
    if (has_o != has_lse) {
        refuse(options.in,
               fmt::format("there is {} but no {}: give both o and lse, or neither (then "
                           "both are computed)",
                           has_o ? "o" : "lse", has_o ? "lse" : "o"));
    }
    if (!has_o) {
        data.compute_forward();
        return;
    }
    const AttentionProblem& problem = data.problem();
    const SafeTensor& q = file.tensors.at("q");
    const SafeTensor& o = file.tensors.at("o");
    const SafeTensor& lse = file.tensors.at("lse");
    require_dtype(o, "o", q.dtype, options.in);
    require_shape(o, "o", options.layout, attention::output_extents(problem),
                  "that of q with the head_dim of v", options.in);
    require_dtype(lse, "lse", "F32", options.in);
    const std::vector<std::int64_t> rows = {problem.batch, problem.heads, problem.seqlen_q};
    if (lse.shape != rows) {
        refuse(options.in,
               fmt::format("lse has shape {}: it must have {}, (batch, heads, seqlen_q)",
                           shape_text(lse.shape), shape_text(rows)));
    }
    std::vector<float> values(lse.data.size() / sizeof(float));
    std::memcpy(values.data(), lse.data.data(), lse.data.size());
    data.upload(Operand::o, o.data);
    data.upload_lse(values);
}

/// Where dQ, dK and dV are added to: what they hold, from the file.
void provide_gradients(const SafetensorsFile& file, const RunOptions& options, ProblemData& data) {
    if (!data.problem().accumulate_gradients) {
        return;
    }
    struct Held {
        const char* name;
        const char* like;
        Operand operand;
        Extents extents;
    };
    const AttentionProblem& problem = data.problem();
    for (const Held& held : {Held{"dq", "q", Operand::d_q, attention::query_extents(problem)},
                             Held{"dk", "k", Operand::d_k, attention::key_extents(problem)},
                             Held{"dv", "v", Operand::d_v, attention::value_extents(problem)}}) {
        const SafeTensor& tensor = required(file, options.in, held.name);
        require_dtype(tensor, held.name, "F32", options.in);
        require_shape(tensor, held.name, options.layout, held.extents,
                      fmt::format("that of {}", held.like), options.in);
        data.upload(held.operand, tensor.data);
    }
}

}  // namespace

int run_file(const RunOptions& options) {
    if (options.layout != Layout::bhsd && options.layout != Layout::bshd) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("layout is {}: a file has q, k and v apart and without gaps, so it "
                                "must be bhsd or bshd",
                                to_string(options.layout)));
    }
    const SafetensorsFile file = verification::read_safetensors(options.in);
    require_writable(options);
    const AttentionProblem problem = problem_of(file, options);

    const std::unique_ptr<Session> session = open_session(options.device);
    Runtime& runtime = session->runtime();
    // Before anything is allocated: the plan refuses what no kernel takes.
    const NamedConfig kernel = parse_kernel(options.kernel);
    const auto plan =
        kernel.is_default() ? runtime.backward(problem) : runtime.backward(problem, kernel.config);
    SupportKernels kernels(*session);
    ProblemData data(kernels, problem, options.layout);
    data.upload(Operand::q, file.tensors.at("q").data);
    data.upload(Operand::k, file.tensors.at("k").data);
    data.upload(Operand::v, file.tensors.at("v").data);
    data.upload(Operand::d_o, file.tensors.at("do").data);
    provide_forward(file, options, data);
    provide_gradients(file, options, data);
    data.run(*plan);
    session->synchronise();

    SafetensorsFile gradients;
    const auto keep = [&](const char* name, Operand operand, const SafeTensor& like) {
        gradients.tensors[name] = {
            .dtype = problem.gradient_type == GradientType::fp32 ? "F32" : like.dtype,
            .shape = like.shape,
            .data = data.download(operand)};
    };
    keep("dq", Operand::d_q, file.tensors.at("q"));
    keep("dk", Operand::d_k, file.tensors.at("k"));
    keep("dv", Operand::d_v, file.tensors.at("v"));
    verification::write_safetensors(options.out, gradients);
    fmt::print("{}: dq, dk, dv of {} on {}\n", options.out, to_string(problem),
               runtime.device_name());
    return 0;
}

}  // namespace backlight::tool
