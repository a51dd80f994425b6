#if defined(__x86_64__)
#include "ops/cpu/table.h"

namespace switchyard {

static_assert(kVectorBytes == 64, "src/CMakeLists.txt sets the instruction set of this file");

extern const CpuKernels kAvx512Kernels;
constinit const CpuKernels kAvx512Kernels = kernels_named("avx512");

}  // namespace switchyard
#endif
