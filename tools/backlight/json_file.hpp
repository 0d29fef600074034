#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

namespace backlight::tool {

/// Writes the document to the file, or to `out` where `path` is "-". Throws `file_error`.
void write_json(const std::string& path, const nlohmann::ordered_json& document, std::ostream& out);

}  // namespace backlight::tool
