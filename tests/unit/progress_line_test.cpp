#include "progress_line.hpp"

#include <doctest/doctest.h>

#include <sstream>

namespace backlight::tool {

namespace {

TEST_CASE("a progress line says nothing where there is no terminal") {
    std::ostringstream out;
    {
        ProgressLine line(out);
        CHECK_FALSE(line.on_terminal());
        line.show("half done");
        line.clear();
    }
    CHECK(out.str().empty());
}

TEST_CASE("a progress line is cut between characters and wiped at the end, once") {
    std::ostringstream out;
    {
        constexpr std::size_t columns = 5;
        ProgressLine line(out, columns);
        line.show("abc·de");
        line.clear();
    }
    // Four columns are there to write to; the fourth byte is the first half of a character.
    CHECK(out.str() == "\r\x1b[Kabc\r\x1b[K");
}

}  // namespace

}  // namespace backlight::tool
