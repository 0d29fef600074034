#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace backlight::tool {

/// Exit codes of the command. `doctor` has two of its own besides.
inline constexpr int exit_success = 0;
/// An Error, or a failed check of `verify`.
inline constexpr int exit_failure = 1;
/// The command line itself was not understood.
inline constexpr int exit_usage = 2;

/// The whole command `backlight`, without the program's name in `arguments`. Reports go to `out`
/// (those of `verify` and `run` to standard output), errors to `errors` as one
/// "backlight: <code>: <message>"; nothing is thrown.
int run_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& errors);

}  // namespace backlight::tool
