#include "compiler/kernel_store.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "backlight/error.hpp"
#include "compiler/sources.hpp"
#include "compiler/specialisation.hpp"
#include "logging.hpp"

namespace backlight::compiler {

namespace {

// What the cache keeps beside a cubin.
constexpr const char* registers_field = "registers";
constexpr const char* stack_field = "stack_bytes";
constexpr const char* spill_store_field = "spill_store_bytes";
constexpr const char* spill_load_field = "spill_load_bytes";
constexpr const char* static_shared_field = "static_shared_bytes";
constexpr const char* compile_field = "compile_milliseconds";

cache::Entry to_entry(const CompiledKernel& kernel) {
    const nlohmann::json metadata = {
        {registers_field, kernel.resources.registers},
        {stack_field, kernel.resources.stack_bytes},
        {spill_store_field, kernel.resources.spill_store_bytes},
        {spill_load_field, kernel.resources.spill_load_bytes},
        {static_shared_field, kernel.resources.static_shared_bytes},
        {compile_field, kernel.compile_milliseconds},
    };
    return {.metadata = metadata.dump(), .payload = kernel.cubin};
}

/// Null where the metadata are not ours: the entry is a miss then.
std::shared_ptr<const CompiledKernel> from_entry(cache::Entry entry) {
    const nlohmann::json metadata = nlohmann::json::parse(entry.metadata, nullptr, false);
    if (!metadata.is_object()) {
        return nullptr;
    }
    auto kernel = std::make_shared<CompiledKernel>();
    kernel->cubin = std::move(entry.payload);
    kernel->resources = {.registers = metadata.value(registers_field, 0),
                         .stack_bytes = metadata.value(stack_field, 0),
                         .spill_store_bytes = metadata.value(spill_store_field, 0),
                         .spill_load_bytes = metadata.value(spill_load_field, 0),
                         .static_shared_bytes = metadata.value(static_shared_field, 0)};
    kernel->compile_milliseconds = metadata.value(compile_field, 0.0);
    return kernel;
}

/// The kernel source with every header it needs, and the specialisation.
struct Program {
    explicit Program(const KernelRequest& request) : headers(source_closure(request.source)) {
        source = headers.front().text;
        headers.erase(headers.begin());
        headers.push_back({specialisation_header, request.specialisation});
    }

    std::string_view source;
    std::vector<Header> headers;
};

}  // namespace

KernelStore::KernelStore(KernelStoreOptions options) : options_(std::move(options)) {
    if (!options_.cache_directory.empty()) {
        disk_.emplace(options_.cache_directory,
                      [](std::string_view text) { logger().warn("{}", text); });
    }
}

const Nvrtc& KernelStore::nvrtc() {
    const std::lock_guard lock(nvrtc_mutex_);
    if (nvrtc_ == nullptr) {
        nvrtc_ = std::make_unique<const Nvrtc>(options_.nvrtc_path);
        logger().info("NVRTC {} from {}", nvrtc_->version(), nvrtc_->path());
    }
    return *nvrtc_;
}

std::vector<std::string> KernelStore::options_for(const device::Target& target) {
    return {
        "--gpu-architecture=" + target.name,
        "--std=c++17",
        // The log of ptxas tells registers and spills.
        "--ptxas-options=-v",
    };
}

cache::Key KernelStore::key_of(const KernelRequest& request) {
    cache::Key key;
    key.add("source", request.source)
        .add("entry", request.entry)
        .add("source digest", source_digest(request.source))
        .add("nvrtc", nvrtc().version())
        .add("target", request.target.name)
        .add("options", fmt::format("{}", fmt::join(options_for(request.target), "\n")))
        .add("specialisation", request.specialisation);
    return key;
}

KernelLookup KernelStore::get(const KernelRequest& request) {
    const cache::Key key = key_of(request);
    std::promise<std::shared_ptr<const CompiledKernel>> promise;
    {
        std::unique_lock lock(kernels_mutex_);
        if (const auto found = kernels_.find(key.text()); found != kernels_.end()) {
            const Result result = found->second;
            lock.unlock();
            const auto kernel = result.get();
            ++memory_hits_;
            return {kernel, true};
        }
        kernels_.emplace(key.text(), promise.get_future().share());
    }
    try {
        bool from_disk = false;
        auto kernel = load_or_compile(request, key, from_disk);
        promise.set_value(kernel);
        return {std::move(kernel), from_disk};
    } catch (...) {
        // Those who wait get the reason; those who ask later try again.
        promise.set_exception(std::current_exception());
        const std::lock_guard lock(kernels_mutex_);
        kernels_.erase(key.text());
        throw;
    }
}

std::shared_ptr<const CompiledKernel> KernelStore::load_or_compile(const KernelRequest& request,
                                                                   const cache::Key& key,
                                                                   bool& from_disk) {
    if (disk_) {
        if (auto entry = disk_->load(key)) {
            if (auto kernel = from_entry(std::move(*entry))) {
                ++disk_hits_;
                from_disk = true;
                return kernel;
            }
        }
    }
    nvrtc().require_target(request.target);
    const Program program(request);
    std::vector<std::string> options = options_for(request.target);
    // NVRTC keeps compilations of its own on disk since 12.9, and leaves ptxas's log out when it
    // finds one. No part of the key: it changes where the cubin comes from, not what it is.
    if (nvrtc().major() > 12 || nvrtc().minor() >= 9) {
        options.emplace_back("--no-cache");
    }
    CompileResult result = nvrtc().compile({.name = request.source,
                                            .source = program.source,
                                            .headers = program.headers,
                                            .options = options});
    ++compiles_;
    auto kernel = std::make_shared<CompiledKernel>();
    kernel->resources = parse_resource_usage(result.log);
    kernel->cubin = std::move(result.cubin);
    kernel->compile_milliseconds = result.milliseconds;
    logger().info("compiled {} for {} in {:.0f} ms: {} registers, {} bytes spilled", request.entry,
                  request.target.name, kernel->compile_milliseconds, kernel->resources.registers,
                  kernel->resources.spill_store_bytes);
    if (disk_) {
        disk_->store(key, to_entry(*kernel));
    }
    return kernel;
}

std::string KernelStore::ptx(const KernelRequest& request) {
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
