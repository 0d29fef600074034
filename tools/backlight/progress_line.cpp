#include "progress_line.hpp"

#include <unistd.h>

#include <iostream>

namespace backlight::tool {

ProgressLine::ProgressLine(std::ostream& out)
    : out_(out), terminal_(out.rdbuf() == std::cerr.rdbuf() && ::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
    clear();
}

void ProgressLine::show(const std::string& text) {
    if (terminal_) {
        // Back to the beginning, and wipe what was longer.
        out_ << '\r' << text << "\x1b[K" << std::flush;
        shown_ = true;
    }
}

void ProgressLine::clear() {
    if (shown_) {
        out_ << "\r\x1b[K" << std::flush;
        shown_ = false;
    }
}

}  // namespace backlight::tool
