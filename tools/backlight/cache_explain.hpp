#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "backlight/cache/layered_cache.hpp"
#include "cache_location.hpp"
#include "kernel_selection.hpp"

namespace backlight::tool {

/// Whether the cache would serve a kernel, and what stands in the way.
struct Explanation {
    SelectedKernel kernel;
    /// Where it would hit.
    std::optional<std::size_t> layer;
    /// Where it would not: the entry that comes nearest, if the cache holds any.
    std::optional<cache::NearEntry> nearest;
};

/// Of each kernel once. Where NVRTC cannot be opened or the policy forbids to compile, an entry of
/// any version of it is a hit, as for the library.
std::vector<Explanation> explain_kernels(const std::vector<SelectedChain>& chains,
                                         const compiler::KernelStore& store);

/// One field that differs: both values, cut where they are long; of texts of several lines, those
/// lines that only one has.
std::string difference_text(const cache::FieldDifference& difference);

/// All of it, for a person. Failure where a kernel would miss.
int explain_cache(const CacheLocation& location, const SelectionOptions& selection,
                  std::ostream& out);

}  // namespace backlight::tool
