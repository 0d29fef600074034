#include "json_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

namespace backlight {

namespace {

/// Far more than anything of ours has. Parsing alone needs no stack for it, but comparing and
/// writing do.
constexpr int deepest = 64;

class Refused : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

}  // namespace

JsonText parse_json(std::string_view text, RepeatedField repeated) {
    using Event = nlohmann::json::parse_event_t;
    std::vector<std::set<std::string>> names;  // of the objects that are open, by depth
    const auto watch = [&](int depth, Event event, const nlohmann::json& parsed) {
        if ((event == Event::object_start || event == Event::array_start) && depth >= deepest) {
            throw Refused(fmt::format("it is nested more than {} deep", deepest));
        }
        if (repeated == RepeatedField::refused) {
            const auto open = static_cast<std::size_t>(depth);
            names.resize(std::max(names.size(), open + 1));
            if (event == Event::object_start) {
                // Its fields are told one deeper than itself.
                names.resize(open + 2);
                names[open + 1].clear();
            } else if (event == Event::key &&
                       !names[open].insert(parsed.get<std::string>()).second) {
                throw Refused(
                    fmt::format("it has the field {} twice in one object", parsed.dump()));
            }
        }
        return true;
    };
    try {
        return {.value = nlohmann::json::parse(text, watch), .problem = {}};
    } catch (const Refused& refused) {
        return {.value = nullptr, .problem = refused.what()};
    } catch (const nlohmann::json::exception& error) {
        return {.value = nullptr, .problem = fmt::format("it is not JSON: {}", error.what())};
    }
}

}  // namespace backlight
