#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace backlight::compiler {

/// The name under which kernel sources include their specialisation.
inline constexpr std::string_view specialisation_header = "specialisation.cuh";

/// Writes the constants that a kernel source is compiled with, as a header that a person can read:
///
///     constexpr int block_q = 32;  // query rows a tile
class SpecialisationWriter {
  public:
    /// `subject` says in the first line what is specialised.
    explicit SpecialisationWriter(std::string_view subject);

    SpecialisationWriter& integer(std::string_view name, std::int64_t value,
                                  std::string_view comment = {});
    SpecialisationWriter& boolean(std::string_view name, bool value, std::string_view comment = {});
    /// `using name = type;`
    SpecialisationWriter& type(std::string_view name, std::string_view type,
                               std::string_view comment = {});

    std::string text() const;

  private:
    void line(const std::string& declaration, std::string_view comment);

    std::string text_;
};

}  // namespace backlight::compiler
