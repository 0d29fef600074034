#include "compiler/kernel_store.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <utility>

#include "backlight/error.hpp"
#include "compiler/cached_kernel.hpp"
#include "compiler/nearest_entry.hpp"
#include "compiler/version_order.hpp"
#include "logging.hpp"

namespace backlight::compiler {

namespace {

constexpr const char* compiler_field = "compiler";

/// With the compiler's version, or without that field.
cache::Key make_key(const KernelRequest& request, const Backend& backend,
                    const std::string* compiler_version) {
    cache::Key key;
    key.add("source", request.source)
        .add("entry", request.entry)
        .add("source digest", backend.source_digest(request));
    if (compiler_version != nullptr) {
        key.add(compiler_field, *compiler_version);
    }
    key.add("target", request.target.name)
        .add("options", fmt::format("{}", fmt::join(backend.options(request.target), "\n")))
        .add("specialisation", request.specialisation);
    return key;
}

/// What a request is called in memory: a store has one compiler.
std::string name_of(const KernelRequest& request, const Backend& backend) {
    return make_key(request, backend, nullptr).text();
}

cache::LayeredCacheOptions cache_options(const KernelStoreOptions& options) {
    cache::LayeredCacheOptions result;
    for (std::size_t i = 0; i < options.cache_layers.size(); ++i) {
        const CacheLayer& layer = options.cache_layers[i];
        if (layer.path.empty() == layer.pack.empty()) {
            // The name may be empty.
            throw Error(
                ErrorCode::invalid_argument,
                fmt::format("cache_layers[{}] has the name '{}', the path '{}' and a pack of {} "
                            "bytes: it must have one of path and pack",
                            i, layer.name, layer.path.string(), layer.pack.size()));
        }
        cache::ReadOnlyLayer read_only{.path = layer.path, .pack = layer.pack};
        if (!layer.name.empty()) {
            read_only.name = layer.name;
        }
        result.read_only.push_back(std::move(read_only));
    }
    result.writable.directory = options.cache_directory;
    result.writable.byte_limit = options.cache_byte_limit;
    return result;
}

int thread_count(int wanted) {
    if (wanted < 0) {
        throw Error(
            ErrorCode::invalid_argument,
            fmt::format("compile_threads is {}: it must be 0, for one a core, or more", wanted));
    }
    return wanted > 0 ? wanted : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// Beside the directory, whose files are all the cache's own.
std::filesystem::path memo_file(std::filesystem::path cache_directory) {
    if (cache_directory.empty()) {
        return {};
    }
    return cache_directory += ".nvrtc.json";
}

void warn(std::string_view text) {
    logger().warn("{}", text);
}

/// One of a limited number of compiles, from when it is free.
class Slot {
  public:
    explicit Slot(std::counting_semaphore<>& slots) : slots_(slots) { slots_.acquire(); }
    ~Slot() { slots_.release(); }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;

  private:
    std::counting_semaphore<>& slots_;
};

}  // namespace

KernelStore::KernelStore(KernelStoreOptions options)
    : nvrtc_(std::make_shared<NvrtcBackend>(std::move(options.nvrtc_path),
                                            NvrtcMemo(memo_file(options.cache_directory)))),
      backend_(options.backend != nullptr ? std::move(options.backend) : nvrtc_),
      policy_(options.compile_policy),
      lock_timeout_(options.lock_timeout),
      cache_(cache_options(options), warn),
      slots_(thread_count(options.compile_threads)),
      tasks_(thread_count(options.compile_threads)) {
    for (const cache::LayerState& state : cache_.states()) {
        const std::size_t layer = layer_names_.size();
        const bool named =
            layer < options.cache_layers.size() && !options.cache_layers[layer].name.empty();
        layer_names_.push_back(named ? options.cache_layers[layer].name : state.location.string());
    }
    versions_.resize(layer_names_.size());
}

cache::Key KernelStore::key_of(const KernelRequest& request) const {
    return key_of(request, backend_->version());
}

cache::Key KernelStore::key_of(const KernelRequest& request,
                               const std::string& compiler_version) const {
    return make_key(request, *backend_, &compiler_version);
}

// --- In memory ----------------------------------------------------------------------------------

KernelStore::Result KernelStore::in_memory(const std::string& name) const {
    const std::shared_lock lock(kernels_mutex_);
    const auto found = kernels_.find(name);
    return found != kernels_.end() ? found->second : nullptr;
}

KernelStore::Result KernelStore::in_memory(const KernelRequest& request) const {
    return in_memory(name_of(request, *backend_));
}

void KernelStore::keep(const std::string& name, Result kernel) {
    const std::unique_lock lock(kernels_mutex_);
    kernels_.insert_or_assign(name, std::move(kernel));
}

KernelLookup KernelStore::get(const KernelRequest& request) {
    return get(request, name_of(request, *backend_));
}

KernelLookup KernelStore::get(const KernelRequest& request, const std::string& name) {
    if (Result kernel = in_memory(name)) {
        ++memory_hits_;
        return {std::move(kernel), true};
    }
    bool was_in_memory = false;
    const auto outcome = flights_.run(name, [&] {
        // A flight may have ended between the look above and this one.
        Result kernel = in_memory(name);
        was_in_memory = kernel != nullptr;
        if (!was_in_memory) {
            kernel = obtain(request);
            keep(name, kernel);
        }
        return kernel;
    });
    const bool shared = !outcome.made || was_in_memory;
    if (shared) {
        ++memory_hits_;
    }
    return {outcome.result, shared || outcome.result->origin.has_value()};
}

std::vector<KernelLookup> KernelStore::get_all(std::span<const KernelRequest> requests) {
    std::vector<KernelLookup> lookups(requests.size());
    std::vector<std::exception_ptr> failures(requests.size());
    std::vector<std::string> names;
    std::vector<std::size_t> missing;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        names.push_back(name_of(requests[i], *backend_));
        if (in_memory(names[i]) == nullptr) {
            missing.push_back(i);
        } else {
            lookups[i] = get(requests[i], names[i]);
        }
    }
    tasks_.run_all(missing.size(), [&](std::size_t index) {
        const std::size_t i = missing[index];
        try {
            lookups[i] = get(requests[i], names[i]);
        } catch (...) {
            failures[i] = std::current_exception();
        }
    });
    for (const std::exception_ptr& failure : failures) {
        if (failure != nullptr) {
            std::rethrow_exception(failure);
        }
    }
    return lookups;
}

// --- In the cache -------------------------------------------------------------------------------

std::vector<std::string> KernelStore::versions_in(std::size_t layer, bool look_again) const {
    const std::lock_guard lock(versions_mutex_);
    std::optional<std::vector<std::string>>& known = versions_[layer];
    if (!known || look_again) {
        known.emplace();
        for (const cache::StoredEntry& entry :
             cache_.layer(layer).list(cache::Check::heads).entries) {
            for (cache::KeyField& field : entry.key.fields()) {
                if (field.name == compiler_field) {
                    known->push_back(std::move(field.value));
                }
            }
        }
        std::ranges::sort(*known, is_newer);
        known->erase(std::ranges::unique(*known).begin(), known->end());
    }
    return *known;
}

std::optional<cache::Key> KernelStore::any_version(const KernelRequest& request) const {
    // Another process may have stored what the first look at a layer did not see.
    for (const bool look_again : {false, true}) {
        for (std::size_t layer = 0; layer < cache_.layer_count(); ++layer) {
            for (const std::string& version : versions_in(layer, look_again)) {
                cache::Key key = key_of(request, version);
                if (cache_.locate(key)) {
                    return key;
                }
            }
        }
    }
    return std::nullopt;
}

KernelStore::Wanted KernelStore::wanted(const KernelRequest& request) const {
    std::exception_ptr no_compiler;
    if (policy_ != CompilePolicy::forbid) {
        if (const auto likely = backend_->likely_version()) {
            cache::Key key = key_of(request, *likely);
            if (cache_.locate(key)) {
                return {std::move(key)};
            }
        }
        try {
            return {key_of(request)};
        } catch (const Error& error) {
            logger().debug("there is no compiler: {}", error.what());
            no_compiler = std::current_exception();
        }
    }
    if (std::optional<cache::Key> found = any_version(request)) {
        return {std::move(*found), no_compiler};
    }
    // None has it: the version that the layers know best makes the best comparison.
    for (std::size_t layer = 0; layer < cache_.layer_count(); ++layer) {
        if (const auto versions = versions_in(layer, false); !versions.empty()) {
            return {key_of(request, versions.front()), no_compiler};
        }
    }
    return {key_of(request, ""), no_compiler};
}

bool KernelStore::has(const KernelRequest& request) const {
    return in_memory(request) != nullptr || cache_.locate(wanted(request).key).has_value();
}

KernelStore::Result KernelStore::usable(std::optional<cache::LayerHit> hit, const cache::Key& key,
                                        const KernelRequest& request) {
    if (!hit) {
        return nullptr;
    }
    // One that does not hold what this library writes is a miss, and replaced.
    std::optional<CompiledKernel> kernel = from_entry(std::move(hit->entry), request.entry);
    if (!kernel) {
        return nullptr;
    }
    kernel->origin = {hit->layer, key.text()};
    return std::make_shared<const CompiledKernel>(std::move(*kernel));
}

KernelStore::Result KernelStore::obtain(const KernelRequest& request) {
    const Wanted wanted = this->wanted(request);
    if (Result kernel = usable(cache_.load(wanted.key), wanted.key, request)) {
        return kernel;
    }
    require_compiler(request, wanted);
    return compile_once(request, key_of(request));
}

KernelLookup KernelStore::replace(const KernelRequest& request, const Result& refused) {
    const std::string name = name_of(request, *backend_);
    // Not the flight of `get`, whose result may be the very kernel that was refused.
    const auto outcome = flights_.run("replace " + name, [&] {
        if (Result kernel = in_memory(name); kernel != nullptr && kernel != refused) {
            return kernel;
        }
        Result kernel;
        if (refused->origin) {
            const std::size_t layer = refused->origin->layer;
            if (const auto key = cache::Key::from_text(refused->origin->key)) {
                cache_.reject(*key, layer);
                // Where it could not be removed, it is found again, and must not be taken.
                if (auto hit = cache_.load(*key); hit && hit->layer > layer) {
                    kernel = usable(std::move(hit), *key, request);
                }
            }
        }
        if (kernel == nullptr) {
            const Wanted wanted = this->wanted(request);
            require_compiler(request, wanted);
            const Slot slot(slots_);
            kernel = compile(request, key_of(request));
        }
        keep(name, kernel);
        return kernel;
    });
    return {outcome.result, !outcome.made || outcome.result->origin.has_value()};
}

// --- Compiled -----------------------------------------------------------------------------------

void KernelStore::require_compiler(const KernelRequest& request, const Wanted& wanted) const {
    if (policy_ == CompilePolicy::forbid) {
        throw Error(
            ErrorCode::compile_forbidden,
            fmt::format("{} for {} is in no layer of the cache, and the compile policy "
                        "forbids to compile it. Layers looked in: {}. {}",
                        request.entry, request.target.name, describe_layers(cache_, layer_names_),
                        describe_nearest(cache_, wanted.key, layer_names_)));
    }
    if (wanted.no_compiler != nullptr) {
        std::rethrow_exception(wanted.no_compiler);
    }
}

KernelStore::Result KernelStore::compile_once(const KernelRequest& request, const cache::Key& key) {
    std::optional<Slot> slot(std::in_place, slots_);
    if (cache_.writable() == nullptr) {
        return compile(request, key);
    }
    cache::KeyLock lock = cache_.try_lock(key);
    if (lock.state() == cache::KeyLock::State::timed_out) {
        // Another process compiles it; meanwhile this one may compile something else.
        slot.reset();
        lock = cache_.lock(key, lock_timeout_);
        slot.emplace(slots_);
    }
    if (Result kernel = usable(cache_.load_again(key), key, request)) {
        return kernel;
    }
    return compile(request, key);
}

KernelStore::Result KernelStore::compile(const KernelRequest& request, const cache::Key& key) {
    if (policy_ == CompilePolicy::warn) {
        logger().warn("{} for {} is in no layer of the cache and is compiled. {}", request.entry,
                      request.target.name, describe_nearest(cache_, key, layer_names_));
    }
    const auto kernel = std::make_shared<const CompiledKernel>(backend_->compile(request));
    ++compiles_;
    compile_milliseconds_ += kernel->compile_milliseconds;
    logger().info("compiled {} for {} in {:.0f} ms: {} registers, {} bytes spilled", request.entry,
                  request.target.name, kernel->compile_milliseconds, kernel->resources.registers,
                  kernel->resources.spill_store_bytes);
    for (const std::string& warning : kernel->resources.performance_warnings) {
        logger().warn("{} for {} will be slower than it need be: {}", request.entry,
                      request.target.name, warning);
    }
    cache_.store(key, to_entry(*kernel, request.entry), provenance_of(*kernel));
    return kernel;
}

RuntimeCounters KernelStore::counters() const {
    const cache::LayeredCacheCounters counted = cache_.counters();
    RuntimeCounters counters{.memory_hits = memory_hits_,
                             .misses = counted.misses,
                             .compiles = compiles_,
                             .compile_milliseconds = compile_milliseconds_,
                             .stores = counted.writable.stores,
                             .failed_stores = counted.writable.failed_stores,
                             .evictions = counted.writable.evictions,
                             .repairs = counted.writable.repairs};
    for (std::size_t layer = 0; layer < layer_names_.size(); ++layer) {
        counters.hits_by_layer.push_back({layer_names_[layer], counted.hits_by_layer[layer]});
    }
    return counters;
}

}  // namespace backlight::compiler
