#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

namespace backlight::tool {

/// Throws `file_error` unless `write_json` could write there now: to be asked before a long
/// measurement, not after it. Makes no file; "-" and an empty path are always good.
void check_json_path(const std::string& path);

/// Writes the document to the file, or to `out` where `path` is "-". Throws `file_error`.
void write_json(const std::string& path, const nlohmann::ordered_json& document, std::ostream& out);

/// The document in a file. Throws `file_error`.
nlohmann::ordered_json read_json(const std::string& path);

}  // namespace backlight::tool
