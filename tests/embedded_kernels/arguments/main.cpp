#include "backlight_kernels.hpp"
#include "others.hpp"

int main() {
    return backlight_kernels().empty() || others().empty() ||
                   backlight_kernels().data() == others().data()
               ? 1
               : 0;
}
