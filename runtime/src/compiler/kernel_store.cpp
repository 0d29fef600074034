#include "compiler/kernel_store.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "backlight/error.hpp"
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

/// A count out of an entry's metadata; nothing unless it is a whole number that a kernel may have.
std::optional<int> count_in(const nlohmann::json& metadata, const char* field, int largest) {
    const auto found = metadata.find(field);
    if (found == metadata.end() || !found->is_number_integer()) {
        return std::nullopt;
    }
    const auto value = found->get<std::int64_t>();
    return value >= 0 && value <= largest ? std::optional<int>(static_cast<int>(value))
                                          : std::nullopt;
}

/// Null where the entry does not hold what `to_entry` writes: it is a miss then, and replaced.
std::shared_ptr<const CompiledKernel> from_entry(cache::Entry entry) {
    constexpr int most_registers = 255;
    constexpr int most_bytes = 1 << 30;
    const nlohmann::json metadata = nlohmann::json::parse(entry.metadata, nullptr, false);
    if (!metadata.is_object() || entry.payload.empty()) {
        return nullptr;
    }
    const auto registers = count_in(metadata, registers_field, most_registers);
    const auto stack = count_in(metadata, stack_field, most_bytes);
    const auto spill_store = count_in(metadata, spill_store_field, most_bytes);
    const auto spill_load = count_in(metadata, spill_load_field, most_bytes);
    const auto static_shared = count_in(metadata, static_shared_field, most_bytes);
    const auto compile = metadata.find(compile_field);
    if (!registers || !stack || !spill_store || !spill_load || !static_shared ||
        compile == metadata.end() || !compile->is_number()) {
        return nullptr;
    }
    auto kernel = std::make_shared<CompiledKernel>();
    kernel->cubin = std::move(entry.payload);
    kernel->resources = {.registers = *registers,
                         .stack_bytes = *stack,
                         .spill_store_bytes = *spill_store,
                         .spill_load_bytes = *spill_load,
                         .static_shared_bytes = *static_shared};
    kernel->compile_milliseconds = compile->get<double>();
    kernel->from_disk = true;
    return kernel;
}

}  // namespace

KernelStore::KernelStore(KernelStoreOptions options)
    : nvrtc_(std::make_shared<NvrtcBackend>(std::move(options.nvrtc_path))),
      backend_(options.backend != nullptr ? std::move(options.backend) : nvrtc_) {
    if (!options.cache_directory.empty()) {
        disk_.emplace(std::move(options.cache_directory),
                      [](std::string_view text) { logger().warn("{}", text); });
    }
}

cache::Key KernelStore::key_of(const KernelRequest& request) {
    cache::Key key;
    key.add("source", request.source)
        .add("entry", request.entry)
        .add("source digest", backend_->source_digest(request))
        .add("compiler", backend_->version())
        .add("target", request.target.name)
        .add("options", fmt::format("{}", fmt::join(backend_->options(request.target), "\n")))
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
            const auto& kernel = result.get();
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
    return compile(request, key);
}

KernelLookup KernelStore::recompile(const KernelRequest& request) {
    const cache::Key key = key_of(request);
    auto kernel = compile(request, key);
    std::promise<std::shared_ptr<const CompiledKernel>> ready;
    ready.set_value(kernel);
    const std::lock_guard lock(kernels_mutex_);
    kernels_.insert_or_assign(key.text(), ready.get_future().share());
    return {std::move(kernel), false};
}

std::shared_ptr<const CompiledKernel> KernelStore::compile(const KernelRequest& request,
                                                           const cache::Key& key) {
    auto kernel = std::make_shared<CompiledKernel>(backend_->compile(request));
    ++compiles_;
    logger().info("compiled {} for {} in {:.0f} ms: {} registers, {} bytes spilled", request.entry,
                  request.target.name, kernel->compile_milliseconds, kernel->resources.registers,
                  kernel->resources.spill_store_bytes);
    if (disk_) {
        disk_->store(key, to_entry(*kernel));
    }
    return kernel;
}

}  // namespace backlight::compiler
