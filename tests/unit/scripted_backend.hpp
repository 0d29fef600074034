#pragma once

// What tests of the kernel store share: a compiler that costs nothing and counts, and an ear at the
// library's log.

#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "compiler/backend.hpp"
#include "logging.hpp"

namespace backlight::test {

/// "Compiles" a request to bytes that are a function of it and of the compiler's version.
class ScriptedBackend : public compiler::Backend {
  public:
    explicit ScriptedBackend(std::string version = "1.0", std::chrono::milliseconds pause = {})
        : version_(std::move(version)), pause_(pause) {}

    std::string version() override { return version_; }
    std::vector<std::string> options(const device::Target& target) const override {
        return {"--for=" + target.name};
    }
    std::string source_digest(const compiler::KernelRequest& request) const override {
        return "digest of " + request.source;
    }
    compiler::CompiledKernel compile(const compiler::KernelRequest& request) override {
        ++compiles;
        if (before_compile) {
            before_compile();
        }
        const int at_once = ++running_;
        int most = most_at_once;
        while (at_once > most && !most_at_once.compare_exchange_weak(most, at_once)) {
        }
        std::this_thread::sleep_for(pause_);
        --running_;
        compiler::CompiledKernel kernel;
        kernel.cubin = bytes_of(version_ + request.target.name + request.specialisation);
        kernel.resources.registers = 40;
        kernel.compile_milliseconds = 2.5;
        return kernel;
    }

    static std::vector<std::byte> bytes_of(const std::string& text) {
        std::vector<std::byte> bytes(text.size());
        std::ranges::transform(text, bytes.begin(), [](char c) { return std::byte(c); });
        return bytes;
    }

    /// Called within each compile, which fails if it throws. Set before the first.
    std::function<void()> before_compile;
    std::atomic<int> compiles = 0;
    std::atomic<int> most_at_once = 0;

  private:
    std::string version_;
    std::chrono::milliseconds pause_;
    std::atomic<int> running_ = 0;
};

/// A request for the scripted compiler, which takes any.
inline compiler::KernelRequest scripted_request(const std::string& specialisation,
                                                std::string_view target = "sm_90a") {
    return {.source = "some_kernel.cu",
            .entry = "some_kernel",
            .specialisation = specialisation,
            .target = device::target_by_name(target)};
}

/// What the library logs while the object lives, in place of where it goes otherwise.
class CapturedLog {
  public:
    CapturedLog() : sink_(std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)) {
        sink_->set_pattern("%l: %v");
        logger().sinks().swap(others_);
        logger().sinks().push_back(sink_);
    }
    ~CapturedLog() { logger().sinks().swap(others_); }
    CapturedLog(const CapturedLog&) = delete;
    CapturedLog& operator=(const CapturedLog&) = delete;

    std::string text() const { return text_.str(); }
    /// How often a text was logged.
    int count(std::string_view part) const {
        const std::string all = text();
        int count = 0;
        for (std::size_t at = all.find(part); at != std::string::npos;
             at = all.find(part, at + 1)) {
            ++count;
        }
        return count;
    }

  private:
    std::ostringstream text_;
    std::shared_ptr<spdlog::sinks::ostream_sink_mt> sink_;
    std::vector<spdlog::sink_ptr> others_;
};

}  // namespace backlight::test
