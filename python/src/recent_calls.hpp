#pragma once

#include <nanobind/nanobind.h>

namespace backlight::python {

/// Kinds of calls that were found good lately: by shapes, types and devices of q, k and v, and by
/// the options as the caller gave them. It spares the making and hashing of a key in Python.

/// The object that was kept for such a call. None where there is none, or where a tensor is not
/// read directly or has strides or an address that the kernels do not take.
nanobind::object find_call(nanobind::handle q, nanobind::handle k, nanobind::handle v,
                           nanobind::handle options);

/// The same for a backward; None also where d_o, o or lse are not of the call's shapes and types.
nanobind::object find_backward(nanobind::handle d_o, nanobind::handle q, nanobind::handle k,
                               nanobind::handle v, nanobind::handle o, nanobind::handle lse,
                               nanobind::handle options);

/// Keeps `call`, whose output and row sums are of these shapes, in place of the oldest one. An
/// equal call that is kept stays.
void keep_call(nanobind::handle q, nanobind::handle k, nanobind::handle v, nanobind::tuple options,
               nanobind::object call, const nanobind::tuple& o_shape,
               const nanobind::tuple& lse_shape);

void forget_calls();

}  // namespace backlight::python
