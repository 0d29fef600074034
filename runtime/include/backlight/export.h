#pragma once

/// Marks what the shared library exports: the functions of backlight.h and those that the C++
/// headers declare. All else is hidden.
#define BACKLIGHT_API __attribute__((visibility("default")))
