#include "peers/bridge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.hpp"
#include "backlight/error.hpp"
#include "backlight/runtime.hpp"
#include "bench_report.hpp"
#include "environment.hpp"
#include "json_text.hpp"
#include "manifest.hpp"
#include "nvml.hpp"
#include "problem_features.hpp"
#include "session/device_choice.hpp"
#include "session/gpu.hpp"
#include "verification/packing.hpp"

namespace tool = backlight::tool;

namespace backlight::peers {

struct Session {
    std::unique_ptr<tool::Session> session;
    /// Null on the emulated device.
    tool::Gpu* gpu = nullptr;
    std::optional<tool::Nvml> nvml;
    std::string environment;
};

struct Plan {
    std::shared_ptr<const BackwardPlan> plan;
    std::string description;
};

}  // namespace backlight::peers

namespace {

using backlight::peers::Plan;
using backlight::peers::Session;
using backlight::peers::Tensor;
using backlight::peers::Tensors;

thread_local std::string last_error;
thread_local std::string last_description;

/// What `function` returns, or `failure` where it throws: no exception may cross into C.
template <typename Result, typename Function>
Result guarded(Result failure, Function function) noexcept {
    try {
        return function();
    } catch (const backlight::Error& error) {
        last_error = std::string(to_string(error.code())) + ": " + error.what();
    } catch (const std::exception& error) {
        last_error = error.what();
    }
    return failure;
}

tool::Gpu& gpu_of(Session& session) {
    if (session.gpu == nullptr) {
        throw backlight::Error(backlight::ErrorCode::unsupported,
                               "device is emulated: only a CUDA device has clocks and a driver");
    }
    return *session.gpu;
}

/// A problem as Python asks for it.
struct Asked {
    backlight::AttentionProblem problem;
    /// Of sequences that lie packed; empty where they do not.
    std::vector<backlight::SequenceShape> sequences;
};

/// As many queries as keys in each.
std::vector<backlight::SequenceShape> sequences_in(const nlohmann::json& value) {
    const auto is_length = [](const nlohmann::json& length) {
        return length.is_number_integer() && length >= 0;
    };
    if (!value.is_array() || value.empty() || !std::ranges::all_of(value, is_length)) {
        throw backlight::Error(
            backlight::ErrorCode::invalid_argument,
            fmt::format("problem: lengths is {}: it must be a list of whole numbers",
                        value.dump()));
    }
    std::vector<backlight::SequenceShape> sequences;
    for (const nlohmann::json& element : value) {
        const auto length = element.get<std::int64_t>();
        sequences.push_back({.seqlen_q = length, .seqlen_kv = length});
    }
    return sequences;
}

Asked asked_in(const char* text) {
    auto [value, wrong] = backlight::parse_json(text, backlight::RepeatedField::refused);
    if (!wrong.empty()) {
        throw backlight::Error(backlight::ErrorCode::invalid_argument,
                               fmt::format("problem is '{}': it {}", text, wrong));
    }
    Asked asked;
    if (value.is_object() && value.contains("lengths")) {
        asked.sequences = sequences_in(value["lengths"]);
        value.erase("lengths");
    }
    asked.problem = tool::parse_problem(value, "problem");
    if (!asked.sequences.empty()) {
        const auto by_length = [](const backlight::SequenceShape& shape) { return shape.seqlen_q; };
        asked.problem.batch = static_cast<std::int64_t>(asked.sequences.size());
        asked.problem.seqlen_q = asked.problem.seqlen_kv =
            std::ranges::max(asked.sequences, {}, by_length).seqlen_q;
        asked.problem = backlight::verification::packed_problem(
            asked.problem, backlight::verification::pack(asked.sequences));
    }
    return asked;
}

nlohmann::ordered_json description_of(const Asked& asked) {
    const tool::ProblemResult result{.problem = asked.problem, .sequences = asked.sequences};
    nlohmann::ordered_json description = {{"problem", tool::to_json(asked.problem)},
                                          {"text", tool::short_text(asked.problem)},
                                          {"attended_pairs", result.attended_pairs()},
                                          {"flops", result.flops()}};
    for (const backlight::SequenceShape& sequence : asked.sequences) {
        description["lengths"].push_back(sequence.seqlen_q);
    }
    return description;
}

std::shared_ptr<const backlight::BackwardPlan> plan_for(backlight::Runtime& runtime,
                                                        const backlight::AttentionProblem& problem,
                                                        std::string_view kernel) {
    constexpr std::string_view baked_suffix = ":baked";
    const bool baked = kernel.ends_with(baked_suffix);
    if (baked) {
        kernel.remove_suffix(baked_suffix.size());
    }
    const tool::NamedConfig named = tool::parse_kernel(kernel);
    std::optional<backlight::TileConfig> config;
    if (!named.is_default()) {
        config = named.config;
    } else if (baked) {
        config = runtime.backward(problem)->config();
    }
    if (!config) {
        return runtime.backward(problem);
    }
    if (baked) {
        config->sequence_lengths = backlight::SequenceLengths::compile_time;
    }
    return runtime.backward(problem, *config);
}

std::string description_of(const backlight::BackwardPlan& plan) {
    nlohmann::ordered_json description = {{"config", tool::to_json(plan.config())},
                                          {"workspace_bytes", plan.workspace_bytes()},
                                          {"resources", nlohmann::ordered_json::array()}};
    for (const backlight::KernelResources& resources : plan.resources()) {
        description["resources"].push_back(tool::to_json(resources));
    }
    return description.dump();
}

}  // namespace

