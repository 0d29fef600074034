#include "json_file.hpp"

#include <fmt/format.h>

#include <fstream>

#include "backlight/error.hpp"
#include "output_file.hpp"

namespace backlight::tool {

namespace {

Error cannot_write(const std::string& path) {
    return {ErrorCode::file_error,
            fmt::format("json is '{}': the file could not be written", path)};
}

}  // namespace

void check_json_path(const std::string& path) {
    if (!path.empty() && path != "-" && !can_be_written(path)) {
        throw cannot_write(path);
    }
}

void write_json(const std::string& path, const nlohmann::ordered_json& document,
                std::ostream& out) {
    // Names come from drivers and command lines: text that is not UTF-8 must not cost the report.
    const std::string text =
        document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
    if (path == "-") {
        out << text << std::flush;
        return;
    }
    std::ofstream file(path);
    file << text;
    file.close();
    if (!file) {
        throw cannot_write(path);
    }
}

nlohmann::ordered_json read_json(const std::string& path) {
    std::ifstream file(path);
    auto document = nlohmann::ordered_json::parse(file, nullptr, false);
    if (document.is_discarded()) {
        throw Error(ErrorCode::file_error,
                    fmt::format("'{}' could not be read, or is no JSON", path));
    }
    return document;
}

}  // namespace backlight::tool
