#include "device/shared_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

namespace backlight::device {

SharedLibrary::SharedLibrary(std::span<const std::string> names) {
    for (const std::string& name : names) {
        handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle_ != nullptr) {
            link_map* map = nullptr;
            const bool known = dlinfo(handle_, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0;
            path_ = known && map->l_name[0] != '\0' ? map->l_name : name;
            return;
        }
        const char* reason = dlerror();
        // The loader's text begins with the name.
        failure_ += fmt::format("\n  {}", reason != nullptr ? reason : name + ": unknown reason");
    }
}

void* SharedLibrary::symbol(const char* name) const noexcept {
    return handle_ != nullptr ? dlsym(handle_, name) : nullptr;
}

}  // namespace backlight::device
