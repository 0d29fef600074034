// NVRTC libraries for tests of error paths that no good installation can show. One source, a
// variant a definition; each compiles nothing.
//
//   BACKLIGHT_FAKE_NVRTC_OLD           version 12.4, older than what Backlight supports
//   BACKLIGHT_FAKE_NVRTC_NO_BLACKWELL  new enough, and knows no compute capability above 9.0
//   BACKLIGHT_FAKE_NVRTC_FAILS         refuses every program that has a text, with a log
//   BACKLIGHT_FAKE_NVRTC_SILENT        "compiles" everything, with a log that is empty

#include <nvrtc.h>

#include <cstddef>
#include <cstring>
#include <string>

#define BACKLIGHT_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

struct Program {
    bool empty = true;
    std::string log;
};

#ifdef BACKLIGHT_FAKE_NVRTC_OLD
constexpr int version_major = 12;
constexpr int version_minor = 4;
#else
constexpr int version_major = 12;
constexpr int version_minor = 8;
#endif

#if defined(BACKLIGHT_FAKE_NVRTC_OLD) || defined(BACKLIGHT_FAKE_NVRTC_NO_BLACKWELL)
constexpr int architectures[] = {70, 75, 80, 86, 89, 90};
#else
constexpr int architectures[] = {75, 80, 86, 89, 90, 100, 120};
#endif

const std::string ptx = "// Cuda compilation tools, release 12.8, V12.8.99\n";
const std::string cubin = "no cubin";

Program& program_of(nvrtcProgram program) {
    return *reinterpret_cast<Program*>(program);
}

}  // namespace

BACKLIGHT_EXPORT nvrtcResult nvrtcVersion(int* major, int* minor) {
    *major = version_major;
    *minor = version_minor;
    return NVRTC_SUCCESS;
}

BACKLIGHT_EXPORT const char* nvrtcGetErrorString(nvrtcResult result) {
    return result == NVRTC_ERROR_COMPILATION ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR";
}

BACKLIGHT_EXPORT nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
    *count = static_cast<int>(sizeof(architectures) / sizeof(architectures[0]));
    return NVRTC_SUCCESS;
}

BACKLIGHT_EXPORT nvrtcResult nvrtcGetSupportedArchs(int* supported) {
    std::memcpy(supported, architectures, sizeof(architectures));
    return NVRTC_SUCCESS;
}

BACKLIGHT_EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source,
                                                const char*, int, const char* const*,
                                                const char* const*) {
    *program = reinterpret_cast<nvrtcProgram>(new Program{*source == '\0', {}});
    return NVRTC_SUCCESS;
}

BACKLIGHT_EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
    delete &program_of(*program);
    *program = nullptr;
    return NVRTC_SUCCESS;
}

BACKLIGHT_EXPORT nvrtcResult nvrtcCompileProgram([[maybe_unused]] nvrtcProgram program, int,
                                                 const char* const*) {
#ifdef BACKLIGHT_FAKE_NVRTC_FAILS
    if (!program_of(program).empty) {
        program_of(program).log = "fake.cu(1): error: this compiler takes no program";
        return NVRTC_ERROR_COMPILATION;
    }
#endif
    return NVRTC_SUCCESS;
}

BACKLIGHT_EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, std::size_t* bytes) {
    *bytes = program_of(program).log.size() + 1;
    return NVRTC_SUCCESS;
}

BACKLIGHT_EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* text) {
    std::memcpy(text, program_of(program).log.c_str(), program_of(program).log.size() + 1);
    return NVRTC_SUCCESS;
}

BACKLIGHT_EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, std::size_t* bytes) {
    *bytes = cubin.size();
    return NVRTC_SUCCESS;
}

BACKLIGHT_EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char* bytes) {
    std::memcpy(bytes, cubin.data(), cubin.size());
    return NVRTC_SUCCESS;
}

BACKLIGHT_EXPORT nvrtcResult nvrtcGetPTXSize(nvrtcProgram, std::size_t* bytes) {
    *bytes = ptx.size() + 1;
    return NVRTC_SUCCESS;
}

BACKLIGHT_EXPORT nvrtcResult nvrtcGetPTX(nvrtcProgram, char* text) {
    std::memcpy(text, ptx.c_str(), ptx.size() + 1);
    return NVRTC_SUCCESS;
}
