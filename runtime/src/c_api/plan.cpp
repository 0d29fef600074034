#include <fmt/format.h>

#include "attention/validation.hpp"
#include "c_api/guard.hpp"
#include "c_api/handles.hpp"
#include "c_api/structs.hpp"

using namespace backlight;
using namespace backlight::c_api;

namespace {

/// Figures of what no plan would be made for would be nonsense.
AttentionProblem valid_problem_of(const backlight_problem* given) {
    const AttentionProblem problem = problem_of(given);
    attention::validate(problem);
    return problem;
}

}  // namespace

extern "C" {

const char* backlight_kernel_preset_name(size_t index) {
    const auto presets = kernel_presets();
    return index < presets.size() ? presets[index].name.data() : nullptr;
}

backlight_status backlight_kernel_preset(const char* name, backlight_tile_config* config) {
    return guarded([&] {
        required(name, "name");
        fill(config, "config", config_in_c(kernel_preset(name)));
    });
}

backlight_status backlight_backward_flops(const backlight_problem* problem, double* flops) {
    return guarded([&] { required(flops, "flops") = backward_flops(valid_problem_of(problem)); });
}

backlight_status backlight_backward_bytes(const backlight_problem* problem, double* bytes) {
    return guarded([&] { required(bytes, "bytes") = backward_bytes(valid_problem_of(problem)); });
}

void backlight_plan_destroy(backlight_plan* plan) {
    delete plan;
}

backlight_status backlight_plan_problem(const backlight_plan* plan, backlight_problem* problem) {
    return guarded(
        [&] { fill(problem, "problem", problem_in_c(required(plan, "plan").plan->problem())); });
}

backlight_status backlight_plan_config(const backlight_plan* plan, backlight_tile_config* config) {
    return guarded(
        [&] { fill(config, "config", config_in_c(required(plan, "plan").plan->config())); });
}

backlight_status backlight_plan_workspace_bytes(const backlight_plan* plan,
                                                size_t* workspace_bytes) {
    return guarded([&] {
        required(workspace_bytes, "workspace_bytes") =
            required(plan, "plan").plan->workspace_bytes();
    });
}

backlight_status backlight_plan_kernel_count(const backlight_plan* plan, size_t* count) {
    return guarded(
        [&] { required(count, "count") = required(plan, "plan").plan->resources().size(); });
}

backlight_status backlight_plan_kernel_resources(const backlight_plan* plan, size_t kernel,
                                                 backlight_kernel_resources* resources) {
    return guarded([&] {
        const auto& all = required(plan, "plan").plan->resources();
        if (kernel >= all.size()) {
            refuse(fmt::format("kernel is {}: it must be below the number of kernels, {}", kernel,
                               all.size()));
        }
        const KernelResources& one = all[kernel];
        fill(resources, "resources",
             {.kernel = one.kernel.c_str(),
              .target = one.target.c_str(),
              .registers = one.registers,
              .stack_bytes = one.stack_bytes,
              .spill_store_bytes = one.spill_store_bytes,
              .spill_load_bytes = one.spill_load_bytes,
              .threads = one.threads,
              .blocks_per_multiprocessor = one.blocks_per_multiprocessor,
              .shared_bytes = one.shared_bytes,
              .compile_milliseconds = one.compile_milliseconds,
              .cached = one.cached ? 1 : 0,
              .performance_warnings = static_cast<int32_t>(one.performance_warnings.size())});
    });
}

backlight_status backlight_plan_run(const backlight_plan* plan, const backlight_tensors* tensors,
                                    void* workspace, size_t workspace_bytes,
                                    backlight_stream stream) {
    return guarded([&] {
        required(plan, "plan").plan->run(tensors_of(tensors), workspace, workspace_bytes, stream);
    });
}

}  // extern "C"