extern "C" {

const char* backlight_peers_error() {
    return last_error.c_str();
}

Session* backlight_peers_open(const char* device) {
    return guarded<Session*>(nullptr, [&] {
        auto opened = std::make_unique<Session>();
        opened->session = tool::open_session(tool::parse_device(device));
        opened->gpu = dynamic_cast<tool::Gpu*>(opened->session.get());
        if (opened->gpu != nullptr) {
            opened->nvml.emplace(opened->gpu->cuda_device());
        }
        return opened.release();
    });
}

void backlight_peers_close(Session* session) {
    delete session;
}

const char* backlight_peers_environment(Session* session) {
    return guarded<const char*>(nullptr, [&] {
        tool::Gpu& gpu = gpu_of(*session);
        session->environment = to_json(tool::environment_of(gpu, *session->nvml)).dump();
        return session->environment.c_str();
    });
}

int backlight_peers_clocks(Session* session, double* sm_clock, double* power) {
    return guarded(1, [&] {
        gpu_of(*session);
        constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
        *sm_clock = session->nvml->sm_clock_mhz().value_or(unknown);
        *power = session->nvml->power_watts().value_or(unknown);
        return 0;
    });
}

const char* backlight_peers_describe_problem(const char* problem) {
    return guarded<const char*>(nullptr, [&] {
        last_description = description_of(asked_in(problem)).dump();
        return last_description.c_str();
    });
}

Plan* backlight_peers_make_plan(Session* session, const char* problem, const char* kernel) {
    return guarded<Plan*>(nullptr, [&] {
        auto made = std::make_unique<Plan>();
        made->plan = plan_for(session->session->runtime(), asked_in(problem).problem, kernel);
        made->description = description_of(*made->plan);
        return made.release();
    });
}

void backlight_peers_free_plan(Plan* plan) {
    delete plan;
}

std::size_t backlight_peers_workspace_bytes(const Plan* plan) {
    return plan->plan->workspace_bytes();
}

const char* backlight_peers_describe(const Plan* plan) {
    return plan->description.c_str();
}

int backlight_peers_run(const Plan* plan, const Tensors* tensors, void* workspace,
                        std::size_t workspace_bytes, backlight::Stream stream) {
    return guarded(1, [&] {
        const Tensors& t = *tensors;
        const auto output = [](const Tensor& tensor) {
            return backlight::TensorView{tensor.data, tensor.stride_batch, tensor.stride_head,
                                         tensor.stride_seqlen};
        };
        const auto input = [&](const Tensor& tensor) {
            return backlight::ConstTensorView(output(tensor));
        };
        plan->plan->run({.q = input(t.q),
                         .k = input(t.k),
                         .v = input(t.v),
                         .o = input(t.o),
                         .d_o = input(t.d_o),
                         .lse = {.data = t.lse,
                                 .stride_batch = t.lse_stride_batch,
                                 .stride_head = t.lse_stride_head},
                         .d_q = output(t.d_q),
                         .d_k = output(t.d_k),
                         .d_v = output(t.d_v),
                         .cu_seqlens_q = t.cu_seqlens,
                         .cu_seqlens_kv = t.cu_seqlens},
                        workspace, workspace_bytes, stream);
        return 0;
    });
}

}  // extern "C"
