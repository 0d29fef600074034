#include "device/target.hpp"

#include <string>

#include "test_support.hpp"

using backlight::ErrorCode;
using backlight::device::resident_blocks;
using backlight::device::Target;
using backlight::device::target_by_compute_capability;
using backlight::device::target_by_name;
using backlight::test::check_refused;

TEST_CASE("a target's name, with or without its suffix, gives the architecture-specific target") {
    for (const char* name : {"sm_90", "sm_90a"}) {
        const Target target = target_by_name(name);
        CHECK(target.name == "sm_90a");
        CHECK(target.compute_major == 9);
        CHECK(target.compute_minor == 0);
        CHECK(target.shared_bytes_per_block == 232448);
    }
    const Target target = target_by_name("sm_120a");
    CHECK(target.name == "sm_120a");
    CHECK(target.compute_major == 12);
    CHECK(target.compute_minor == 0);
    CHECK(target.shared_bytes_per_block == 101376);
}

TEST_CASE("a name that is no target with TMA is refused with the rule") {
    for (const char* name :
         {"sm_89", "sm_80a", "compute_90", "sm_", "sm_90b", "", "sm_90aa", "sm_130", "sm_9",
          "sm_ 90", "sm_-90", "sm_99999999999999999999", "a"}) {
        check_refused(ErrorCode::invalid_argument,
                      {"target is '" + std::string(name) + "'", "TMA", "sm_90a"},
                      [&] { target_by_name(name); });
    }
}

TEST_CASE("a device below compute capability 9.0 is refused by name, with both capabilities") {
    check_refused(ErrorCode::unsupported_device, {"Old card", "8.9", "TMA", "9.0"},
                  [] { target_by_compute_capability(8, 9, "Old card"); });
    CHECK(target_by_compute_capability(9, 0, "").name == "sm_90a");
    CHECK(target_by_compute_capability(10, 3, "").name == "sm_103a");
    CHECK(target_by_compute_capability(12, 1, "").name == "sm_121a");
}

TEST_CASE("resident blocks are bounded by registers, threads, shared memory and the block limit") {
    const Target hopper = target_by_name("sm_90a");
    const Target blackwell = target_by_name("sm_120a");
    SUBCASE("registers") {
        CHECK(resident_blocks(hopper, 255, 256, 0) == 1);
        CHECK(resident_blocks(hopper, 128, 256, 0) == 2);
        CHECK(resident_blocks(hopper, 129, 256, 0) == 1);  // handed out by eights: 136
    }
    SUBCASE("threads") {
        CHECK(resident_blocks(hopper, 16, 1024, 0) == 2);
        CHECK(resident_blocks(blackwell, 16, 1024, 0) == 1);
        CHECK(resident_blocks(blackwell, 16, 33, 0) == 24);  // two warps, 24 blocks at most
    }
    SUBCASE("shared memory, with what each block takes for the system") {
        CHECK(resident_blocks(blackwell, 32, 32, 73744) == 1);
        CHECK(resident_blocks(hopper, 32, 32, 73744) == 3);
        CHECK(resident_blocks(hopper, 32, 32, 75 * 1024) == 3);
        CHECK(resident_blocks(hopper, 32, 32, 75 * 1024 + 1) == 2);
    }
    SUBCASE("blocks") {
        CHECK(resident_blocks(hopper, 16, 32, 0) == 32);
    }
    SUBCASE("no threads, no blocks") {
        CHECK(resident_blocks(hopper, 16, 0, 0) == 0);
    }
}
