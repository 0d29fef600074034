#pragma once

#include <optional>
#include <string>

#include "backlight/cache/entry.hpp"
#include "compiler/backend.hpp"

namespace backlight::compiler {

/// What the cache keeps of a kernel: the cubin, and beside it the name of its entry point and what
/// the compiler told. The same kernel gives the same bytes, whoever compiled it and when.
cache::Entry to_entry(const CompiledKernel& kernel, const std::string& entry_point);

/// Nothing where the entry does not hold what `to_entry` writes for that entry point.
std::optional<CompiledKernel> from_entry(cache::Entry entry, const std::string& entry_point);

/// How a kernel came to be, which is kept beside its entry for a person to read: JSON with the time
/// that compiling took, when that was, and the version of Backlight.
std::string provenance_of(const CompiledKernel& kernel);

}  // namespace backlight::compiler
