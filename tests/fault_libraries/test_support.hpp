#pragma once

// What the tests of the runtime share: errors as they must be, tensors at made-up addresses, a
// variable of the environment for the time of a test, a Runtime over the fake driver.

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "backlight/error.hpp"
#include "backlight/runtime.hpp"
#include "fake_driver.hpp"
#include "temporary_directory.hpp"

namespace backlight::test {

/// The call must throw an Error of that code whose message holds every fragment.
template <typename Call>
void check_refused(ErrorCode code, std::initializer_list<std::string_view> fragments, Call&& call) {
    try {
        call();
    } catch (const Error& error) {
        const std::string message = error.what();
        CHECK_MESSAGE(error.code() == code, std::string(to_string(error.code())), ": ", message);
        for (const std::string_view fragment : fragments) {
            CHECK_MESSAGE(message.find(fragment) != std::string::npos, "'", std::string(fragment),
                          "' is not in: ", message);
        }
        return;
    }
    FAIL_CHECK("accepted, expected ", std::string(to_string(code)));
}

/// Sets an environment variable, or unsets it where there is no value, for the life of the object.
class Environment {
  public:
    Environment(const char* name, const std::optional<std::string>& value) : name_(name) {
        if (const char* before = std::getenv(name); before != nullptr) {
            before_ = before;
        }
        set(value);
    }
    ~Environment() { set(before_); }
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;

  private:
    void set(const std::optional<std::string>& value) const {
        if (value) {
            setenv(name_, value->c_str(), 1);
        } else {
            unsetenv(name_);
        }
    }

    const char* name_;
    std::optional<std::string> before_;
};

/// The NVRTC of this machine; empty: where the library looks by itself.
inline std::string real_nvrtc_path() {
    const char* path = std::getenv("BACKLIGHT_NVRTC_PATH");
    return path != nullptr ? path : "";
}

/// The fake driver, with nothing recorded and nothing set.
inline fault::FakeDriver& fresh_driver() {
    static fault::FakeDriver driver(BACKLIGHT_FAKE_DRIVER_PATH);
    driver.fake_reset();
    return driver;
}

/// Cubins that tests of other matters than compiling need are compiled once a process.
inline RuntimeOptions fake_options() {
    static const TemporaryDirectory cubins;
    return {.driver_path = BACKLIGHT_FAKE_DRIVER_PATH,
            .nvrtc_path = real_nvrtc_path(),
            .cache_directory = cubins.path()};
}

enum class Layout { bhsd, bshd };

/// Every tensor at an address of its own, `tensor_spacing` bytes apart from `base` on, in the order
/// of BackwardTensors. Nothing is there: only the fake driver may be given these.
inline constexpr std::uintptr_t tensor_spacing = std::uintptr_t{1} << 24;

inline BackwardTensors tensors_at(const AttentionProblem& problem, std::uintptr_t base,
                                  Layout layout = Layout::bhsd) {
    const auto address = [&](std::uintptr_t index) {
        return reinterpret_cast<void*>(base + index * tensor_spacing);
    };
    const auto view = [&](std::uintptr_t index, std::int64_t seqlen) {
        const auto strides = layout == Layout::bhsd
                                 ? bhsd_strides(problem.heads, seqlen, problem.head_dim)
                                 : bshd_strides(problem.heads, seqlen, problem.head_dim);
        return TensorView{address(index), strides[0], strides[1], strides[2]};
    };
    return {.q = view(0, problem.seqlen_q),
            .k = view(1, problem.seqlen_kv),
            .v = view(2, problem.seqlen_kv),
            .o = view(3, problem.seqlen_q),
            .d_o = view(4, problem.seqlen_q),
            .lse = {static_cast<const float*>(address(5)), problem.heads * problem.seqlen_q,
                    problem.seqlen_q},
            .d_q = view(6, problem.seqlen_q),
            .d_k = view(7, problem.seqlen_kv),
            .d_v = view(8, problem.seqlen_kv)};
}

inline constexpr std::uintptr_t tensor_base = std::uintptr_t{1} << 40;
inline void* const workspace_address = reinterpret_cast<void*>(std::uintptr_t{1} << 44);

}  // namespace backlight::test
