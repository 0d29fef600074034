#include "progress_line.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>

namespace backlight::tool {

namespace {

/// The beginning of a UTF-8 text, without a part of a character at its end.
std::string_view beginning(std::string_view text, std::size_t bytes) {
    if (text.size() <= bytes) {
        return text;
    }
    while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0U) == 0x80U) {
        --bytes;
    }
    return text.substr(0, bytes);
}

}  // namespace

std::size_t terminal_columns(const std::ostream& out) {
    const int descriptor = out.rdbuf() == std::cerr.rdbuf()   ? STDERR_FILENO
                           : out.rdbuf() == std::cout.rdbuf() ? STDOUT_FILENO
                                                              : -1;
    if (descriptor < 0 || ::isatty(descriptor) == 0) {
        return 0;
    }
    constexpr std::size_t usual = 80;
    winsize size{};
    return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : usual;
}

ProgressLine::ProgressLine(std::ostream& out) : ProgressLine(out, terminal_columns(out)) {}

ProgressLine::ProgressLine(std::ostream& out, std::size_t columns) : out_(out), columns_(columns) {}

ProgressLine::~ProgressLine() {
    clear();
}

void ProgressLine::show(std::string_view text) {
    if (on_terminal()) {
        // One column stays free: a full line would wrap, and could not be written over.
        overwrite(beginning(text, columns_ - 1));
        shown_ = true;
    }
}

void ProgressLine::clear() {
    if (shown_) {
        overwrite("");
        shown_ = false;
    }
}

void ProgressLine::overwrite(std::string_view text) {
    // Back to the beginning, and wipe what was longer.
    out_ << "\r\x1b[K" << text << std::flush;
}

}  // namespace backlight::tool
