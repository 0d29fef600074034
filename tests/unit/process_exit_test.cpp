// What happens to a Runtime that is still there when the process ends.

#include <doctest/doctest.h>

#include "child_process.hpp"

using namespace backlight;

TEST_CASE("a process that leaves a Runtime and plans and running work behind exits in silence") {
    for (const char* scenario :
         {"global", "global_cold", "static", "leaked", "leaked_later", "plan", "made_at_exit"}) {
        CAPTURE(scenario);
        const test::Ended ended = test::run_program(BACKLIGHT_EXIT_SCENARIOS, scenario);
        CHECK(ended.code == 0);
        CHECK(ended.output == "");
    }
}
