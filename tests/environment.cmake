# Read by ctest before it starts the tests: what every test's environment has.

# LibTorch's CPU kernels for bfloat16 use the newest instructions that the processor names. Some
# virtual machines name AMX and then refuse it, which ends any program of LibTorch's, Python's too.
# Without AMX the numbers do not depend on the machine either.
if(NOT DEFINED ENV{ONEDNN_MAX_CPU_ISA})
  set(ENV{ONEDNN_MAX_CPU_ISA} AVX512_CORE_BF16)
endif()
