#if defined(__x86_64__)
#include "ops/cpu/table.h"

namespace switchyard {

static_assert(Operand<Bf16Bits>::kDepth == 2,
              "src/CMakeLists.txt sets the instruction set of this file");

extern const CpuKernels kAvx512Bf16Kernels;
constinit const CpuKernels kAvx512Bf16Kernels = kernels_named("avx512_bf16");

}  // namespace switchyard
#endif
