#if defined(__x86_64__)
#include "ops/cpu/table.h"

namespace switchyard {

static_assert(kVectorBytes == 32, "src/CMakeLists.txt sets the instruction set of this file");

extern const CpuKernels kAvx2Kernels;
constinit const CpuKernels kAvx2Kernels = kernels_named("avx2");

}  // namespace switchyard
#endif
