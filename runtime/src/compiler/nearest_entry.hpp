#pragma once

#include <span>
#include <string>

#include "backlight/cache/key.hpp"
#include "backlight/cache/layered_cache.hpp"

namespace backlight::compiler {

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
