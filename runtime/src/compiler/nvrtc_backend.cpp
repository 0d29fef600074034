#include "compiler/nvrtc_backend.hpp"

#include <string_view>
#include <utility>

#include "compiler/sources.hpp"
#include "compiler/specialisation.hpp"
#include "logging.hpp"

namespace backlight::compiler {

namespace {

/// The kernel source with every header it needs, and the specialisation.
struct Program {
    explicit Program(const KernelRequest& request)
        : headers(source_closure(request.source, request.text)) {
        source = headers.front().text;
        headers.erase(headers.begin());
        headers.push_back({specialisation_header, request.specialisation});
    }

    std::string_view source;
    std::vector<Header> headers;
};

}  // namespace

const Nvrtc& NvrtcBackend::nvrtc() {
    const std::lock_guard lock(mutex_);
    if (nvrtc_ == nullptr) {
        nvrtc_ = std::make_unique<const Nvrtc>(path_);
        logger().info("NVRTC {} from {}", nvrtc_->version(), nvrtc_->path());
        memo_.keep(path_, nvrtc_->path(), nvrtc_->version());
    }
    return *nvrtc_;
}

std::optional<std::string> NvrtcBackend::likely_version() {
    const std::lock_guard lock(mutex_);
    return nvrtc_ != nullptr ? nvrtc_->version() : memo_.recall(path_);
}

std::vector<std::string> NvrtcBackend::options_for(const device::Target& target) {
    return {
        "--gpu-architecture=" + target.name,
        "--std=c++17",
        // The log of ptxas tells registers and spills.
        "--ptxas-options=-v",
    };
}

std::string NvrtcBackend::source_digest(const KernelRequest& request) const {
    return compiler::source_digest(request.source, request.text);
}

CompiledKernel NvrtcBackend::compile(const KernelRequest& request) {
    const Nvrtc& compiler = nvrtc();
    compiler.require_target(request.target);
    const Program program(request);
    std::vector<std::string> options = options_for(request.target);
    // NVRTC keeps compilations of its own on disk since 12.9, and leaves ptxas's log out when it
    // finds one. No part of the key: it changes where the cubin comes from, not what it is.
    if (compiler.major() > 12 || compiler.minor() >= 9) {
        options.emplace_back("--no-cache");
    }
    CompileResult result = compiler.compile({.name = request.source,
                                             .source = program.source,
                                             .headers = program.headers,
                                             .options = options});
    return {.cubin = std::move(result.cubin),
            .resources = parse_resource_usage(result.log),
            .compile_milliseconds = result.milliseconds};
}

std::string NvrtcBackend::ptx(const KernelRequest& request) {
    const Program program(request);
    // PTX is made for the virtual architecture of the target.
    const std::vector<std::string> options = {
        "--gpu-architecture=compute_" + request.target.name.substr(3), "--std=c++17"};
    return nvrtc().compile_to_ptx({.name = request.source,
                                   .source = program.source,
                                   .headers = program.headers,
                                   .options = options});
}

}  // namespace backlight::compiler
