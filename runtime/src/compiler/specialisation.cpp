#include "compiler/specialisation.hpp"

#include <fmt/format.h>

namespace backlight::compiler {

SpecialisationWriter::SpecialisationWriter(std::string_view subject)
    : text_(fmt::format("// Rendered by Backlight: {}.\n"
                        "#pragma once\n\n"
                        "#include \"primitives/types.cuh\"\n\n"
                        "namespace backlight::kernel::specialisation {{\n\n",
                        subject)) {}

void SpecialisationWriter::line(const std::string& declaration, std::string_view comment) {
    text_ += declaration;
    if (!comment.empty()) {
        text_ += fmt::format("  // {}", comment);
    }
    text_ += '\n';
}

SpecialisationWriter& SpecialisationWriter::integer(std::string_view name, std::int64_t value,
                                                    std::string_view comment) {
    line(fmt::format("constexpr int {} = {};", name, value), comment);
    return *this;
}

SpecialisationWriter& SpecialisationWriter::boolean(std::string_view name, bool value,
                                                    std::string_view comment) {
    line(fmt::format("constexpr bool {} = {};", name, value), comment);
    return *this;
}

SpecialisationWriter& SpecialisationWriter::type(std::string_view name, std::string_view type,
                                                 std::string_view comment) {
    line(fmt::format("using {} = {};", name, type), comment);
    return *this;
}

std::string SpecialisationWriter::text() const {
    return text_ + "\n}  // namespace backlight::kernel::specialisation\n";
}

}  // namespace backlight::compiler
