#include "ops/cpu/kernels.h"

#include <string>

#include <ATen/Version.h>

#include "ops/cpu/amx_gemm.h"

namespace switchyard {

extern const CpuKernels kBaselineKernels;
#if defined(__x86_64__)
extern const CpuKernels kAvx2Kernels;
extern const CpuKernels kAvx512Kernels;
extern const CpuKernels kAvx512Bf16Kernels;

namespace {

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

CpuKernels with_amx(CpuKernels kernels) {
  kernels.name = "amx";
  kernels.bf16.gemm = amx_gemm;
  return kernels;
}

}  // namespace

const CpuKernels* cpu_kernels_for(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kBaseline:
      return &kBaselineKernels;
    case CpuIsa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kAvx2Kernels
                                                                             : nullptr;
    case CpuIsa::kAvx512:
      return has_avx512() ? &kAvx512Kernels : nullptr;
    case CpuIsa::kAvx512Bf16:
      return has_avx512() && __builtin_cpu_supports("avx512bf16") ? &kAvx512Bf16Kernels : nullptr;
    case CpuIsa::kAmx: {
      static const CpuKernels kernels = with_amx(kAvx512Bf16Kernels);
      return cpu_kernels_for(CpuIsa::kAvx512Bf16) != nullptr && has_amx() ? &kernels : nullptr;
    }
  }
  return nullptr;
}
#else
const CpuKernels* cpu_kernels_for(CpuIsa isa) {
  return isa == CpuIsa::kBaseline ? &kBaselineKernels : nullptr;
}
#endif

namespace {

const CpuKernels& fastest_kernels() {
  const std::string allowed = at::get_cpu_capability();
  if (allowed == "AVX512") {
    for (const CpuIsa isa : {CpuIsa::kAmx, CpuIsa::kAvx512Bf16, CpuIsa::kAvx512}) {
      if (const CpuKernels* kernels = cpu_kernels_for(isa)) {
        return *kernels;
      }
    }
  }
  if (allowed == "AVX512" || allowed == "AVX2") {
    if (const CpuKernels* kernels = cpu_kernels_for(CpuIsa::kAvx2)) {
      return *kernels;
    }
  }
  return *cpu_kernels_for(CpuIsa::kBaseline);
}

}  // namespace

const CpuKernels& cpu_kernels() {
  static const CpuKernels& kernels = fastest_kernels();
  return kernels;
}

}  // namespace switchyard
