#include "tuning/shipped.hpp"

#include <string>

namespace backlight::tuning {

const Database& shipped_database() {
    // Never destroyed: a Runtime in a static variable may ask for it at the end of the process.
    static const Database& database = *new Database([] {
        Database all;
        for (const compiler::EmbeddedSource& file : shipped_files()) {
            all.merge(checked_from_json_text(file.text, std::string(file.name)));
        }
        return all;
    }());
    return database;
}

}  // namespace backlight::tuning
