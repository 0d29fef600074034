#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "compiler/resource_usage.hpp"
#include "device/target.hpp"

namespace backlight::compiler {

/// A kernel to be had: a source with its specialisation.
struct KernelRequest {
    /// The embedded file, for example "attention_backward_mma.cu"; where `text` is given, what the
    /// source is called.
    std::string source;
    /// The extern "C" function in it.
    std::string entry;
    /// The text of "specialisation.cuh".
    std::string specialisation;
    device::Target target;
    /// The text of the source itself where it is no embedded file; what it includes is embedded.
    std::string text = {};
};

struct CompiledKernel {
    std::vector<std::byte> cubin;
    ResourceUsage resources;
    /// Zero for one out of the cache.
    double compile_milliseconds = 0;
    /// Where one out of the cache came from: the layer, and the key's text.
    struct Origin {
        std::size_t layer = 0;
        std::string key = {};
    };
    std::optional<Origin> origin = {};
};

/// What makes a kernel of a request: NVRTC for a GPU, another compiler for another device. Safe to
/// use from many threads.
class Backend {
  public:
    virtual ~Backend() = default;

    /// Name, version and build: part of what a cached kernel is found by.
    virtual std::string version() = 0;
    /// What `version` gave last time, where it is told without the cost of opening the compiler and
    /// is most likely to be right: good enough to look for a kernel, not to store one.
    virtual std::optional<std::string> likely_version() { return std::nullopt; }
    /// The options that decide what is compiled, as they are passed; part of the key too.
    virtual std::vector<std::string> options(const device::Target& target) const = 0;
    /// A digest of every text that a request is compiled from, but for the specialisation.
    virtual std::string source_digest(const KernelRequest& request) const = 0;
    /// Throws `compile_failed` with the compiler's version, options and whole log.
    virtual CompiledKernel compile(const KernelRequest& request) = 0;
};

}  // namespace backlight::compiler
