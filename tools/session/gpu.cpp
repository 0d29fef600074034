#include "session/gpu.hpp"

#include "runtime_implementation.hpp"

namespace backlight::tool {

Gpu::Gpu(const RuntimeOptions& options)
    : Session(Runtime(options)),
      driver_(device::open_driver(with_environment(options).driver_path)),
      // A Runtime of the public constructor always sits on a CUDA device.
      cuda_device_(&dynamic_cast<const device::CudaDevice&>(device())) {
    driver_->check(driver_->cuDevicePrimaryCtxRetain(&context_, cuda_device_->handle()),
                   "retain the primary context");
    try {
        make_current();
        CUstream stream = nullptr;
        driver_->check(driver_->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "create a stream");
        use_stream(stream);
    } catch (...) {
        driver_->cuDevicePrimaryCtxRelease(cuda_device_->handle());
        throw;
    }
}

Gpu::~Gpu() {
    driver_->cuStreamDestroy(stream());
    driver_->cuDevicePrimaryCtxRelease(cuda_device_->handle());
}

void Gpu::make_current() const {
    driver_->check(driver_->cuCtxSetCurrent(context_), "make the primary context current");
}

Event::Event(const Gpu& gpu) : gpu_(gpu) {
    gpu_.driver().check(gpu_.driver().cuEventCreate(&event_, CU_EVENT_DEFAULT), "create an event");
}

Event::~Event() {
    gpu_.driver().cuEventDestroy(event_);
}

void Event::record(Stream stream) const {
    gpu_.driver().check(gpu_.driver().cuEventRecord(event_, stream), "record an event");
}

void Event::synchronise() const {
    gpu_.driver().check(gpu_.driver().cuEventSynchronize(event_), "wait for an event");
}

double Event::milliseconds_since(const Event& earlier) const {
    float milliseconds = 0;
    gpu_.driver().check(gpu_.driver().cuEventElapsedTime(&milliseconds, earlier.event_, event_),
                        "read the time between two events");
    return milliseconds;
}

}  // namespace backlight::tool
