#include <iostream>

#include "command.hpp"

int main(int argc, char** argv) {
    return backlight::tool::run_command({argv + 1, argv + argc}, std::cout, std::cerr);
}
