#pragma once

#include "checked_problems.hpp"
#include "session/gpu.hpp"
