#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernel_selection.hpp"

namespace backlight::tool {

/// What the entries of a manifest get where they say nothing themselves.
struct ManifestDefaults {
    std::vector<NamedConfig> configs;
    std::vector<device::Target> targets;
};

/// One problem, of the fields that an entry of a manifest has for it. `name` is how errors call it.
/// Throws `invalid_argument` with the field.
AttentionProblem parse_problem(const nlohmann::json& object, const std::string& name);

/// The problems of a manifest (docs/prebuilding.md tells its format). `name` is how errors call it.
/// Throws `invalid_argument`, or `unknown_kernel`, with the entry (counted from 1) and the field.
std::vector<WantedProblem> parse_manifest(const nlohmann::json& document, const std::string& name,
                                          const ManifestDefaults& defaults);

/// The same of a file; `file_error` where it cannot be read.
std::vector<WantedProblem> read_manifest(const std::string& path, const ManifestDefaults& defaults);

}  // namespace backlight::tool
