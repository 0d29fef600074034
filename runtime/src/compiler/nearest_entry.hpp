#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "backlight/cache/key.hpp"
#include "backlight/cache/layered_cache.hpp"

namespace backlight::compiler {

/// `LayeredCache::nearest` among what is as real: of a GPU's kernel no entry of the emulated
/// device, which is of another compiler's making and nobody's replacement, and the reverse.
std::vector<cache::NearEntry> nearest_entries(const cache::LayeredCache& cache,
                                              const cache::Key& key, std::size_t most);

/// The entry of the cache that comes nearest to a key, and what differs, as a sentence: "The
/// nearest entry, in embedded, differs in target: wanted sm_120a, found sm_90a." `layer_names` are
/// those of the cache's layers.
std::string describe_nearest(const cache::LayeredCache& cache, const cache::Key& key,
                             std::span<const std::string> layer_names);

/// The layers that are looked in, in their order, each with the reason where it is not used.
std::string describe_layers(const cache::LayeredCache& cache,
                            std::span<const std::string> layer_names);

/// One field: of long values, the lines that the other has not.
std::string describe(const cache::FieldDifference& difference);

}  // namespace backlight::compiler
