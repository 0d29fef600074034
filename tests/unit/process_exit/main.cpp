// Processes that end with a Runtime, plans and work of `prepare_async` alive. The test starts one
// for each way of leaving them behind.

#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backlight/error.hpp"
#include "backlight/runtime.hpp"
#include "fake_driver.hpp"

using namespace backlight;

namespace {

using Plan = std::shared_ptr<const BackwardPlan>;

/// Constructed before the driver and NVRTC are opened, and so destroyed after they have ended.
std::optional<Runtime> global_runtime;
std::vector<Plan> global_plans;
std::shared_future<Plan> global_future;

const AttentionProblem problem{
    .batch = 2, .heads = 4, .seqlen_q = 512, .seqlen_kv = 512, .head_dim = 64, .causal = true};

RuntimeOptions options() {
    const char* nvrtc = std::getenv("BACKLIGHT_NVRTC_PATH");
    return {.driver_path = BACKLIGHT_FAKE_DRIVER_PATH,
            .nvrtc_path = nvrtc != nullptr ? nvrtc : "",
            .disable_disk_cache = true};
}

/// Returns when a thread of the Runtime's is about to compile: NVRTC takes a tenth of a second and
/// more.
std::shared_future<Plan> compile_in_background(Runtime& runtime) {
    const std::uint64_t misses = runtime.counters().misses;
    auto future = runtime.prepare_async(problem, kernel_preset("v2"));
    while (runtime.counters().misses == misses) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return future;
}

void leave_global() {
    global_runtime.emplace(options());
    global_plans.push_back(global_runtime->backward(problem, kernel_preset("v3")));
    global_future = compile_in_background(*global_runtime);
}

void leave_global_that_has_compiled_nothing() {
    global_runtime.emplace(options());
    global_future = compile_in_background(*global_runtime);
}

void leave_static() {
    static Runtime runtime(options());
    static const Plan plan = runtime.backward(problem, kernel_preset("v3"));
    static const auto future = compile_in_background(runtime);
}

void leave_leaked() {
    auto* runtime = new Runtime(options());
    new Plan(runtime->backward(problem, kernel_preset("v3")));
    new std::shared_future<Plan>(compile_in_background(*runtime));
}

void leave_leaked_after_a_while() {
    leave_leaked();
    // Somewhere within the compilation.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

void leave_plan_alone() {
    Runtime runtime(options());
    global_plans.push_back(runtime.backward(problem, kernel_preset("v3")));
}

/// A Runtime that is made when all else has ended; what it is asked for is refused.
struct AtTheEnd {
    ~AtTheEnd() {
        if (wanted) {
            try {
                Runtime(options()).backward(problem, kernel_preset("v2"));
            } catch (const Error&) {
                return;
            }
        }
    }
    bool wanted = false;
} at_the_end;

void leave_one_to_be_made() {
    Runtime(options()).backward(problem, kernel_preset("v3"));
    at_the_end.wanted = true;
}

}  // namespace

int main(int count, char** arguments) {
    const std::map<std::string, std::function<void()>> scenarios = {
        {"global", leave_global},
        {"global_cold", leave_global_that_has_compiled_nothing},
        {"static", leave_static},
        {"leaked", leave_leaked},
        {"leaked_later", leave_leaked_after_a_while},
        {"plan", leave_plan_alone},
        {"made_at_exit", leave_one_to_be_made}};
    try {
        fault::FakeDriver(BACKLIGHT_FAKE_DRIVER_PATH).fake_set_current_context(true);
        scenarios.at(count > 1 ? arguments[1] : "")();
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    return 0;
}
