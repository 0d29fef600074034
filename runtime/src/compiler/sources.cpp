#include "compiler/sources.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "backlight/cache/key.hpp"
#include "backlight/error.hpp"
#include "compiler/embedded_sources.hpp"
#include "compiler/specialisation.hpp"

namespace backlight::compiler {

namespace {

/// Calls `visit` with each name that the text includes in quotation marks.
template <typename Visit>
void for_each_include(std::string_view text, Visit visit) {
    static constexpr std::string_view directive = "#include \"";
    std::size_t begin = 0;
    while (begin < text.size()) {
        std::size_t end = text.find('\n', begin);
        end = end == std::string_view::npos ? text.size() : end;
        std::string_view line = text.substr(begin, end - begin);
        if (line.starts_with(directive)) {
            line.remove_prefix(directive.size());
            visit(line.substr(0, line.find('"')));
        }
        begin = end + 1;
    }
}

void collect(std::string_view name, std::string_view given, std::vector<Header>& closure) {
    const bool known = std::any_of(closure.begin(), closure.end(),
                                   [&](const Header& header) { return header.name == name; });
    if (known || name == specialisation_header) {
        return;
    }
    const std::string_view text = given.empty() ? source_text(name) : given;
    closure.push_back({name, text});
    for_each_include(text, [&](std::string_view included) { collect(included, {}, closure); });
}

}  // namespace

std::string_view source_text(std::string_view name) {
    for (const EmbeddedSource& source : embedded_sources()) {
        if (source.name == name) {
            return source.text;
        }
    }
    throw Error(ErrorCode::file_error,
                fmt::format("kernel source '{}' is not embedded in this build", name));
}

std::vector<Header> source_closure(std::string_view name, std::string_view text) {
    std::vector<Header> closure;
    collect(name, text, closure);
    return closure;
}

std::string source_digest(std::string_view name, std::string_view text) {
    std::vector<Header> closure = source_closure(name, text);
    std::sort(closure.begin(), closure.end(),
              [](const Header& a, const Header& b) { return a.name < b.name; });
    cache::Key key;
    for (const Header& header : closure) {
        key.add(header.name, header.text);
    }
    return key.digest();
}

}  // namespace backlight::compiler
