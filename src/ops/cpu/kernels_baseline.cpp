#include "ops/cpu/table.h"

namespace switchyard {

extern const CpuKernels kBaselineKernels;
constinit const CpuKernels kBaselineKernels = kernels_named("baseline");

}  // namespace switchyard
