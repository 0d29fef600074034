#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/nvrtc.hpp"

namespace backlight::compiler {

/// The embedded file of that name; throws `file_error` if there is none.
std::string_view source_text(std::string_view name);

/// The file and everything that it includes, directly or not, each once; "specialisation.cuh" is
/// left out, being rendered. The file itself comes first. Where `text` is given, it is the file's
/// content, which need not be embedded then; it must outlive the result, as `name` must.
std::vector<Header> source_closure(std::string_view name, std::string_view text = {});

/// A digest of that closure: names and texts.
std::string source_digest(std::string_view name, std::string_view text = {});

}  // namespace backlight::compiler
